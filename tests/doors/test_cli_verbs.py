"""D4: every verb on the command line, on both stores: what it prints, and with which code it ends."""

import json
import shlex
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, step
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


def test_d4_start_prints_the_id_and_signal_what_became_of_it(desk: Desk) -> None:
    app = Hark(desk.store.url, **desk.store.options)
    app.register(Checkout)
    with app, app.worker():
        id = desk("start", "Checkout", "--key", "order:42", "--input", '{"order": 42}').out.strip()
        assert app.get("order:42").result().id == id
        assert app.get(id).result().state == {"order": 42}
        assert desk("signal", "order:42", "other").out == "stored\n"
        told = desk("signal", "order:42", "paid", "--payload", '{"amount": 100}', "--dedup-key", "evt-7", "--json")
        assert told.json["instance_id"] == id
        assert app.result(id, 30).result() == {"amount": 100}
        assert desk("signal", "order:42", "paid", "--dedup-key", "evt-7").out == "duplicate\n"
        assert "is done" in desk("signal", "order:42", "paid").line(3)


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
    desk: Desk, given: tuple[str, ...], stored: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"from": "file"}')
    desk.parked(Arm("signal", "w", name="go"))
    assert desk("signal", "i", "go", *given).out == "woke\n"

    async def inbox(turns: Turns) -> list[str]:
        return [row.payload for row in (await turns.claim("m")).inbox]

    assert [json.loads(payload) for payload in desk.do(inbox)] == [stored]


def test_d4_broadcast_prints_how_many_it_reached(desk: Desk) -> None:
    desk.parked(Arm("broadcast", "w", name="market-open"))
    assert desk("broadcast", "market-open", "--dedup-key", "monday").out == "1\n"
    assert desk("broadcast", "market-close").out == "0\n"
    assert desk("broadcast", "market-open", "--dedup-key", "monday", "--json").json == {"count": 1}


def test_d4_message_prints_who_got_it(desk: Desk) -> None:
    desk.parked(Arm("message", "w", name="payment", key="order-42"))
    assert "Nobody waits" in desk("message", "payment", "order-43").line(3)
    assert desk("message", "payment", "order-42", "--payload", "1").out == "i\n"


def test_d4_instances_are_listed_shown_cancelled_and_retried(desk: Desk) -> None:
    assert desk("instance", "list").out == "No instances.\n"
    assert desk("instance", "list", "--json").json == []
    desk.parked(Arm("signal", "w", name="go"), key="order:1")

    async def fail(turns: Turns) -> None:
        await turns.start("m", "broken")
        await turns.commit(await turns.claim("m"), Finish("failed", error="out of paper"))

    desk.do(fail)
    assert [one["id"] for one in desk("instance", "list", "--json").json] == ["broken", "i"]
    assert [one["id"] for one in desk("instance", "list", "--status", "failed", "--json").json] == ["broken"]
    listed = desk("instance", "list").out
    assert "order:1" in listed
    assert "awaiting_signal" in listed
    shown = desk("instance", "show", "order:1")
    assert "waits for        signal go" in shown.out
    assert desk("instance", "show", "i", "--json").json["waits"][0]["name"] == "go"
    assert "out of paper" in desk("instance", "show", "broken").out
    assert "no instance 'nobody'" in desk("instance", "show", "nobody").line(3)
    assert desk("instance", "cancel", "order:1", "--reason", "no stock").out == "i is cancelled.\n"
    desk("instance", "cancel", "i").line(4)
    assert desk("instance", "retry", "broken", "--json").json["status"] == "runnable"
    desk("instance", "retry", "i").line(4)
    desk("instance", "cancel", "nobody").line(3)


def test_d4_a_list_that_may_go_on_says_how(desk: Desk) -> None:
    for n in range(3):
        desk.parked(Arm("signal", f"w{n}", name="go"), id=f"i{n}")
    first = desk("instance", "list", "--limit", "2")
    assert first.out.splitlines()[-1] == "There may be more: hark instance list --after i1"
    assert [one["id"] for one in desk("instance", "list", "--after", "i1", "--json").json] == ["i0"]


def test_d7_why_says_what_to_type_and_it_helps(desk: Desk) -> None:
    desk.parked(Arm("signal", "w", name="paid", timeout=3600 * 1_000_000), key="order:42")
    desk("signal", "order:42", "payed")
    desk("signal", "order:24", "paid")
    said = desk("instance", "why", "order:42").out
    for words in ("It waits for signal 'paid'.", "gives up in 1 h", "'payed' is in its inbox", "sent to 'order:24'"):
        assert words in said
    [command] = [line.strip() for line in said.splitlines() if line.startswith("    hark ")]
    assert desk(*shlex.split(command)[1:]).out == "woke\n"
    found = desk("instance", "why", "i", "--json").json
    assert (found["status"], found["obstacles"][0]["reason"]) == ("runnable", "no_worker")
    desk("instance", "why", "nobody").line(3)


def test_d4_events_are_printed_newest_last(desk: Desk) -> None:
    assert desk("events").out == "No events.\n"
    desk.parked(Arm("signal", "w", name="go"), key="order:1")
    desk.parked(Arm("signal", "w2", name="go"), id="other")
    desk("signal", "order:1", "go")
    assert [event["type"] for event in desk("events", "--job", "order:1", "--json").json][-1] == "signal"
    assert {event["instance_id"] for event in desk("events", "--json").json} == {"i", "other"}
    assert len(desk("events", "--limit", "2", "--json").json) == 2
    printed = desk("events", "--job", "i").out.splitlines()
    assert "signal" in printed[-1]
    assert '"name":"go"' in printed[-1]
    desk("events", "--job", "nobody").line(3)


def test_d4_timeout_check_fires_what_is_due_and_says_so(desk: Desk) -> None:
    assert desk("timeout", "check").out == "Nothing was due.\n"
    assert desk("timeout", "check", "--json").json == []
    desk.asked(timeout=0.000001)
    desk.parked(Arm("timer", "w", "nap", timeout=1))
    said = desk("timeout", "check").out.splitlines()
    assert said[-1] == "2 fired."
    assert desk("awakeable", "show", "prom_1abc123", "--json").json["status"] == "TIMEOUT"
    assert desk("timeout", "check").out == "Nothing was due.\n"


def test_d4_shared_options_are_taken_before_between_and_after(desk: Desk) -> None:
    where = place(desk.store)
    for args in (
        [*where, "--json", "instance", "list"],
        ["instance", *where, "--json", "list"],
        ["instance", "list", *where, "--json"],
        ["--db", "sqlite:////nowhere/x.db", "--json", "instance", "list", *where],
    ):
        assert call(*args).json == []


def test_d4_the_environment_names_the_store_and_a_flag_wins(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARK_DB", "sqlite:////nowhere/x.db")
    monkeypatch.setenv("HARK_SERVER", "http://127.0.0.1:1")
    assert desk("instance", "list", "--json").json == []
    call("instance", "list").line(1)  # of both in the environment, the server
    monkeypatch.delenv("HARK_SERVER")
    monkeypatch.setenv("HARK_DB", desk.store.url)
    schema = desk.store.options.get("schema")
    assert call("instance", "list", "--json", *(["--schema", schema] if schema else [])).json == []


def test_d4_db_wins_over_the_apps_own(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    id = desk("start", "Nap", "--app", "shop_of_db:app").out.strip()
    assert not (tmp_path / "own.db").exists()
    assert desk("instance", "show", id, "--json").json["definition"] == "Nap"
    monkeypatch.delitem(__import__("sys").modules, "shop_of_db")
    assert call("start", "Nap", "--app", "shop_of_db").code == 0
    assert (tmp_path / "own.db").exists()


def test_what_others_wrote_cannot_steer_the_terminal(desk: Desk) -> None:
    desk.parked(Arm("signal", "w", name="\x1b[2J[red]go"), key="\x1b]0;owned\x07")
    for words in (("instance", "list"), ("instance", "show", "i"), ("events",)):
        said = desk(*words).out
        assert "\x1b" not in said
        assert "\x07" not in said
    assert "\\x1b[2J[red]go" in desk("instance", "list").out
