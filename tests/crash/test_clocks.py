"""Wrong clocks, and clocks that are set while an instance sleeps or a worker runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.store import postgres
from hark.testing import Harness
from tests.crash.machines import Gated
from tests.crash.processes import Workers, leases
from tests.support.inspect import query, until
from tests.support.stores import Store

HOUR = 3600
SetClock = Callable[[float], None]


class Sleeper(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(then=self.woken, timeout=ctx.state["seconds"])

    @step
    async def woken(self, ctx: Context) -> Done:
        return Done(ctx.timed_out)


class Clock:
    """This process's clock, off by the given number of seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.off = 0.0
        right = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: right() + int(self.off * 1e9))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def firing(store: Store, id: str) -> list[tuple[float, ...]]:
    """How long after its park each timer of an instance fired, by the database's clock."""
    return await query(
        store,
        "SELECT fired.at - parked.at FROM events fired, events parked WHERE fired.type = 'timeout' "
        f"AND parked.type = 'await' AND fired.instance_id = '{id}' AND parked.instance_id = '{id}'",
    )


@pytest.mark.parametrize("off", [HOUR, -HOUR], ids=["an hour fast", "an hour slow"])
async def test_s6_fault_40_timers_follow_the_database_whatever_the_workers_clock_says(
    pg_store: Store, clock: Clock, off: float
) -> None:
    clock.off = off
    app = Hark(pg_store.url, **pg_store.options)
    app.register(Sleeper)
    async with app, app.worker():
        before = datetime.now(UTC)
        handle = await app.start(Sleeper, {"seconds": 0.3})
        assert await handle.result(timeout=60) is True
        [(waited,)] = await firing(pg_store, handle.id)
        assert 300_000 <= waited < HOUR * 1_000_000
        instance = await handle.get()
        assert abs((instance.created_at - before).total_seconds()) < HOUR / 2


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_s6_fault_41_a_workers_clock_that_is_set_fires_nothing_early_late_or_twice(
    pg_store: Store, tmp_path: Path, clock: Clock, jump: float
) -> None:
    """Its only slot is taken, so no turn updates its idea of the database time."""
    workers = Workers(pg_store, tmp_path, lease=1.0)
    app, other = Hark(pg_store.url, **workers.options), Hark(pg_store.url, **pg_store.options)
    app.register(Gated, Sleeper)
    async with app, other, app.worker({"default": 1}):
        sleeper = await app.start(Sleeper, {"seconds": 2})
        await until(lambda: app.waits(kind="timer"), "the timer")
        gated = await app.start(Gated)
        await workers.until_traced("start 0")
        clock.off = jump
        await until(lambda: firing(pg_store, sleeper.id), "the timer to fire")
        workers.open_gate()
        assert await sleeper.result(timeout=60) is True
        await gated.result(timeout=60)
        [(waited,)] = await firing(pg_store, sleeper.id)
        assert 2_000_000 <= waited < HOUR * 1_000_000


async def test_s6_fault_41_a_database_clock_that_jumps_back_fires_nothing_early_and_nothing_twice(store: Store) -> None:
    async with Harness(Sleeper, url=store.url, **store.options) as app:
        sleeper = await app.start(Sleeper, {"seconds": 60})
        assert await app.drain() == {"steps": 1, "await": 1}
        app.clock.now -= HOUR * 1_000_000
        await app.sweep()
        assert await app.drain() == {"steps": 0}
        await app.advance(HOUR + 59)
        assert await app.drain() == {"steps": 0}
        await app.advance(1)
        app.clock.now -= HOUR * 1_000_000  # it has fired: going back does not undo it
        assert await app.drain() == {"steps": 1, "done": 1}
        await app.advance(2 * HOUR)
        assert await app.drain() == {"steps": 0}
        assert await sleeper.result(timeout=60) is True
    assert await query(store, "SELECT count(*) FROM inbox WHERE kind = 'timer'") == [(1,)]


# -- the database's clock is set while a worker runs --------------------------------------------------


@pytest.fixture
def set_database_clock(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets the clock of the store's database by so many seconds; that of SQLite is the machine's."""
    right = {name: getattr(postgres, name) for name in ("_NOW", "_BEGIN")}

    def jump(seconds: float) -> None:
        if store.name == "sqlite":
            clock.off = seconds
            return
        for name, text in right.items():
            monkeypatch.setattr(postgres, name, text.replace("::bigint", f"::bigint + {int(seconds * 1e6)}", 1))

    return jump


async def find_dead(app: Hark) -> dict[str, int | None]:
    """Look for dead workers as the poll does, now."""
    loop = app._clerk.loop.running
    assert loop is not None
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(app._clerk.peers.find_dead(), loop))


class Impatient(threading.Event):
    """What the lease thread waits for between two renewals."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.1)


@asynccontextmanager
async def busy(workers: Workers, *, renews_often: bool = False) -> AsyncIterator[tuple[Hark, str]]:
    """An app whose worker executes a step that waits at the gate; the id of that worker."""
    app = Hark(workers.store.url, **workers.options)
    app.register(Gated)
    worker = app.worker({"default": 1}, grace=60)
    if renews_often:
        worker._lease._stopped = Impatient()
    async with app, worker:
        await app.start(Gated, id="gated")
        await workers.until_traced("start 0")
        yield app, worker.owner


@pytest.mark.parametrize("started", ["before", "after"])
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_m5_a_database_clock_that_jumps_takes_nothing_from_a_live_worker(
    store: Store, tmp_path: Path, set_database_clock: SetClock, jump: float, started: str
) -> None:
    """The other process, started before the jump or after it, looks before the worker can renew its lease."""
    workers = Workers(store, tmp_path, lease=30.0)
    async with busy(workers) as (app, owner):
        other = Hark(store.url, **workers.options)
        if started == "after":
            set_database_clock(jump)
        async with other, other.worker({"default": 1}):
            if started == "before":
                assert not await find_dead(other)
                set_database_clock(jump)
            for _ in range(3):
                assert owner not in await find_dead(other)
            workers.open_gate()
            await app.result("gated", timeout=60)
    assert [life.what for life in workers.trace()] == ["start 0", "end 0"]
    assert await query(store, "SELECT attempt, crashes FROM instances") == [(0, 0)]


@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
async def test_m5_a_worker_that_dies_around_a_jump_is_found_after_about_a_lease(
    store: Store, tmp_path: Path, set_database_clock: SetClock, jump: float
) -> None:
    """Its lease ends in an hour, by a clock that was set back; its work must not wait for that."""
    with Workers(store, tmp_path, lease=1.5) as workers:
        victim = workers.start()
        app = Hark(store.url, **workers.options)
        app.register(Gated)
        async with app:
            await app.start(Gated, id="gated")
            await workers.until_traced("start 0")
            victim.kill()
            victim.wait()
            set_database_clock(jump)
            async with app.worker({"default": 1}):
                await workers.until_traced("start 1")
                workers.open_gate()
                await app.result("gated", timeout=60)
    assert await query(store, "SELECT count(*) FROM events WHERE type = 'reclaimed'") == [(1,)]


async def test_m5_a_live_worker_keeps_its_work_while_the_clock_is_set_again_and_again(
    store: Store, tmp_path: Path, set_database_clock: SetClock
) -> None:
    workers = Workers(store, tmp_path, lease=30.0)
    async with busy(workers, renews_often=True) as (app, owner), app_with_worker(workers) as other:
        for jump in (HOUR, -HOUR, 0, 2 * HOUR, 40, -40):
            set_database_clock(jump)
            before = await leases(store)
            await until(lambda before=before: renewed(store, before, owner), "the worker to renew its lease")
            assert owner not in await find_dead(other)
        workers.open_gate()
        await app.result("gated", timeout=60)
    assert [life.what for life in workers.trace()] == ["start 0", "end 0"]


async def renewed(store: Store, before: dict[str, int], owner: str) -> bool:
    return (await leases(store))[owner] != before[owner]


@asynccontextmanager
async def app_with_worker(workers: Workers) -> AsyncIterator[Hark]:
    app = Hark(workers.store.url, **workers.options)
    async with app, app.worker({"default": 1}):
        yield app
