"""D4: `hark doctor` reports problems and what to do about them, on both stores."""

import asyncio
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.app.door_access import DoorAccess
from hark.doors.cli.doctor import diagnose
from hark.model.decisions import Arm, Finish
from hark.model.lanes import JOB, how_to_run, what_runs
from tests.doors.support_cli import SECOND, Cli, run_cli, store_options
from tests.promises.support_signals import Turns
from tests.support.inspect import query
from tests.support.stores import Store, sqlite_file


class Waits(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


def found(cli: Cli, code: int) -> dict[str, tuple[str, str]]:
    result = cli("doctor", "--json")
    assert result.code == code, result
    return {one["check"]: (one["status"], one["text"]) for one in json.loads(result.out)}


def test_d4_an_empty_store_has_no_errors(cli: Cli) -> None:
    result = cli("doctor")
    assert result.code == 0
    assert [line.split()[0] for line in result.out.splitlines()] == ["ok"] * 4 + ["warning"] + ["ok"] * 9
    assert "python" in result.out
    assert found(cli, 0)["migrations"][1].startswith("up to date, version ")


def test_d4_a_secret_that_can_be_guessed_is_an_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for secret, status, code in (("0" * 32, "ok", 0), (f"{'0' * 32},hunter2", "error", 1)):
        monkeypatch.setenv("HARK_SECRET", secret)
        assert found(cli, code)["secret"][0] == status


def test_d4_live_instances_need_a_worker_with_their_code(cli: Cli) -> None:
    app = Hark(cli.store.url, **cli.store.options)
    app.register(Waits)
    with app, app.worker():
        app.start(Waits).result()
        checks = found(cli, 0)
        assert checks["workers"][0] == "ok"
        assert checks["workers"][1].startswith("1 worker for 1 live instance, last heard of ")
        assert checks["code"][0] == "ok"
    checks = found(cli, 1)
    assert checks["workers"][0] == "error"
    assert "Waits version 1 (1 instance)" in checks["code"][1]
    assert "hark worker --app" in checks["workers"][1]


def test_d4_steps_of_dead_workers_late_timers_and_old_waits_are_reported(cli: Cli) -> None:
    async def leave(turns: Turns) -> None:
        await turns.start("m", "left-behind")
        await turns.claim("m")

    cli.park(Arm("timer", "w", "nap", timeout=1), id="late")
    cli.run_turns(leave)
    _age(cli, "UPDATE instances SET due_at = due_at - 60000000 WHERE due_at IS NOT NULL")
    _age(cli, "UPDATE waits SET since = since - 3 * 86400000000")
    checks = found(cli, 1)
    assert checks["leases"] == (
        "error",
        "1 step of dead workers; start a worker, or reclaim them with `hark timeout check`",
    )
    assert checks["timers"][1].startswith("1 timer late, the first was due 1 min ago")
    assert checks["waits"] == ("ok", "the oldest wait is 3 d old: timer; see `hark instance why late`")
    fired = cli("timeout", "check").out.splitlines()[-1]
    checks = found(cli, 1)
    assert (checks["timers"][0], checks["waits"][1]) == ("ok", "no instance waits")
    # For one lease after PostgreSQL has started, as here, no worker counts as dead.
    assert (fired, checks["leases"][0]) in [("2 fired.", "ok"), ("1 fired.", "error")][: 2 if _is_new(cli) else 1]


def test_x7_failed_instances_are_counted(cli: Cli) -> None:
    async def fail(turns: Turns) -> None:
        for id in ("first", "second"):
            await turns.start("m", id)
            await turns.commit(await turns.claim("m"), Finish("failed", error="as asked"))

    cli.run_turns(fail)
    status, text = found(cli, 0)["failed"]
    assert status == "warning"
    assert text.startswith("2 failed instances, the first failed ")
    assert "hark instance list --status failed" in text


def test_d4_schedules_need_a_worker_with_the_code_of_what_they_start(cli: Cli) -> None:
    async def register(turns: Turns) -> None:
        """`run_turns` has registered `m`."""

    cli.run_turns(register)
    assert cli("schedule", "create", "s", "m", "--every", "3600").code == 0
    checks = found(cli, 1)
    assert "no worker for 0 live instances and 1 schedule" in checks["workers"][1]
    assert checks["schedules"] == (
        "warning",
        "no worker has the code of m version 1 (1 schedule); start one that registers it, or delete the schedules",
    )
    _age(cli, "UPDATE triggers SET due_at = due_at - 7200000000 RETURNING id")
    status, text = found(cli, 1)["schedules"]
    assert (status, text.startswith("1 schedule late, the first was due 1 h ago")) == ("error", True)
    cli("schedule", "pause", "s")
    assert found(cli, 0)["schedules"] == ("ok", "no schedule, or all are paused")


def _is_new(cli: Cli) -> bool:
    return cli.store.name == "postgres"


def _age(cli: Cli, statement: str) -> None:
    async def run(turns: Turns) -> None:
        await query(cli.store, statement)

    cli.run_turns(run)


def test_d4_a_missing_store_a_newer_one_and_one_that_does_not_respond_are_errors(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert "no database" in found(Cli(store), 1)["store"][1]
    assert run_cli("migrate", *store_options(store)).code == 0
    db = apsw.Connection(str(tmp_path / "hark.db"))
    db.execute("INSERT INTO migrations (version) VALUES (9999)")
    db.close()
    assert "Upgrade Hark" in found(Cli(store), 1)["store"][1]
    assert run_cli("doctor", "--db", "postgresql://missing@127.0.0.1:1/none").code == 1
    assert run_cli("doctor", "--server", "http://127.0.0.1:1").code == 1


@pytest.mark.parametrize(
    ("fact", "check", "status"),
    [
        ({"database_problem": "too old"}, "store", "error"),
        ({"skew": -7.5}, "clock", "warning"),
        ({"abandoned": 2}, "leases", "warning"),
        ({"late": 1}, "timers", "error"),
        ({"schedules": 2, "next_tick": datetime.now(UTC)}, "schedules", "ok"),
        ({"schedules": 2, "next_tick": datetime.now(UTC), "late_schedules": 1}, "schedules", "error"),
        ({"schedules": 2, "next_tick": datetime.now(UTC), "refused_schedules": 1}, "schedules", "warning"),
        ({}, "workers", "ok"),
        ({"silent_workers": 1, "heard_of": 20.0, "silent_until": 10.0}, "workers", "warning"),
    ],
)
def test_d4_each_fact_gives_its_status(fact: dict[str, Any], check: str, status: str) -> None:
    judged = {what: found for what, found, _ in diagnose(_facts(**fact))}
    assert judged[check] == status
    assert set(judged.values()) - {"ok"} == ({status} - {"ok"})


@pytest.mark.parametrize("lanes", [(JOB,), (JOB, "m@1"), (JOB, "task:agent:reviewer")])
def test_d4_one_command_starts_a_worker_for_code_and_what_all_workers_run(lanes: tuple[str, ...]) -> None:
    missing = [{"missing": what_runs(lane), "instances": 1, "start": how_to_run(lane)} for lane in lanes]
    checks = {what: text for what, _, text in diagnose(_facts(workers=0, codeless=missing))}
    assert (checks["workers"].count("hark worker"), checks["code"].count("hark worker")) == (1, 1)


def _facts(**fact: Any) -> dict[str, Any]:
    return {
        "schema": 5, "database": "SQLite 3.51.3", "database_problem": None, "durable": True, "skew": 0.0,
        "workers": 1, "dead_workers": 0, "heard_of": 3.0, "silent_workers": 0, "silent_until": None,
        "abandoned": 0, "late": 0, "late_since": None, "oldest_wait": None,
        "living": 3, "runnable": 0, "codeless": [], "schedules": 0, "next_tick": None, "late_schedules": 0,
        "refused_schedules": 0, "codeless_schedules": [], "held": [], "failed": 0, "failed_since": None,
        "two_codes": [], **fact,
    }  # fmt: skip


async def test_d4_a_task_that_was_fetched_over_http_is_not_a_worker(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app:
        await query(
            store,
            "INSERT INTO workers (id, until, definitions, started_at) "
            "VALUES ('outside:1', 9000000000000000, 'task:resize', 0) RETURNING id",
        )
        await query(
            store,
            "INSERT INTO workers (id, until, definitions, started_at) "
            "VALUES ('mine', 9000000000000000, 'job', 1) RETURNING id",
        )
        assert (await DoorAccess(app).health())["workers"] == 1
        assert [worker.id for worker in await app.workers()] == ["mine", "outside:1"]


@pytest.mark.parametrize(("ago", "status"), [(60, "ok"), (2000, "warning")])
async def test_d4_a_worker_that_may_be_dead_is_not_called_healthy(store: Store, ago: int, status: str) -> None:
    """After a kill -9: its lease is valid, and nothing tells whether it lives. `doctor` and `why` say how old the news
    is."""

    class Long(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            await asyncio.Event().wait()
            return Done()

    app = Hark(store.url, **store.options, lease=3000)
    app.register(Long)
    async with app, app.worker(grace=0):
        long = await app.start(Long)
        await long.wait_for("executing", timeout=60)
        await query(store, f"UPDATE workers SET until = until - {ago * SECOND} RETURNING id")
        checks = {check.name: check for check in diagnose(await DoorAccess(app).health())}
        [blocker] = (await app.why(long)).blockers
    assert checks["workers"].status == status
    if status == "ok":
        assert "1 worker for 1 live instance, last heard of 1 min ago" in checks["workers"].text
        assert re.search(
            r"last heard of \d\d s ago; if it has died since, others take over in 29\d\d s\.", blocker.text
        )
    else:
        assert "1 of 1 worker not heard of for 33 min; if dead, other workers take over in " in checks["workers"].text
        assert re.search(r"not been heard of for 20\d\d s and may be dead: .* in \d+ s\.", blocker.text)
