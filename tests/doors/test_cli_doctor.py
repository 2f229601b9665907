"""D4: the doctor says what is wrong and what to do, on both stores."""

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.doors.cli.doctor import diagnose
from hark.model.decisions import Arm
from tests.doors.support_cli import Desk, call, place
from tests.promises.support_signals import Turns
from tests.support.inspect import query
from tests.support.stores import sqlite_file


class Waits(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


def found(services: Desk, code: int) -> dict[str, tuple[str, str]]:
    said = services("doctor", "--json")
    assert said.code == code, said
    return {one["check"]: (one["status"], one["text"]) for one in json.loads(said.out)}


def test_d4_an_empty_store_is_well(services: Desk) -> None:
    said = services("doctor")
    assert said.code == 0
    assert [line.split()[0] for line in said.out.splitlines()] == ["ok"] * 4 + ["warning"] + ["ok"] * 5
    assert "python" in said.out
    assert found(services, 0)["migrations"][1].startswith("up to date, version ")


def test_d4_a_secret_that_can_be_guessed_is_wrong(services: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret, status, code in (("0" * 32, "ok", 0), (f"{'0' * 32},hunter2", "error", 1)):
        monkeypatch.setenv("HARK_SECRET", secret)
        assert found(services, code)["secret"][0] == status


def test_d4_with_a_worker_that_has_the_code_all_is_well(services: Desk) -> None:
    app = Hark(services.store.url, **services.store.options)
    app.register(Waits)
    with app, app.worker():
        app.start(Waits).result()
        checks = found(services, 0)
        assert checks["workers"] == ("ok", "1 worker for 1 live instance")
        assert checks["code"][0] == "ok"
    checks = found(services, 1)
    assert checks["workers"][0] == "error"
    assert "Waits version 1 (1 instance)" in checks["code"][1]
    assert "hark worker --app" in checks["workers"][1]


def test_d4_steps_of_the_dead_late_timers_and_old_waits_are_found(services: Desk) -> None:
    async def leave(turns: Turns) -> None:
        await turns.start("m", "left-behind")
        await turns.claim("m")

    services.parked(Arm("timer", "w", "nap", timeout=1), id="late")
    services.do(leave)
    _age(services, "UPDATE instances SET due_at = due_at - 60000000 WHERE due_at IS NOT NULL")
    _age(services, "UPDATE waits SET since = since - 3 * 86400000000")
    checks = found(services, 1)
    assert checks["leases"] == (
        "error",
        "1 step of dead workers; start a worker, or reclaim them with `hark timeout check`",
    )
    assert checks["timers"][1].startswith("1 timer late, the first was due 1 min ago")
    assert checks["waits"] == ("ok", "the oldest wait is 3 d old: timer; see `hark instance why late`")
    fired = services("timeout", "check").out.splitlines()[-1]
    checks = found(services, 1)
    assert (checks["timers"][0], checks["waits"][1]) == ("ok", "no instance waits")
    # For one lease after a PostgreSQL has started, as it just has here, nobody is taken for dead.
    assert (fired, checks["leases"][0]) in [("2 fired.", "ok"), ("1 fired.", "error")][: 2 if _is_new(services) else 1]


def _is_new(services: Desk) -> bool:
    return services.store.name == "postgres"


def _age(services: Desk, statement: str) -> None:
    async def run(turns: Turns) -> None:
        await query(services.store, statement)

    services.do(run)


def test_d4_a_store_that_is_not_there_too_new_or_no_store_is_wrong(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert "no database" in found(Desk(store), 1)["store"][1]
    assert call("migrate", *place(store)).code == 0
    db = apsw.Connection(str(tmp_path / "hark.db"))
    db.execute("INSERT INTO migrations (version) VALUES (9999)")
    db.close()
    assert "Upgrade Hark" in found(Desk(store), 1)["store"][1]
    assert call("doctor", "--db", "postgresql://nobody@127.0.0.1:1/none").code == 1
    assert call("doctor", "--server", "http://127.0.0.1:1").code == 1


@pytest.mark.parametrize(
    ("fact", "check", "status"),
    [
        ({"database_problem": "too old"}, "store", "error"),
        ({"skew": -7.5}, "clock", "warning"),
        ({"abandoned": 2}, "leases", "warning"),
        ({"late": 1}, "timers", "error"),
        ({}, "workers", "ok"),
    ],
)
def test_d4_each_fact_has_its_judgement(fact: dict[str, Any], check: str, status: str) -> None:
    facts = {
        "schema": 5, "database": "SQLite 3.51.3", "database_problem": None, "durable": True, "skew": 0.0,
        "workers": 1, "dead_workers": 0, "abandoned": 0, "late": 0, "late_since": None, "oldest_wait": None,
        "living": 3, "runnable": 0, "codeless": [], **fact,
    }  # fmt: skip
    judged = {what: found for what, found, _ in diagnose(facts)}
    assert judged[check] == status
    assert set(judged.values()) - {"ok"} == ({status} - {"ok"})
