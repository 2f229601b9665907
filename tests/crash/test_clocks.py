"""Wrong clocks, and clocks that are set while an instance sleeps."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, step
from hark.testing import Harness
from tests.crash.machines import Gated
from tests.crash.processes import Workers
from tests.support.inspect import query, until
from tests.support.stores import Store

HOUR = 3600


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
        sleeper = await app.start(Sleeper, {"seconds": 4})
        await until(lambda: app.waits(kind="timer"), "the timer")
        gated = await app.start(Gated)
        await workers.until_traced("start 0")
        clock.off = jump
        await until(lambda: firing(pg_store, sleeper.id), "the timer to fire")
        workers.open_gate()
        assert await sleeper.result(timeout=60) is True
        await gated.result(timeout=60)
        [(waited,)] = await firing(pg_store, sleeper.id)
        assert 4_000_000 <= waited < HOUR * 1_000_000


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
    assert await query(store, "SELECT count(*) FROM signals WHERE kind = 'timer'") == [(1,)]
