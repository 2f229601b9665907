"""T1: schedules over HTTP and on the command line, on the store and through a server."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from tests.doors.support_cli import Cli, CliResult, run_cli, store_options
from tests.doors.test_cli_server import SHOP
from tests.doors.test_cli_server import serving as serving_process
from tests.promises.support_signals import Turns
from tests.support.http import app_on, serving
from tests.support.stores import Store, sqlite_file


async def test_t1_schedules_over_http(store: Store) -> None:
    app = app_on(store)
    async with serving(app, worker=False) as client:
        assert (await client.get("/schedules")).json() == {"items": [], "next": None}
        body = {"definition": "Order", "cron": "0 9 * * MON", "timezone": "Europe/Berlin", "input": {"order": 1}}
        made = await client.put("/schedules/a%2Fb", json=body)
        assert made.status_code == 200
        schedule = made.json()
        assert (schedule["name"], schedule["definition"], schedule["cron"]) == ("a/b", "Order", "0 9 * * MON")
        assert (schedule["every"], schedule["overlap"], schedule["catch_up"], schedule["paused"]) == (
            None,
            "skip",
            1,
            False,
        )
        assert schedule["next_at"].endswith("Z")
        assert (await client.get("/schedules/a%2Fb")).json() == schedule
        assert (await client.put("/schedules/c", json={"definition": "Order", "every": 3600})).json()["every"] == 3600
        page = (await client.get("/schedules", params={"limit": 1})).json()
        assert page == {"items": [schedule], "next": "a/b"}
        rest = (await client.get("/schedules", params={"after": page["next"]})).json()
        assert [item["name"] for item in rest["items"]] == ["c"]
        paused = (await client.post("/schedules/c/pause")).json()
        assert (paused["paused"], paused["next_at"]) == (True, None)
        assert (await client.post("/schedules/c/resume")).json()["paused"] is False
        triggered = await client.post("/schedules/a%2Fb/trigger")
        assert triggered.status_code == 201
        assert triggered.json()["state"] == {"order": 1}
        assert triggered.headers["location"].endswith(f"/instances/{triggered.json()['id']}")
        assert (await client.get("/schedules/a%2Fb")).json()["last_id"] == triggered.json()["id"]
        gone = await client.delete("/schedules/c")
        assert (gone.status_code, gone.json()) == (200, {"deleted": "c"})


async def test_t1_what_http_refuses_of_a_schedule(store: Store) -> None:
    async with serving(app_on(store), worker=False) as client:
        for wrong, status in (
            ({"definition": "Order", "cron": "61 * * * *"}, 422),
            ({"definition": "Order", "every": 60, "timezone": "Mars"}, 422),
            ({"definition": "Order"}, 422),
            ({"definition": "Order", "every": 60, "overlap": "maybe"}, 422),
            ({"definition": "Order", "every": 60, "catch_up": 1001}, 422),
            ({"definition": "Order", "every": 60, "nonsense": 1}, 422),
            ({"definition": "nothing", "every": 60}, 404),
        ):
            assert (await client.put("/schedules/s", json=wrong)).status_code == status, wrong
        assert (await client.put("/schedules/s", content=b"{")).status_code == 400
        for method, path in (
            ("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/trigger"),
        ):  # fmt: skip
            answer = await client.request(method, f"/schedules/s{path}")
            assert (answer.status_code, answer.json()["type"]) == (404, "NotFound")
        body = {"definition": "Order", "every": 60, "correlation_key": "k"}
        assert (await client.put("/schedules/s", json=body)).status_code == 200
        first = (await client.post("/schedules/s/trigger")).json()["id"]
        again = await client.post("/schedules/s/trigger")
        assert (again.status_code, again.json()["holder"]) == (409, first)


def _exercise(hark: Any, definition: str) -> None:
    """Every command of `hark schedule`."""
    assert hark("schedule", "list").out == "No schedules. `hark schedule create` makes one.\n"
    made: CliResult = hark(
        "schedule", "create", "report", definition, "--cron", "0 9 * * MON", "--timezone", "Europe/Berlin",
        "--input", '{"n": 1}', "--overlap", "queue", "--catch-up", "3", "--key", "k",
    )  # fmt: skip
    assert made.code == 0, made
    assert made.out.startswith(f"report starts {definition} next in ")
    [schedule] = hark("schedule", "list", "--json").json
    assert (schedule["cron"], schedule["timezone"], schedule["overlap"]) == ("0 9 * * MON", "Europe/Berlin", "queue")
    assert (schedule["catch_up"], schedule["correlation_key"], schedule["missed"]) == (3, "k", 0)
    assert datetime.fromisoformat(schedule["next_at"]).weekday() == 0
    assert hark("schedule", "create", "often", definition, "--every", "1.5h", "--json").json["every"] == 5400
    hark("schedule", "create", "seldom", definition, "--every", "1234567.5")
    listed = hark("schedule", "list").out
    assert "0 9 * * MON Europe/Berlin" in listed
    assert "every 5400 s" in listed
    assert "every 1234567.5 s" in listed
    hark("schedule", "delete", "seldom")
    assert hark("schedule", "pause", "often").out == "often is paused.\n"
    assert "paused" in hark("schedule", "list").out
    assert hark("schedule", "resume", "often", "--json").json["paused"] is False
    id = hark("schedule", "trigger", "report").out.strip()
    assert hark("instance", "show", id, "--json").json["state"] == {"n": 1}
    assert hark("schedule", "trigger", "often", "--json").json["id"] != id
    hark("schedule", "trigger", "report").error_line(4)
    assert hark("schedule", "delete", "often").out == "often is deleted.\n"
    assert hark("schedule", "delete", "report", "--json").json == {"name": "report", "deleted": True}
    for verb in ("pause", "resume", "trigger", "delete"):
        assert "no schedule 'often'" in hark("schedule", verb, "often").error_line(3)
    hark("schedule", "create", "s", definition, "--every", "soon").error_line(2)
    hark("schedule", "create", "s", definition, "--cron", "* *").error_line(2)
    hark("schedule", "create", "s", definition, "--every", "60", "--overlap", "maybe").error_line(2)
    hark("schedule", "create", "s", definition).error_line(2)
    hark("schedule", "create", "s", "nothing", "--every", "60").error_line(3)


def test_t1_schedules_on_the_command_line(cli: Cli) -> None:
    async def register(turns: Turns) -> None:
        """`run_turns` has registered `m`."""

    cli.run_turns(register)
    _exercise(cli, "m")


def test_t1_schedules_on_the_command_line_through_a_server(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    store = sqlite_file(tmp_path)
    with serving_process("--app", "shop:app", *store_options(store), cwd=tmp_path) as url:
        _exercise(lambda *words: run_cli(*words, "--server", url), "Checkout")
