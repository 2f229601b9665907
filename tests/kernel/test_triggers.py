"""Triggers: what a deployed definition starts by itself, tested with plain machines on every store."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Await, Broadcast, Context, Done, Machine, step
from hark.app.registered_jobs import schedule_of_job
from hark.kernel.requests import Deploy
from hark.model.cron import Timing
from hark.model.errors import InvalidInput
from hark.model.names import from_micros
from hark.model.trigger import Trigger
from hark.programs.jobs.job_spec import ScheduleSpec
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.stores import Store


class Opening(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("open"), then=self.again)

    @step
    async def again(self, ctx: Context) -> Done:
        return Done([ctx.state, [signal.payload for signal in ctx.awaited]])

    @step
    async def other(self, ctx: Context) -> Done:
        return Done(["other", ctx.state])


class Ordering(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        ctx.broadcast("open", "by an effect")
        return Done(ctx.state)


async def deploy(app: Harness, machine: type[Machine], *starts: Trigger, remove: bool = False) -> Any:
    """Give a machine triggers, as the deploy of a definition does."""
    return await app._ask(Deploy(name=machine.__name__, kind="machine", starts=list(starts), remove=remove))


async def statuses(app: Harness) -> list[str]:
    return [instance.status for instance in reversed(await app.list())]


async def test_a_broadcast_starts_instances_and_counts_them(store: Store) -> None:
    async with harness(store, Opening, Ordering) as app:
        await deploy(app, Opening, Trigger(kind="broadcast", name="open"))
        assert await app.broadcast("open", {"n": 1}, dedup_key="first") == 1
        await app.drain()
        assert await statuses(app) == ["awaiting_signal"]  # it does not receive the broadcast that started it
        assert await app.broadcast("open", {"n": 1}, dedup_key="first") == 1
        assert await app.broadcast("close") == 0
        assert await app.broadcast("open", {"n": 2}) == 2  # one is woken, another one is started
        await app.drain()
        [second, first] = await app.list()
        assert first.result == [{"n": 1}, [{"n": 2}]]
        assert (second.status, second.state) == ("awaiting_signal", {"n": 2})
        order = await app.start(Ordering)
        await app.drain()
        await order.signal("go")
        await app.drain()
        assert len(await app.list(definition="Opening")) == 3


async def test_an_automatic_start_has_a_step_and_a_state_of_its_own(store: Store) -> None:
    async with harness(store, Opening) as app:
        start = Trigger(kind="broadcast", name="open", element="other", state='{"fixed":1}')
        await deploy(app, Opening, start)
        assert await app.broadcast("open", "dropped") == 1
        await app.drain()
        [instance] = await app.list()
        assert instance.result == ["other", {"fixed": 1}]


class Receiver(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.state)


async def test_deploying_replaces_the_automatic_starts_of_that_definition_only(store: Store) -> None:
    async with harness(store, Opening, Receiver) as app:
        nightly = schedule_of_job("nightly", ScheduleSpec(every=60), "{}")
        await deploy(app, Receiver, nightly, Trigger(kind="broadcast", name="open"))
        await app.schedule("mine", Receiver, every=60)
        await app.pause_schedule("nightly")
        await app.advance(30)
        await deploy(app, Receiver, nightly)  # once more, as each start of a program does
        [mine, deployed] = await app.schedules()
        assert (mine.name, deployed.name, deployed.definition) == ("mine", "nightly", "Receiver")
        assert (deployed.paused, mine.paused) == (True, False)
        assert (await app.resume_schedule("nightly")).next_at == mine.next_at
        assert await app.broadcast("open") == 0
        await app.advance(30)
        assert len(await app.list()) == 2
        await deploy(app, Receiver, schedule_of_job("weekly", ScheduleSpec(cron="0 9 * * MON"), "{}"))
        assert [schedule.name for schedule in await app.schedules()] == ["mine", "weekly"]
        await deploy(app, Receiver)
        assert [schedule.name for schedule in await app.schedules()] == ["mine"]


async def test_a_timer_fires_at_its_time_and_no_more_often_than_it_should(store: Store) -> None:
    async with harness(store, Receiver) as app:
        once = Trigger(kind="timer", element="start", at=app.clock.now + 5_000_000)
        thrice = Trigger(kind="timer", timing=Timing(every=10_000_000), remaining=3)
        await deploy(app, Receiver, once, thrice)
        assert await app.schedules() == []  # timers are not schedules
        counts = []
        for _ in range(6):
            await app.advance(10)
            counts.append(len(await app.list()))
        assert counts == [2, 3, 4, 4, 4, 4]
        await deploy(app, Receiver, once, thrice)
        await app.advance(60)
        assert len(await app.list()) == 4


def test_a_malformed_schedule_of_a_job_is_refused() -> None:
    with pytest.raises(InvalidInput):
        schedule_of_job("job", ScheduleSpec(cron="not a cron"), "{}")
    with pytest.raises(InvalidInput):
        schedule_of_job("job", ScheduleSpec(), "{}")


async def test_a_tick_starts_the_version_that_was_deployed(store: Store) -> None:
    class Old(Receiver, name="Versioned", version=1):
        pass

    class New(Receiver, name="Versioned", version=2):
        pass

    async with harness(store, Old, New) as app:
        begun = app.clock.now
        await app.schedule("newest", "Versioned", every=60)
        await app.advance(60)
        [instance] = await app.list()
        assert instance.version == 2
        assert (await app.schedules())[0].last_at == from_micros(begun + 60_000_000)
