"""D4: every verb on the command line, on both stores: what it prints and its exit code."""

import json
import re
import shlex
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.kernel.requests import Commit
from hark.model.decisions import Advance, Arm, Decision, Finish
from tests.doors.support_cli import Cli, run_cli, store_options
from tests.promises.support_signals import Turns


class Checkout(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


def test_d4_start_prints_the_id_and_signal_the_status_of_the_delivery(cli: Cli) -> None:
    app = Hark(cli.store.url, **cli.store.options)
    app.register(Checkout)
    with app, app.worker():
        id = cli("start", "Checkout", "--key", "order:42", "--input", '{"order": 42}').out.strip()
        assert app.get("order:42").result().id == id
        assert app.get(id).result().state == {"order": 42}
        assert cli("signal", "order:42", "other").out == "stored\n"
        delivery = cli("signal", "order:42", "paid", "--payload", '{"amount": 100}', "--dedup-key", "evt-7", "--json")
        assert delivery.json["instance_id"] == id
        assert app.result(id, 30).result() == {"amount": 100}
        assert cli("signal", "order:42", "paid", "--dedup-key", "evt-7").out == "duplicate\n"
        assert "is done" in cli("signal", "order:42", "paid").error_line(3)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ((), None),
        (("--payload", "[1, 2]"), [1, 2]),
        (("--payload", "approved"), "approved"),
        (("--payload", "[1, 2"), "[1, 2"),
        (("--payload", "3", "--text"), "3"),
        (("--payload", ""), ""),
        (("--file", "payload.json"), {"from": "file"}),
        (("--file", "payload.json", "--text"), '{"from": "file"}'),
        (("--payload", "1e22"), 1e22),
        (("--payload", "\N{SNOWMAN}"), "\N{SNOWMAN}"),
    ],
)
def test_d4_a_payload_is_json_if_it_parses_else_text(
    cli: Cli, given: tuple[str, ...], stored: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"from": "file"}')
    cli.park(Arm("signal", "w", name="go"))
    assert cli("signal", "i", "go", *given).out == "woke\n"

    async def inbox(turns: Turns) -> list[str]:
        return [row.payload for row in (await turns.claim("m")).inbox]

    assert [json.loads(payload) for payload in cli.run_turns(inbox)] == [stored]


def test_d4_broadcast_prints_how_many_it_reached(cli: Cli) -> None:
    cli.park(Arm("broadcast", "w", name="market-open"))
    assert cli("broadcast", "market-open", "--dedup-key", "monday").out == "1\n"
    assert cli("broadcast", "market-close").out == "0\n"
    assert cli("broadcast", "market-open", "--dedup-key", "monday", "--json").json == {"count": 1}


def test_d4_message_prints_the_id_of_the_receiver(cli: Cli) -> None:
    cli.park(Arm("message", "w", name="payment", key="order-42"))
    assert "No instance waits" in cli("message", "payment", "order-43").error_line(3)
    assert cli("message", "payment", "order-42", "--payload", "1").out == "i\n"


def test_d4_message_with_a_ttl_is_kept(cli: Cli) -> None:
    assert cli("message", "payment", "order-42", "--ttl", "60", "--dedup-key", "a").out == "kept\n"
    assert cli("message", "payment", "order-42", "--dedup-key", "a", "--json").json == {"id": None}
    cli("message", "payment", "order-42", "--ttl", "-1").error_line(2)
    cli.park(Arm("message", "w", name="payment", key="order-42"))
    assert cli("message", "payment", "order-42", "--dedup-key", "a").out == "i\n"


def test_d4_instances_are_listed_shown_cancelled_and_retried(cli: Cli) -> None:
    assert cli("instance", "list").out == "No instances.\n"
    assert cli("instance", "list", "--json").json == []
    cli.park(Arm("signal", "w", name="go"), key="order:1")

    async def fail(turns: Turns) -> None:
        await turns.start("m", "broken")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    cli.run_turns(fail)
    assert [one["id"] for one in cli("instance", "list", "--json").json] == ["broken", "i"]
    assert [one["id"] for one in cli("instance", "list", "--status", "failed", "--json").json] == ["broken"]
    listed = cli("instance", "list").out
    assert "order:1" in listed
    assert "awaiting_signal" in listed
    shown = cli("instance", "show", "order:1")
    assert "waits for        signal go" in shown.out
    assert cli("instance", "show", "i", "--json").json["waits"][0]["name"] == "go"
    assert "out of paper" in cli("instance", "show", "broken").out
    assert "no instance 'unknown'" in cli("instance", "show", "unknown").error_line(3)
    assert cli("instance", "cancel", "order:1", "--reason", "no stock").out == "i is cancelled.\n"
    cli("instance", "cancel", "i").error_line(4)
    assert cli("instance", "retry", "broken", "--json").json["status"] == "runnable"
    cli("instance", "retry", "i").error_line(4)
    cli("instance", "cancel", "unknown").error_line(3)


def test_d4_show_has_the_progress_of_an_instance(cli: Cli) -> None:
    async def work(turns: Turns) -> None:
        await turns.start("m", "busy")
        claim = await turns.claim("m")
        decision = Decision("next", "start", "{}", Advance(), progress='{"sent":120}')
        await turns.run(Commit(claim=claim, decision=decision))

    cli.run_turns(work)
    assert re.search(r"progress +.*sent.*120", cli("instance", "show", "busy").out)
    assert cli("instance", "show", "busy", "--json").json["progress"] == {"sent": 120}
    assert cli("instance", "list", "--json").json[0]["progress"] == {"sent": 120}


def test_d4_a_list_that_has_more_prints_the_command_for_the_next_page(cli: Cli) -> None:
    for n in range(3):
        cli.park(Arm("signal", f"w{n}", name="go"), id=f"i{n}")
    first = cli("instance", "list", "--limit", "2")
    assert first.out.splitlines()[-1] == "There is more: run the same command with --after i1."
    assert "--after" not in cli("instance", "list", "--limit", "3").out
    assert [one["id"] for one in cli("instance", "list", "--after", "i1", "--json").json] == ["i0"]


def test_d7_why_prints_a_command_that_wakes_the_instance(cli: Cli) -> None:
    cli.park(Arm("signal", "w", name="paid", timeout=3600 * 1_000_000), key="order:42")
    cli("signal", "order:42", "payed")
    cli("signal", "order:24", "paid")
    result = cli("instance", "why", "order:42").out
    for words in ("It waits for signal 'paid'.", "times out in 1 h", "'payed' is in its inbox", "sent to 'order:24'"):
        assert words in result
    [command] = [line.strip() for line in result.splitlines() if line.startswith("    hark ")]
    assert cli(*shlex.split(command)[1:]).out == "woke\n"
    found = cli("instance", "why", "i", "--json").json
    assert (found["status"], found["blockers"][0]["reason"]) == ("runnable", "no_worker")
    cli("instance", "why", "unknown").error_line(3)


def test_d7_why_says_how_long_ago_an_instance_ended_and_why(cli: Cli) -> None:
    for id in ("gone", "unwanted"):
        cli.park(Arm("signal", f"w-{id}", name="go"), id=id)
    waits = cli("instance", "why", "gone").out.splitlines()
    assert re.fullmatch(r"gone is awaiting_signal \(for \d+ s, since [\d-]+ [\d:]+ UTC\)\.", waits[0])
    assert any(re.fullmatch(r"  signal go \(for \d+ s\)", line) for line in waits)
    cli("instance", "cancel", "gone")
    cli("instance", "cancel", "unwanted", "--reason", "Out of stock.")
    ended, text, *rest = cli("instance", "why", "gone").out.splitlines()
    assert re.fullmatch(r"gone was cancelled (just now|\d+ s ago) \([\d-]+ [\d:]+ UTC\)\.", ended)
    assert (text, rest) == ("It was cancelled without a reason.", [])
    assert cli("instance", "why", "unwanted").out.splitlines()[1] == "It was cancelled: Out of stock."
    assert "A finished instance receives nothing" in cli("signal", "gone", "go").error_line(3)
    assert "start the instance before" in cli("signal", "missing", "go").error_line(3)


def test_d4_an_input_that_is_text_without_quotes_gets_a_hint(cli: Cli) -> None:
    line = cli("start", "x", "--input", "Deploy v1").error_line(2)
    assert line.startswith("hark: The --input is not valid JSON at line 1 column 1")
    assert line.endswith("""Text needs quotes: --input '"Deploy v1"'""")
    assert "Text needs quotes" not in cli("start", "x", "--input", "{").error_line(2)


def test_d4_events_are_printed_newest_last(cli: Cli) -> None:
    assert cli("events").out == "No events.\n"
    cli.park(Arm("signal", "w", name="go"), key="order:1")
    cli.park(Arm("signal", "w2", name="go"), id="other")
    cli("signal", "order:1", "go")
    assert [event["type"] for event in cli("events", "--job", "order:1", "--json").json][-1] == "signal"
    assert {event["instance_id"] for event in cli("events", "--json").json} == {"i", "other"}
    assert len(cli("events", "--limit", "2", "--json").json) == 2
    printed = cli("events", "--job", "i").out.splitlines()
    assert "signal" in printed[-1]
    assert '"name":"go"' in printed[-1]
    cli("events", "--job", "unknown").error_line(3)


def test_d4_timeout_check_fires_what_is_due_and_prints_it(cli: Cli) -> None:
    assert cli("timeout", "check").out == "No timeout was due.\n"
    assert cli("timeout", "check", "--json").json == []
    cli.ask(timeout=0.000001)
    cli.park(Arm("timer", "w", "nap", timeout=1))
    result = cli("timeout", "check").out.splitlines()
    assert result[-1] == "2 fired."
    assert cli("awakeable", "show", "prom_1abc123", "--json").json["status"] == "TIMEOUT"
    assert cli("timeout", "check").out == "No timeout was due.\n"


def test_d4_shared_options_may_stand_before_between_and_after_the_commands(cli: Cli) -> None:
    where = store_options(cli.store)
    for args in (
        [*where, "--json", "instance", "list"],
        ["instance", *where, "--json", "list"],
        ["instance", "list", *where, "--json"],
        ["--db", "sqlite:////nowhere/x.db", "--json", "instance", "list", *where],
    ):
        assert run_cli(*args).json == []


def test_d4_an_option_overrides_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARK_DB", "sqlite:////nowhere/x.db")
    monkeypatch.setenv("HARK_SERVER", "http://127.0.0.1:1")
    assert cli("instance", "list", "--json").json == []
    run_cli("instance", "list").error_line(1)  # HARK_SERVER overrides HARK_DB
    monkeypatch.delenv("HARK_SERVER")
    monkeypatch.setenv("HARK_DB", cli.store.url)
    schema = cli.store.options.get("schema")
    assert run_cli("instance", "list", "--json", *(["--schema", schema] if schema else [])).json == []


def test_d4_the_sql_is_that_of_the_store_of_the_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "shop_of_pg.py").write_text("from hark import Hark\napp = Hark('postgresql://127.0.0.1:1/none')\n")
    assert "CREATE SCHEMA" in run_cli("migrate", "--dump-sql", "--app", "shop_of_pg:app").out
    assert "--server" in run_cli("migrate", "--dump-sql", "--server", "http://127.0.0.1:1").error_line(2)


def test_d4_db_overrides_the_store_of_the_app(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    (tmp_path / "shop_of_db.py").write_text(
        "from hark import *\n"
        "app = Hark('sqlite:///own.db')\n"
        "class Nap(Machine):\n"
        "    @step\n"
        "    async def start(self, ctx):\n"
        "        return Done()\n"
        "app.register(Nap)\n"
    )
    id = cli("start", "Nap", "--app", "shop_of_db:app").out.strip()
    assert not (tmp_path / "own.db").exists()
    assert cli("instance", "show", id, "--json").json["definition"] == "Nap"
    monkeypatch.delitem(__import__("sys").modules, "shop_of_db")
    assert run_cli("start", "Nap", "--app", "shop_of_db").code == 0
    assert (tmp_path / "own.db").exists()


def test_text_from_outside_cannot_control_the_terminal(cli: Cli) -> None:
    cli.park(Arm("signal", "w", name="\x1b[2J[red]go"), key="\x1b]0;owned\x07")
    for words in (("instance", "list"), ("instance", "show", "i"), ("events",)):
        result = cli(*words).out
        assert "\x1b" not in result
        assert "\x07" not in result
    assert "\\x1b[2J[red]go" in cli("instance", "list").out
    id = cli.ask()
    assert cli("awakeable", "reject", id, "--error", "no\x1b[31mred").code == 0
    assert "no\\x1b[31mred" in cli("awakeable", "await", id).err
