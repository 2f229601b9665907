"""Replay is checked: divergence from the journal is NonDeterministic. A retry continues where it failed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hark import AwakeableRejected, FunctionContext, RunFailed, SignalTimeout, workflow
from tests.promises.support_functions import Calls, Flaky, one, two
from tests.promises.support_signals import rows
from tests.support.harness import drained, harness, held, parked
from tests.support.stores import Store

Road = Callable[[FunctionContext], Any]


async def built(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.run(two)
    await ctx.wait_for_signal("go")


async def swapped(ctx: FunctionContext) -> None:
    await ctx.run(two)
    await ctx.run(one)
    await ctx.wait_for_signal("go")


async def slept_instead(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.sleep(5)
    await ctx.wait_for_signal("go")


async def one_more(ctx: FunctionContext) -> None:
    await ctx.now()
    await built(ctx)


async def one_less(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.wait_for_signal("go")


async def ended(ctx: FunctionContext) -> None:
    await ctx.run(one)


async def waits_for_another(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.run(two)
    await ctx.wait_for_signal("stop")


async def sleeps_where_it_waited(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.run(two)
    await ctx.sleep(1)


async def runs_where_it_waited(ctx: FunctionContext) -> None:
    await ctx.run(one)
    await ctx.run(two)
    await ctx.run(one)


CHANGES: dict[str, tuple[Road, int, str, str]] = {
    "swapped": (swapped, 0, "run one", "run two"),
    "slept_instead": (slept_instead, 1, "run two", "sleep"),
    "one_more": (one_more, 0, "run one", "now"),
    "one_less": (one_less, 1, "run two", "wait go"),
    "ended": (ended, 1, "run two", "the end"),
    "waits_for_another": (waits_for_another, 2, "signal go", "wait stop"),
    "sleeps_where_it_waited": (sleeps_where_it_waited, 2, "signal go", "sleep"),
    "runs_where_it_waited": (runs_where_it_waited, 2, "signal go", "run one"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_v3_divergence_from_the_journal_holds_with_entry_expected_and_found(store: Store, change: str) -> None:
    road, entry, expected, found = CHANGES[change]
    current: Road = built

    @workflow
    async def changing(ctx: FunctionContext) -> str:
        await current(ctx)
        return "arrived"

    async with parked(store, changing) as (app, it):
        before = await rows(store, "SELECT seq, entry, kind, name, value FROM journal ORDER BY seq")
        current = road
        await it.signal("go")
        error = str((await held(app, it.id)).error)
        assert error.startswith("NonDeterministic: ")
        for text in (f"entry {entry} ", expected, found, "retry", "version="):
            assert text in error, error
        assert await rows(store, "SELECT seq, entry, kind, name, value FROM journal ORDER BY seq") == before
        # With the code fixed, it continues: the journal and the signal are as they were.
        current = built
        await drained(app, app.retry(it.id))
        assert await it.result() == "arrived"


async def test_a_function_that_ends_before_its_journal_does_has_diverged(store: Store) -> None:
    """The first line that no operation asked for is named, in whatever order the lines are stored."""
    brief = False

    @workflow
    async def curious(ctx: FunctionContext) -> str:
        await ctx.run(one)
        if not brief:
            await ctx.now()
            await ctx.now()
            await ctx.wait_for_signal("go")
        return "arrived"

    async with parked(store, curious) as (app, it):
        brief = True
        await it.signal("go")
        error = str((await held(app, it.id)).error)
        assert "NonDeterministic" in error
        assert "at entry 1 the journal has now, the code has the end" in error
        brief = False
        await drained(app, app.retry(it.id))
        assert await it.result() == "arrived"


async def test_a_user_cannot_swallow_the_divergence(store: Store) -> None:
    first = True

    @workflow
    async def sly(ctx: FunctionContext) -> str:
        try:
            await ctx.run(one if first else two)
        except Exception:
            return "swallowed"
        await ctx.wait_for_signal("go")
        return "went on"

    async with parked(store, sly) as (app, it):
        first = False
        await it.signal("go")
        assert "NonDeterministic" in str((await held(app, it.id)).error)


async def test_code_that_only_appends_operations_continues(store: Store) -> None:
    longer = False

    @workflow
    async def growing(ctx: FunctionContext) -> Any:
        await ctx.run(one)
        await ctx.wait_for_signal("go")
        return await ctx.run(two) if longer else None

    async with parked(store, growing) as (app, it):
        longer = True
        await drained(app, it.signal("go"))
        assert await it.result() == 2


async def test_x8_a_retry_repeats_what_failed_and_nothing_before_it(store: Store) -> None:
    calls, upload = Calls(), Flaky()

    @workflow
    async def copy(ctx: FunctionContext) -> Any:
        data = await ctx.run(calls.note, "data")
        signal = await ctx.wait_for_signal("go")
        try:
            done = await ctx.run(upload.run)
        except RunFailed:
            await ctx.wait_for_signal("sorry")
            await ctx.run(calls.note, "undone")
            raise
        late = await ctx.wait_for_signal("sorry")
        return [data, signal.payload, done, late.payload]

    async with harness(store, copy) as app:
        it = await app.start(copy)
        await it.signal("go", "now")
        await drained(app, it.signal("sorry", "for that"))
        assert (await it.get()).status == "failed"
        assert (calls, upload.tries) == (["data", "undone"], 1)
        upload.fix()
        await drained(app, app.retry(it.id))
        # The signal consumed by the failed attempt is available again.
        assert await it.result() == ["data", "now", 1, "for that"]
        assert (calls, upload.tries) == (["data", "undone"], 2)


async def test_x8_a_retry_repeats_operations_requested_after_the_failure(store: Store) -> None:
    flaky = Flaky()

    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        try:
            done = await ctx.run(flaky.run)
        except RunFailed:
            await (await ctx.awakeable(title="what now?"))
            raise
        return [done, await (await ctx.awakeable(title="all good?"))]

    async with parked(store, asks) as (app, it):
        [question] = await app.awakeables()
        await drained(app, app.resolve(question.id, "stop"))
        assert (await it.get()).status == "failed"
        flaky.fix()
        await drained(app, app.retry(it.id))
        pending = await app.awakeables(status="PENDING")
        assert [one.title for one in pending] == ["all good?"]
        assert pending[0].id != question.id
        await drained(app, app.resolve(pending[0].id, "yes"))
        assert await it.result() == [1, "yes"]


async def test_x8_a_rejected_awakeable_stays_rejected_after_a_retry(store: Store) -> None:
    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        return await (await ctx.awakeable())

    async with parked(store, asks) as (app, it):
        [question] = await app.awakeables()
        await drained(app, app.reject(question.id, "never"))
        await drained(app, app.retry(it.id))
        assert AwakeableRejected.__name__ in str((await it.get()).error)


async def test_a_retry_of_a_retry_still_replays_its_journal(store: Store) -> None:
    flaky = Flaky(3)

    @workflow
    async def stubborn(ctx: FunctionContext) -> Any:
        first = await ctx.run(two)
        got = await ctx.run(flaky.run)
        signal = await ctx.wait_for_signal("go")
        return [first, got, signal.payload, await ctx.run(two)]

    async with harness(store, stubborn) as app:
        it = await app.start(stubborn)
        for _ in range(3):
            await app.drain()
            assert (await it.get()).status == "failed"
            await app.retry(it.id)
        await app.drain()
        await drained(app, it.signal("go", "x"))
        assert await it.result() == [2, 1, "x", 2]
        assert flaky.tries == 4


async def test_m6_an_instance_finishes_on_the_version_it_started(store: Store) -> None:
    @workflow(name="ship", version=1)
    async def old(ctx: FunctionContext) -> str:
        await ctx.wait_for_signal("go")
        return "old"

    @workflow(name="ship", version=2, queue="other")
    async def new(ctx: FunctionContext) -> str:
        await ctx.run(one)
        await ctx.wait_for_signal("go")
        return "new"

    async with parked(store, old) as (app, first):
        app.register(new)
        second = await drained(app, app.start("ship"))
        for it in (first, second):
            await it.signal("go")
        await app.drain()
        assert [await first.result(), await second.result()] == ["old", "new"]


async def test_timeouts_and_answers_read_together_are_applied_in_journal_order(store: Store) -> None:
    """Both are available when it wakes: the winner is in the journal, and a replay does not choose again."""
    roads: list[Any] = []

    @workflow
    async def torn(ctx: FunctionContext) -> Any:
        try:
            won: Any = (await ctx.first(ctx.wait_for_signal("a", timeout=5), ctx.wait_for_signal("b")))[0]
        except SignalTimeout:
            won = "late"
        roads.append(won)
        await ctx.wait_for_signal("go")
        return won

    async with parked(store, torn) as (app, it):
        app.clock.now += 5_000_000
        await it.signal("b")
        await it.signal("a")
        await drained(app, app.sweep())
        await drained(app, it.signal("go"))
        assert await it.result() == roads[0] == roads[1]


async def test_journal_and_awakeables_are_removed_with_their_instance(store: Store) -> None:
    @workflow
    async def brief(ctx: FunctionContext) -> None:
        await ctx.run(one)
        await (await ctx.awakeable())

    async with parked(store, brief) as (app, _):
        [question] = await app.awakeables()
        await drained(app, app.resolve(question.id))
        await app.advance(8 * 86400)
        await app.forget(before=datetime.now(UTC) + timedelta(days=9))
        assert await rows(store, "SELECT 1 FROM journal") == []
        assert await app.awakeables() == []
        assert await app.list() == []


async def test_m10_functions_that_share_a_slot_are_not_replayed_from_the_start_at_every_step(store: Store) -> None:
    """Each yields its slot to the other, but not before it has made as much progress as its replay cost."""
    replayed = 0

    @workflow
    async def long(ctx: FunctionContext) -> int:
        nonlocal replayed
        total = 0
        for _ in range(64):
            total += await ctx.run(one)
            replayed += 1
        return total

    async with harness(store, long) as app:
        both = [await app.start(long), await app.start(long)]
        await app.drain()
        assert [await it.result() for it in both] == [64, 64]
    assert replayed < 64 * 2 * 4
