"""T2: whatever happens in whatever order, each tick is started once, waits, or is counted as missed or skipped."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hark import Await, Context, Done, Machine, Schedule, step
from hark.model.names import moment
from hark.testing import Harness

EVERY = 10

ACTIONS = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([1, 4, 9.5, 10, 10.5, 25, 61, 95])),
    st.tuples(st.sampled_from(["end", "cancel", "pause", "resume", "replace", "drain"]), st.just(0)),
)


class Working(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Account:
    """What should have become of the ticks so far."""

    def __init__(self, app: Harness, options: dict[str, Any]) -> None:
        self.app = app
        self.options = options
        self.begun = app.clock.now
        self.came = 0  # ticks that came while the schedule was not paused, without those that a pause dropped

    async def schedule(self) -> Schedule:
        [schedule] = await self.app.schedules()
        return schedule

    def ticks(self) -> int:
        return (self.app.clock.now - self.begun) // (EVERY * 1_000_000)

    async def act(self, action: str, argument: float) -> None:
        app = self.app
        schedule = await self.schedule()
        live = [one for one in await app.list() if one.finished_at is None]
        if action == "advance":
            before = self.ticks()
            await app.advance(argument)
            self.came += 0 if schedule.paused else self.ticks() - before
        elif action == "end":
            await app.drain()
            for one in live:
                await app.signal(one.id, "end")
            await app.drain()
        elif action == "cancel":
            for one in live:
                await app.cancel(one.id)
        elif action == "pause":
            self.came -= (await app.pause_schedule("s")).waiting + schedule.waiting
        elif action == "resume":
            await app.resume_schedule("s")
        elif action == "replace":
            await app.schedule("s", Working, every=EVERY, **self.options)
        await app.drain()

    async def check(self) -> None:
        app, schedule = self.app, await self.schedule()
        instances = await app.list()
        started = [event.data["scheduled_at"] for event in await app.events(limit=10_000) if event.type == "started"]
        assert len(started) == len(set(started)) == len(instances)
        assert self.came == len(started) + schedule.missed + schedule.skipped + schedule.waiting
        live = [one for one in instances if one.finished_at is None]
        if self.options["overlap"] != "allow":
            assert len(live) <= 1
            assert live or not schedule.waiting
        if schedule.next_at is not None:
            distance = moment(schedule.next_at, "next") - self.begun
            assert (distance % (EVERY * 1_000_000), distance > app.clock.now - self.begun) == (0, True)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["skip", "allow", "queue"]), st.integers(0, 3), st.lists(ACTIONS, min_size=3, max_size=12)
)  # fmt: skip
async def test_t2_every_tick_is_accounted_for(overlap: str, catch_up: int, actions: list[tuple[str, float]]) -> None:
    async with Harness(Working) as app:
        account = Account(app, {"overlap": overlap, "catch_up": catch_up})
        await app.schedule("s", Working, every=EVERY, **account.options)
        for action, argument in actions:
            await account.act(action, argument)
            await account.check()
