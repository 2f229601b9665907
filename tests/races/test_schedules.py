"""T2: a tick starts one instance, whichever of two processes sweeps first, and a waiting tick is not forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from hark.kernel.requests import Cancel, ChangeSchedule, Message, StartInstances
from hark.model.activation import Claim
from hark.model.errors import Duplicate
from hark.model.trigger import Trigger, new_schedule
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import DEFINITION, capacity, done, new

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECOND = 1_000_000


def _put(name: str = "s", every: int = 10, **options: Any) -> ChangeSchedule:
    return ChangeSchedule(
        verb="put", name=name, definition=DEFINITION, start=new_schedule(name, "{}", every=every, **options)
    )


async def _scheduled(stage: Stage, **options: Any) -> None:
    """A schedule with one tick due."""
    request = _put(**options)
    await stage.one.run(request)
    assert not isinstance(request.result, Exception)
    stage.clock.advance(10 * SECOND)


async def _row(stage: Stage) -> Any:
    return await stage.eye.fetchrow("SELECT * FROM triggers")


async def _queued(stage: Stage) -> Claim:
    """An instance that executes, and the next tick of a schedule that queues is due."""
    await _scheduled(stage, overlap="queue")
    await stage.one.run(sweep=True)
    [claim] = (await stage.one.run(claim=capacity("worker", 1, version=2))).claims
    stage.clock.advance(10 * SECOND)
    return claim


@race(deep=True)
async def test_t2_two_sweeps_start_a_tick_once(stage: Stage) -> Race:
    await _scheduled(stage, correlation_key="k")
    yield Duel(part(sweep=True), part(sweep=True))
    [instance] = (await stage.content()).instances
    row = await _row(stage)
    assert (row["last_id"], row["missed"], row["skipped"]) == (instance, 0, 0)
    assert row["next_at"] == row["due_at"] == row["last_at"] + 10 * SECOND


@race(deep=True)
async def test_t2_a_pause_is_before_a_tick_or_after_it(stage: Stage) -> Race:
    await _scheduled(stage)
    pause = ChangeSchedule(verb="pause", name="s")
    yield Duel(part(sweep=True), part(pause))
    started = len((await stage.content()).instances)
    row = await _row(stage)
    assert (row["paused"], row["due_at"]) == (True, None)
    assert (row["last_id"] is not None) == (started == 1)
    assert pause.result.last_id == row["last_id"]
    await stage.one.run(sweep=True)
    assert len((await stage.content()).instances) == started


@race(deep=True)
async def test_t2_a_tick_is_before_a_trigger_or_skipped_while_what_it_started_runs(stage: Stage) -> Race:
    await _scheduled(stage, overlap="skip")
    trigger = ChangeSchedule(verb="trigger", name="s")
    yield Duel(part(sweep=True), part(trigger))
    await stage.one.run(sweep=True)
    row = await _row(stage)
    assert row["last_id"] == trigger.result
    assert len((await stage.content()).instances) + row["skipped"] == 2


async def test_t2_a_tick_in_the_turn_of_a_trigger_is_skipped(stage: Stage) -> None:
    await _scheduled(stage, overlap="skip")
    trigger = ChangeSchedule(verb="trigger", name="s")
    await stage.one.run(trigger, sweep=True)
    row = await _row(stage)
    assert [*(await stage.content()).instances] == [row["last_id"]] == [trigger.result]
    assert row["skipped"] == 1


async def test_t2_a_tick_that_waits_comes_before_one_that_is_due_with_it(stage: Stage) -> None:
    claim = await _queued(stage)
    await stage.one.run(sweep=True)
    stage.clock.advance(10 * SECOND)
    await stage.one.run(done(claim))
    await stage.one.run(sweep=True)
    row = await _row(stage)
    assert row["waiting"] == f"[{row['last_at'] + 10 * SECOND}]"
    assert (len((await stage.content()).instances), row["skipped"]) == (2, 0)


@pytest.mark.parametrize("cancelled", [False, True])
@race(deep=True)
async def test_t2_a_tick_that_waits_does_not_miss_the_end_it_waits_for(stage: Stage, cancelled: bool) -> Race:
    claim = await _queued(stage)
    end = Cancel(target=claim.id) if cancelled else done(claim)
    yield Duel(part(sweep=True), part(end))
    for _ in range(3):
        await stage.one.run(sweep=True)
    assert len((await stage.content()).instances) == 2
    row = await _row(stage)
    assert (row["waiting"], row["blocker"], row["skipped"]) == (None, None, 0)


@race(deep=True)
async def test_t2_a_change_of_a_schedule_does_not_hide_the_end_that_a_tick_waits_for(stage: Stage) -> Race:
    claim = await _queued(stage)
    await stage.one.run(sweep=True)
    assert (await _row(stage))["blocker"] == claim.id
    again = _put(overlap="queue", catch_up=7)
    yield Duel(part(done(claim)), part(again))
    for _ in range(3):
        await stage.one.run(sweep=True)
    assert len((await stage.content()).instances) == 2
    assert (await _row(stage))["catch_up"] == 7


@race()
async def test_t2_changes_of_several_schedules_in_any_order_do_not_deadlock(stage: Stage) -> Race:
    await stage.one.run(_put("a"), _put("b"), _put("c"))
    stage.clock.advance(10 * SECOND)
    ours = [_put("new"), ChangeSchedule(verb="pause", name="c"), ChangeSchedule(verb="delete", name="a")]
    theirs = [ChangeSchedule(verb="trigger", name="a"), _put("c"), _put("new")]
    yield Duel(part(*ours, sweep=True), part(*theirs, sweep=True))
    rows = {row["name"]: row for row in await stage.eye.fetch("SELECT * FROM triggers")}
    assert sorted(rows) == ["b", "c", "new"]
    assert rows["c"]["paused"]
    assert rows["b"]["last_id"] is not None


@race(deep=True)
async def test_t2_a_start_with_the_key_of_a_schedule_is_before_its_tick_or_refused(stage: Stage) -> Race:
    await _scheduled(stage, correlation_key="k")
    start = StartInstances(items=[new("by-hand", correlation_key="k")])
    yield Duel(part(sweep=True), part(start))
    [instance] = (await stage.content()).instances
    row = await _row(stage)
    if instance == "by-hand":
        assert (row["last_id"], row["skipped"]) == (None, 1)
    else:
        assert (row["last_id"], row["skipped"]) == (instance, 0)
        assert isinstance(start.result[0], Duplicate)


@race()
async def test_of_two_messages_with_one_key_one_starts_an_instance(stage: Stage) -> Race:
    start = Trigger(kind="message", name="order")
    await stage.one.run(ChangeSchedule(verb="put", name="order", definition=DEFINITION, start=start))
    messages = [Message(name="order", key="k", may_start=True) for _ in range(2)]
    yield Duel(part(messages[0]), part(messages[1]))
    [instance] = (await stage.content()).instances
    answers = [message.result for message in messages]
    [refused] = [answer for answer in answers if isinstance(answer, Duplicate)]
    assert instance in answers
    assert refused.holder == instance
