"""T1: any definition can be started on a schedule, by cron or at an interval."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Context,
    Done,
    Duplicate,
    FunctionContext,
    Hark,
    InvalidInput,
    Machine,
    NotFound,
    Schedule,
    step,
    workflow,
)
from hark.model.names import moment
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.inspect import query
from tests.support.stores import Store


@workflow
async def report(ctx: FunctionContext, to: str = "all") -> Any:
    return [to, None if ctx.scheduled_at is None else ctx.scheduled_at.isoformat()]


class Nightly(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.then)

    @step
    async def then(self, ctx: Context) -> Done:
        return Done(None if ctx.scheduled_at is None else ctx.scheduled_at.isoformat())


def at(app: Harness, when: datetime) -> None:
    """Set the clock."""
    app.clock.now = moment(when, "time")


async def named(app: Hark, name: str) -> Schedule:
    [found] = [schedule for schedule in await app.schedules() if schedule.name == name]
    return found


async def test_t1_cron_starts_a_function_with_its_input_at_local_time(store: Store) -> None:
    async with harness(store, report) as app:
        at(app, datetime(2126, 6, 3, tzinfo=UTC))  # a Monday, in summer time
        made = await app.schedule(
            "weekly",
            report,
            {"to": "ann"},
            cron="0 9 * * MON",
            timezone="Europe/Berlin",
            correlation_key="weekly-report",
        )
        tick = datetime(2126, 6, 3, 7, tzinfo=UTC)
        assert (made.name, made.definition, made.cron, made.every) == ("weekly", "report", "0 9 * * MON", None)
        assert (made.timezone, made.overlap, made.catch_up, made.paused) == ("Europe/Berlin", "skip", 1, False)
        assert (made.next_at, made.last_at, made.last_id, made.missed) == (tick, None, None, 0)
        at(app, tick - timedelta(microseconds=1))
        await app.sweep()
        assert await app.list() == []
        at(app, tick)
        await app.sweep()
        await app.drain()
        [instance] = await app.list()
        assert instance.result == ["ann", tick.isoformat()]
        assert instance.correlation_key == "weekly-report"
        [started] = [event for event in await app.events(instance.id) if event.type == "started"]
        assert (started.data["schedule"], started.data["scheduled_at"]) == ("weekly", "2126-06-03T07:00:00Z")
        now = await named(app, "weekly")
        assert (now.last_at, now.last_id, now.next_at) == (tick, instance.id, tick + timedelta(days=7))


async def test_t1_clocks_that_change_start_each_local_time_once(store: Store) -> None:
    async with harness(store, report) as app:
        for name, day in (
            ("spring", datetime(2026, 3, 28, 12, tzinfo=UTC)),
            ("autumn", datetime(2026, 10, 24, 12, tzinfo=UTC)),
        ):
            at(app, day)
            await app.schedule(name, report, name, cron="30 2 * * *", timezone="Europe/Berlin", overlap="allow")
            for hours in range(40):
                at(app, day + timedelta(hours=hours))
                await app.sweep()
            await app.unschedule(name)
        await app.drain()
        ticks = [instance.result for instance in reversed(await app.list())]
        assert ticks == [
            ["spring", "2026-03-29T01:00:00+00:00"],  # 02:30 is skipped: the first instant after the gap
            ["spring", "2026-03-30T00:30:00+00:00"],
            ["autumn", "2026-10-25T00:30:00+00:00"],  # 02:30 comes again an hour later
            ["autumn", "2026-10-26T01:30:00+00:00"],
        ]


async def test_t1_a_machine_at_an_interval_by_name(store: Store) -> None:
    async with harness(store, Nightly) as app:
        begun = app.clock.now
        schedule = await app.schedule("often", "Nightly", every=timedelta(minutes=1), overlap="allow")
        assert (schedule.every, schedule.cron) == (60.0, None)
        for _ in range(2):
            await drained(app, app.advance(60))
        [second, first] = await app.list()
        await app.signal(first.id, "go")
        await drained(app, app.signal(second.id, "go"))
        ticks = [datetime.fromisoformat(await app.result(one.id)) for one in (first, second)]
        assert [moment(tick, "tick") - begun for tick in ticks] == [60_000_000, 120_000_000]
        assert (await app.start(Nightly)) is not None
        await app.drain()


async def test_t1_what_no_schedule_started_has_no_tick(store: Store) -> None:
    async with harness(store, report) as app:
        plain = await drained(app, app.start(report))
        assert await plain.result() == ["all", None]


async def test_t1_pause_resume_trigger_and_delete(store: Store) -> None:
    async with harness(store, Nightly) as app:
        begun = app.clock.now
        await app.schedule("s", Nightly, every=60)
        paused = await app.pause_schedule("s")
        assert (paused.paused, paused.next_at) == (True, None)
        assert (await app.pause_schedule("s")).paused
        await app.advance(90)
        assert await app.list() == []
        triggered = await drained(app, app.trigger_schedule("s"))
        assert (await named(app, "s")).last_id == triggered.id
        await drained(app, triggered.signal("go"))
        assert moment(datetime.fromisoformat(await triggered.result()), "tick") == app.clock.now
        resumed = await app.resume_schedule("s")
        assert resumed.next_at is not None
        assert moment(resumed.next_at, "next") - begun == 120_000_000  # an interval keeps its rhythm
        assert (resumed.paused, resumed.missed) == (False, 0)
        assert await app.resume_schedule("s") == resumed
        await app.advance(30)
        assert len(await app.list()) == 2
        await app.unschedule("s")
        await app.advance(3600)
        assert len(await app.list()) == 2
        assert await app.schedules() == []


async def test_t1_a_replaced_schedule_keeps_its_tick_unless_its_timing_changes(store: Store) -> None:
    async with harness(store, report, Nightly) as app:
        first = await app.schedule("s", report, "a", every=60)
        await app.advance(10)
        again = await app.schedule("s", report, "b", every=60, overlap="allow", catch_up=5)
        assert (again.next_at, again.created_at) == (first.next_at, first.created_at)
        assert (again.overlap, again.catch_up) == ("allow", 5)
        await app.pause_schedule("s")
        changed = await app.schedule("s", Nightly, cron="0 0 1 1 *")
        assert (changed.definition, changed.cron, changed.every, changed.paused) == ("Nightly", "0 0 1 1 *", None, True)
        await app.resume_schedule("s")
        moved = await app.schedule("s", report, "c", every=90)
        assert moved.next_at is not None
        assert moment(moved.next_at, "next") == app.clock.now + 90_000_000
        await drained(app, app.advance(90))
        [instance] = await app.list()
        assert instance.result[0] == "c"


async def test_t1_a_resumed_schedule_begins_at_the_present_time_also_if_the_clock_was_set_back(store: Store) -> None:
    async with harness(store, report) as app:
        begun = app.clock.now
        await app.schedule("cron", report, cron="* * * * *")
        await app.schedule("every", report, every=60)
        await app.advance(timedelta(hours=2))
        app.clock.now = begun
        for name in ("cron", "every"):
            await app.pause_schedule(name)
            resumed = await app.resume_schedule(name)
            assert resumed.next_at is not None
            assert 0 < moment(resumed.next_at, "next") - begun <= 60_000_000


async def test_t1_the_error_of_a_time_zone_ends_with_the_time_zone(store: Store) -> None:
    async with harness(store, report) as app:
        await app.schedule("s", report, every=10)
        await query(store, "UPDATE triggers SET every = NULL, cron = '* * * * *', timezone = 'Mars/Base' RETURNING id")
        await app.advance(3600)
        [schedule] = await app.schedules()
        assert "Mars/Base" in (schedule.error or "")
        assert (await app.schedule("s", report, cron="* * * * *")).error is None


async def test_t1_schedules_are_listed_by_name(store: Store) -> None:
    async with harness(store, report) as app:
        for name in ("b", "ä", "a", "c/d e"):
            await app.schedule(name, report, every=3600)
        assert [schedule.name for schedule in await app.schedules()] == ["a", "b", "c/d e", "ä"]
        assert [schedule.name for schedule in await app.schedules(limit=2, after="a")] == ["b", "c/d e"]


async def test_t1_several_changes_of_one_schedule_in_one_turn_keep_their_order(store: Store) -> None:
    async with harness(store, report) as app:
        replies: list[Any] = [
            app.schedule("s", report, every=60, correlation_key="k"),
            app.pause_schedule("s"),
            app.trigger_schedule("s"),
            app.schedule("s", report, cron="* * * * *"),
            app.unschedule("s"),
            app.schedule("s", report, every=70),
            app.trigger_schedule("s"),
        ]
        answers = [await reply for reply in replies]
        assert answers[0].every == 60
        assert answers[1].paused
        assert answers[2].id != answers[6].id
        assert answers[4] is None
        last = await named(app, "s")
        assert (last.every, last.paused, last.last_id) == (70, False, answers[6].id)


async def test_t1_what_is_malformed_or_unknown_is_refused(store: Store) -> None:
    async with harness(store, report) as app:
        for wrong in (
            {"cron": "61 * * * *"},
            {"cron": "* * * *"},
            {"every": 60, "timezone": "Mars/Olympus"},
            {"every": 0},
            {},
            {"every": 60, "cron": "* * * * *"},
            {"every": 60, "overlap": "maybe"},
            {"every": 60, "catch_up": -1},
            {"every": 60, "catch_up": True},
            {"every": 60, "correlation_key": ""},
        ):
            with pytest.raises(InvalidInput):
                await app.schedule("s", report, **wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await app.schedule("", report, every=60)
        with pytest.raises(InvalidInput):
            await app.schedule("s", report, {"nobody": 1}, every=60)
        with pytest.raises(NotFound, match="no definition 'nothing'"):
            await app.schedule("s", "nothing", every=60)
        for verb in (app.pause_schedule, app.resume_schedule, app.trigger_schedule, app.unschedule):
            with pytest.raises(NotFound, match="no schedule 's'"):
                await verb("s")
        assert await app.schedules() == []
        await app.schedule("s", report, every=60, correlation_key="k")
        holder = await app.start(Nightly, correlation_key="k")
        with pytest.raises(Duplicate) as refused:
            await app.trigger_schedule("s")
        assert refused.value.holder == holder.id
