"""T2: each tick starts exactly one instance; overlap, catching up, no drift."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from hark import Await, Context, Done, Hark, Machine, Schedule, Stop, step
from hark.kernel.requests import Sweep
from hark.model.names import moment
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.inspect import query
from tests.support.stores import Store


class Slow(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.then)

    @step
    async def then(self, ctx: Context) -> Done:
        return Done(seconds(ctx))


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(seconds(ctx))


class Broken(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        if ctx.state["broken"]:
            ctx.state["broken"] = False
            return Stop("broken")  # type: ignore[return-value]
        return Await("end", then=self.start)


def seconds(ctx: Context) -> float:
    assert ctx.scheduled_at is not None
    return ctx.scheduled_at.timestamp()


async def one(app: Hark) -> Schedule:
    [schedule] = await app.schedules()
    return schedule


async def live(app: Hark) -> list[str]:
    return [instance.id for instance in await app.list() if instance.finished_at is None]


async def ticks(app: Harness, begun: int) -> list[float]:
    """The ticks of all instances that have finished, as seconds since `begun`, in the order of their starts."""
    await app.drain()
    done = [instance.result for instance in reversed(await app.list()) if instance.status == "done"]
    return [round(tick - begun / 1_000_000, 6) for tick in done]


async def test_t2_many_sweeps_start_a_tick_once(store: Store) -> None:
    async with harness(store, Quick) as app:
        begun = app.clock.now
        await app.schedule("s", Quick, every=10)
        await app.advance(10)
        for reply in [app.sweep() for _ in range(5)]:
            await reply
        await app.advance(9.999999)
        assert await ticks(app, begun) == [10]
        await app.advance(0.000001)
        assert await ticks(app, begun) == [10, 20]


async def test_t2_late_sweeps_do_not_make_a_schedule_drift(store: Store) -> None:
    async with harness(store, Quick) as app:
        begun = app.clock.now
        await app.schedule("s", Quick, every=10)
        for late in (10.7, 9.9, 9.5, 12.3):
            await app.advance(late)
            await app.drain()
        assert await ticks(app, begun) == [10, 20, 30, 40]
        assert (await one(app)).missed == 0


async def test_t2_skip_starts_nothing_while_an_instance_runs(store: Store) -> None:
    async with harness(store, Slow) as app:
        begun = app.clock.now
        await app.schedule("s", Slow, every=10)
        for _ in range(3):
            await app.advance(10)
            await app.drain()
        [first] = await live(app)
        schedule = await one(app)
        assert (schedule.skipped, schedule.missed, schedule.last_id) == (2, 0, first)
        await app.signal(first, "end")
        await app.drain()
        assert len(await live(app)) == 0
        await app.advance(10)
        [second] = await live(app)
        await app.signal(second, "end")
        assert await ticks(app, begun) == [10, 40]


async def test_t2_allow_starts_another_one(store: Store) -> None:
    async with harness(store, Slow) as app:
        await app.schedule("s", Slow, every=10, overlap="allow")
        for _ in range(3):
            await app.advance(10)
            await app.drain()
        assert len(await live(app)) == 3
        assert (await one(app)).skipped == 0


@pytest.mark.parametrize("end", ["done", "cancelled", "failed"])
async def test_t2_queue_starts_one_waiting_tick_when_the_instance_ends(store: Store, end: str) -> None:
    async with harness(store, Slow) as app:
        begun = app.clock.now
        await app.schedule("s", Slow, every=10, overlap="queue")
        for _ in range(4):
            await app.advance(10)
            await app.drain()
        [first] = await live(app)
        assert ((await one(app)).waiting, (await one(app)).skipped) == (1, 2)
        if end == "done":
            await app.signal(first, "end")
        elif end == "cancelled":
            await app.cancel(first)
        else:
            await app.cancel(first, force=True)
        await app.drain()  # no sweep and no movement of the clock: the end itself starts it
        [second] = await live(app)
        assert second != first
        assert (await one(app)).waiting == 0
        await app.signal(second, "end")
        await app.drain()
        assert (await ticks(app, begun))[-1] == 20
        assert await live(app) == []
        await app.advance(10)
        assert len(await live(app)) == 1


async def test_t2_of_missed_ticks_the_latest_are_caught_up_and_the_others_counted(store: Store) -> None:
    async with harness(store, Quick) as app:
        begun = app.clock.now
        await app.schedule("s", Quick, every=10)
        await app.advance(95)
        assert await ticks(app, begun) == [90]
        assert (await one(app)).missed == 8
        await app.schedule("s", Quick, every=10, catch_up=3)
        await app.advance(60)
        assert await ticks(app, begun) == [90, 130, 140, 150]  # one after the other
        schedule = await one(app)
        assert (schedule.missed, schedule.skipped, schedule.waiting) == (11, 0, 0)
        await app.schedule("s", Quick, every=10, catch_up=3, overlap="allow")
        await app.advance(100)
        assert (await ticks(app, begun))[4:] == [230, 240, 250]
        await app.advance(5)
        assert len(await ticks(app, begun)) == 8


async def test_t2_without_catching_up_only_a_tick_on_time_is_started(store: Store) -> None:
    async with harness(store, Quick) as app:
        begun = app.clock.now
        await app.schedule("s", Quick, every=3600, catch_up=0)
        await app.advance(3605)
        assert await ticks(app, begun) == [3600]
        await app.advance(3 * 3600)  # five seconds late again, and two before
        assert await ticks(app, begun) == [3600, 14400]
        await app.advance(2 * 3600 - 1800)
        assert await ticks(app, begun) == [3600, 14400]
        schedule = await one(app)
        assert (schedule.missed, schedule.skipped) == (3, 0)


async def test_t2_a_week_of_missed_seconds_is_counted_exactly(store: Store) -> None:
    async with harness(store, Quick) as app:
        app.clock.now = moment(datetime(2026, 1, 1, tzinfo=UTC), "start")
        begun = app.clock.now
        await app.schedule("s", Quick, cron="*/10 * * * * *", catch_up=2)
        await app.advance(timedelta(days=2))
        assert await ticks(app, begun) == [2 * 86400 - 10, 2 * 86400]
        assert (await one(app)).missed == 2 * 8640 - 2


async def test_t2_many_schedules_that_were_late_for_days_do_not_fill_one_turn(store: Store) -> None:
    async with harness(store, Quick) as app:
        app.clock.now = moment(datetime(2026, 1, 1, tzinfo=UTC), "start")
        for name in ("a", "b", "c"):
            await app.schedule(name, Quick, cron="* * * * *")
        await app.schedule("daily", Quick, cron="0 12 * * *")
        app.clock.now += 3 * 86400 * 1_000_000
        looked: list[int] = []
        while await app._ask(Sweep()):
            looked.append(sum(1 for one in await app.schedules() if one.last_at is not None))
        assert looked[0] == 2  # the daily one first: a long backlog does not hold it up
        assert [one.missed for one in await app.schedules()] == [4319, 4319, 4319, 2]
        counted = app._clerk.counters.happened
        assert (counted["tick_started"], counted["tick_missed"], counted["tick_skipped"]) == (4, 3 * 4319 + 2, 0)
        await app.drain()
        assert len(await app.list(status="done")) == 4


async def test_t2_what_a_paused_schedule_was_triggered_for_is_forgotten_when_it_ends(store: Store) -> None:
    async with harness(store, Quick, Slow) as app:
        await app.schedule("s", Quick, every=10)
        await app.pause_schedule("s")
        for _ in range(3):
            await app.trigger_schedule("s")
            await app.drain()
        await app.schedule("s", Slow, every=10)
        for _ in range(2):
            await app.trigger_schedule("s")
            await app.drain()
        [[running]] = await query(store, "SELECT running FROM triggers")
        assert sorted(json.loads(running)) == sorted(await live(app))


async def test_t2_a_refused_start_is_recorded_and_the_schedule_goes_on(store: Store) -> None:
    async with harness(store, Quick, Slow) as app:
        begun = app.clock.now
        await app.schedule("s", Quick, every=10, correlation_key="k", overlap="allow")
        holder = await app.start(Slow, correlation_key="k", delay=3600)
        await app.advance(10)
        schedule = await one(app)
        assert schedule.skipped == 1
        assert holder.id in (schedule.error or "")
        await app.cancel(holder)
        await app.advance(10)
        assert await ticks(app, begun) == [20]
        assert (await one(app)).error is None


async def test_t2_a_triggered_instance_counts_for_overlap(store: Store) -> None:
    async with harness(store, Slow) as app:
        await app.schedule("s", Slow, every=10)
        await app.advance(10)
        [by_tick] = await live(app)
        by_hand = await app.trigger_schedule("s")
        await app.drain()
        await by_hand.signal("end")
        await app.drain()
        await app.advance(10)  # the instance of the first tick still runs
        assert await live(app) == [by_tick]


async def test_t2_an_instance_that_is_retried_counts_for_overlap(store: Store) -> None:
    async with harness(store, Broken) as app:
        await app.schedule("s", Broken, {"broken": True}, every=10)
        await app.advance(10)
        await app.drain()
        [failed] = await app.list(status="failed")
        await app.retry(failed.id)
        await app.advance(10)
        assert len(await app.list()) == 1
        assert (await one(app)).skipped == 1


async def test_t2_an_instance_that_is_retried_after_a_missed_tick_counts_for_overlap(store: Store) -> None:
    async with harness(store, Broken) as app:
        await app.schedule("s", Broken, {"broken": True}, every=100, catch_up=0)
        await app.advance(100)
        await app.drain()
        await app.advance(170)
        [failed] = await app.list(status="failed")
        await app.retry(failed.id)
        await app.advance(30)
        assert len(await app.list()) == 1
        assert ((await one(app)).missed, (await one(app)).skipped) == (1, 1)


async def test_t2_a_pause_drops_a_waiting_tick(store: Store) -> None:
    async with harness(store, Slow) as app:
        await app.schedule("s", Slow, every=10, overlap="queue")
        await app.advance(10)
        await app.drain()
        await app.advance(10)
        assert (await one(app)).waiting == 1
        await app.pause_schedule("s")
        [first] = await live(app)
        await app.signal(first, "end")
        await app.drain()
        await app.resume_schedule("s")
        await app.drain()
        assert await live(app) == []


async def test_t2_a_worker_starts_what_another_process_scheduled(store: Store) -> None:
    """On real time: the process with the worker learns of the schedule by itself."""
    client, server = Hark(store.url, **store.options), Hark(store.url, **store.options)
    server.register(Quick)
    async with server, server.worker(), client:
        await client.schedule("s", "Quick", every=0.2, catch_up=1000, overlap="allow")
        while len(await client.list(status="done")) < 3:
            await asyncio.sleep(0.02)
        await client.unschedule("s")
        while await live(client):
            await asyncio.sleep(0.02)
        ticks = sorted(instance.result for instance in await client.list())
        assert {round(later - earlier, 6) for earlier, later in pairwise(ticks)} == {0.2}
