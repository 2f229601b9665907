"""D4: every verb on the command line, on both stores: what it prints, and with which code it ends."""

import json
import shlex
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.doors.cli.output import duration
from hark.model.decisions import Arm, Finish
from tests.doors.support_cli import Desk, call, place
from tests.promises.support_signals import Turns


class Checkout(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


def test_d4_start_prints_the_id_and_signal_what_became_of_it(services: Desk) -> None:
    app = Hark(services.store.url, **services.store.options)
    app.register(Checkout)
    with app, app.worker():
        id = services("start", "Checkout", "--key", "order:42", "--input", '{"order": 42}').out.strip()
        assert app.get("order:42").result().id == id
        assert app.get(id).result().state == {"order": 42}
        assert services("signal", "order:42", "other").out == "stored\n"
        told = services("signal", "order:42", "paid", "--payload", '{"amount": 100}', "--dedup-key", "evt-7", "--json")
        assert told.json["instance_id"] == id
        assert app.result(id, 30).result() == {"amount": 100}
        assert services("signal", "order:42", "paid", "--dedup-key", "evt-7").out == "duplicate\n"
        assert "is done" in services("signal", "order:42", "paid").line(3)


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
    services: Desk, given: tuple[str, ...], stored: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"from": "file"}')
    services.parked(Arm("signal", "w", name="go"))
    assert services("signal", "i", "go", *given).out == "woke\n"

    async def inbox(turns: Turns) -> list[str]:
        return [row.payload for row in (await turns.claim("m")).inbox]

    assert [json.loads(payload) for payload in services.do(inbox)] == [stored]


def test_d4_broadcast_prints_how_many_it_reached(services: Desk) -> None:
    services.parked(Arm("broadcast", "w", name="market-open"))
    assert services("broadcast", "market-open", "--dedup-key", "monday").out == "1\n"
    assert services("broadcast", "market-close").out == "0\n"
    assert services("broadcast", "market-open", "--dedup-key", "monday", "--json").json == {"count": 1}


def test_d4_message_prints_who_got_it(services: Desk) -> None:
    services.parked(Arm("message", "w", name="payment", key="order-42"))
    assert "No instance waits" in services("message", "payment", "order-43").line(3)
    assert services("message", "payment", "order-42", "--payload", "1").out == "i\n"


def test_d4_instances_are_listed_shown_cancelled_and_retried(services: Desk) -> None:
    assert services("instance", "list").out == "No instances.\n"
    assert services("instance", "list", "--json").json == []
    services.parked(Arm("signal", "w", name="go"), key="order:1")

    async def fail(turns: Turns) -> None:
        await turns.start("m", "broken")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    services.do(fail)
    assert [one["id"] for one in services("instance", "list", "--json").json] == ["broken", "i"]
    assert [one["id"] for one in services("instance", "list", "--status", "failed", "--json").json] == ["broken"]
    listed = services("instance", "list").out
    assert "order:1" in listed
    assert "awaiting_signal" in listed
    shown = services("instance", "show", "order:1")
    assert "waits for        signal go" in shown.out
    assert services("instance", "show", "i", "--json").json["waits"][0]["name"] == "go"
    assert "out of paper" in services("instance", "show", "broken").out
    assert "no instance 'nobody'" in services("instance", "show", "nobody").line(3)
    assert services("instance", "cancel", "order:1", "--reason", "no stock").out == "i is cancelled.\n"
    services("instance", "cancel", "i").line(4)
    assert services("instance", "retry", "broken", "--json").json["status"] == "runnable"
    services("instance", "retry", "i").line(4)
    services("instance", "cancel", "nobody").line(3)


def test_d4_a_list_that_may_go_on_says_how(services: Desk) -> None:
    for n in range(3):
        services.parked(Arm("signal", f"w{n}", name="go"), id=f"i{n}")
    first = services("instance", "list", "--limit", "2")
    assert first.out.splitlines()[-1] == "There may be more: hark instance list --after i1"
    assert [one["id"] for one in services("instance", "list", "--after", "i1", "--json").json] == ["i0"]


def test_d7_why_says_what_to_type_and_it_helps(services: Desk) -> None:
    services.parked(Arm("signal", "w", name="paid", timeout=3600 * 1_000_000), key="order:42")
    services("signal", "order:42", "payed")
    services("signal", "order:24", "paid")
    said = services("instance", "why", "order:42").out
    for words in ("It waits for signal 'paid'.", "times out in 1 h", "'payed' is in its inbox", "sent to 'order:24'"):
        assert words in said
    [command] = [line.strip() for line in said.splitlines() if line.startswith("    hark ")]
    assert services(*shlex.split(command)[1:]).out == "woke\n"
    found = services("instance", "why", "i", "--json").json
    assert (found["status"], found["blockers"][0]["reason"]) == ("runnable", "no_worker")
    services("instance", "why", "nobody").line(3)


def test_d4_events_are_printed_newest_last(services: Desk) -> None:
    assert services("events").out == "No events.\n"
    services.parked(Arm("signal", "w", name="go"), key="order:1")
    services.parked(Arm("signal", "w2", name="go"), id="other")
    services("signal", "order:1", "go")
    assert [event["type"] for event in services("events", "--job", "order:1", "--json").json][-1] == "signal"
    assert {event["instance_id"] for event in services("events", "--json").json} == {"i", "other"}
    assert len(services("events", "--limit", "2", "--json").json) == 2
    printed = services("events", "--job", "i").out.splitlines()
    assert "signal" in printed[-1]
    assert '"name":"go"' in printed[-1]
    services("events", "--job", "nobody").line(3)


def test_d4_timeout_check_fires_what_is_due_and_says_so(services: Desk) -> None:
    assert services("timeout", "check").out == "Nothing was due.\n"
    assert services("timeout", "check", "--json").json == []
    services.asked(timeout=0.000001)
    services.parked(Arm("timer", "w", "nap", timeout=1))
    said = services("timeout", "check").out.splitlines()
    assert said[-1] == "2 fired."
    assert services("awakeable", "show", "prom_1abc123", "--json").json["status"] == "TIMEOUT"
    assert services("timeout", "check").out == "Nothing was due.\n"


def test_d4_shared_options_are_taken_before_between_and_after(services: Desk) -> None:
    where = place(services.store)
    for args in (
        [*where, "--json", "instance", "list"],
        ["instance", *where, "--json", "list"],
        ["instance", "list", *where, "--json"],
        ["--db", "sqlite:////nowhere/x.db", "--json", "instance", "list", *where],
    ):
        assert call(*args).json == []


def test_d4_the_environment_names_the_store_and_a_flag_wins(services: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARK_DB", "sqlite:////nowhere/x.db")
    monkeypatch.setenv("HARK_SERVER", "http://127.0.0.1:1")
    assert services("instance", "list", "--json").json == []
    call("instance", "list").line(1)  # of both in the environment, the server
    monkeypatch.delenv("HARK_SERVER")
    monkeypatch.setenv("HARK_DB", services.store.url)
    schema = services.store.options.get("schema")
    assert call("instance", "list", "--json", *(["--schema", schema] if schema else [])).json == []


def test_d4_db_wins_over_the_apps_own(services: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    id = services("start", "Nap", "--app", "shop_of_db:app").out.strip()
    assert not (tmp_path / "own.db").exists()
    assert services("instance", "show", id, "--json").json["definition"] == "Nap"
    monkeypatch.delitem(__import__("sys").modules, "shop_of_db")
    assert call("start", "Nap", "--app", "shop_of_db").code == 0
    assert (tmp_path / "own.db").exists()


def test_what_others_wrote_cannot_steer_the_terminal(services: Desk) -> None:
    services.parked(Arm("signal", "w", name="\x1b[2J[red]go"), key="\x1b]0;owned\x07")
    for words in (("instance", "list"), ("instance", "show", "i"), ("events",)):
        said = services(*words).out
        assert "\x1b" not in said
        assert "\x07" not in said
    assert "\\x1b[2J[red]go" in services("instance", "list").out


def test_d4_durations_use_the_largest_unit_they_round_to() -> None:
    """A deadline an hour ahead reads "1 h" for half a minute, and never "60 min"."""
    texts = [duration(seconds) for seconds in (0.4, 59.4, 59.6, 3569, 3599, 3600, 86_399, 7 * 86_400 - 3)]
    assert texts == ["0 s", "59 s", "1 min", "59 min", "1 h", "1 h", "1 d", "7 d"]
