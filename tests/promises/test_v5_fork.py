"""V5: a fork repeats an instance from a point in its past."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from hark import Await, Context, Done, Duplicate, FunctionContext, InvalidInput, Machine, Next, NotFound, step, workflow
from hark.views import live
from tests.support.harness import drained, harness, parked
from tests.support.inspect import query
from tests.support.stores import Store

calls: list[str] = []


def work(name: str) -> str:
    calls.append(name)
    return name.upper()


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


@workflow(name="order")
async def order(ctx: FunctionContext, number: int) -> dict[str, Any]:
    first = await ctx.run(work, f"a{number}")
    draw = ctx.random()
    answer = await ctx.awakeable(title="Go on?")
    said = await answer
    second = await ctx.run(work, "b")
    signal = await ctx.wait_for_signal("paid")
    return {"first": first, "draw": draw, "said": said, "second": second, "paid": signal.payload}


async def test_v5_a_fork_receives_what_the_function_had_received_and_goes_on_by_itself(store: Store) -> None:
    async with parked(store, order, input={"number": 1}, tags={"tenant": "a"}, correlation_key="order:1") as (app, old):
        [question] = await app.awakeables()
        await app.resolve(question.id, "yes")
        await app.drain()
        numbers = {entry.kind: entry.number for entry in await app.journal(old)}
        again = await app.fork(old, at=numbers["awakeable"], correlation_key="order:1 again", by="ann")
        await app.drain()
        await app.signal(again, "paid", 2)
        await app.signal(old, "paid", 1)
        await app.drain()
        first, second = await old.result(), await again.result()
        assert (first.pop("paid"), second.pop("paid")) == (1, 2)
        assert first == second
        assert calls == ["a1", "b", "b"]
        found = await again.get()
        assert (found.forked_from, found.tags) == (old.id, {"tenant": "a"})
        forked = next(event for event in await app.events(again) if event.type == "forked")
        assert forked.data == {"source": old.id, "at": numbers["awakeable"], "by": "ann"}
        assert len(await app.awakeables()) == 1  # the answer is in the journal, the question is not copied


_CONTINUES = ("UPDATE instances SET visit = visit + 1, state = '{\"number\":2}'", "DELETE FROM journal")
_IS_REMOVED = ("DELETE FROM journal", "DELETE FROM instances")


@pytest.mark.parametrize("changes", [_CONTINUES, _IS_REMOVED], ids=["continues as new", "is removed"])
async def test_v5_a_fork_has_the_input_and_the_journal_of_one_moment(
    store: Store, monkeypatch: pytest.MonkeyPatch, changes: tuple[str, ...]
) -> None:
    """The function changes between the reads of its row and of its journal."""
    left = list(changes)
    add = live._add_journals_and_waits

    async def add_after_the_changes(*given: Any) -> None:
        while left:
            await query(store, left.pop(0))
        await add(*given)

    async with parked(store, order, input={"number": 1}) as (app, old):
        monkeypatch.setattr(live, "_add_journals_and_waits", add_after_the_changes)
        if changes == _IS_REMOVED:
            with pytest.raises(NotFound):
                await app.fork(old)
        else:
            await drained(app, app.fork(old))
            assert calls == ["a1", "a2"]


async def test_v5_an_open_question_is_asked_anew_by_the_fork(store: Store) -> None:
    async with parked(store, order, input={"number": 1}) as (app, old):
        again = await drained(app, app.fork(old))
        mine = [question for question in await app.awakeables() if question.instance_id == again.id]
        assert [question.status for question in mine] == ["PENDING"]
        await app.resolve(mine[0].id, "yes")
        await app.drain()
        assert (await old.get()).status == "awaiting_signal"
        assert [wait.name for wait in (await again.get()).waits] == ["paid"]
        assert calls == ["a1", "b"]


async def test_v5_a_fork_with_new_input_begins_from_the_beginning(store: Store) -> None:
    async with parked(store, order, input={"number": 1}) as (app, old):
        await drained(app, app.fork(old, input={"number": 2}))
        assert calls == ["a1", "a2"]


@workflow(name="several")
async def several(ctx: FunctionContext) -> list[str]:
    before = await ctx.run(work, "0")
    both = await ctx.gather(ctx.run(work, "1"), ctx.run(work, "2"), ctx.run(work, "3"))
    return [before, *both, await ctx.run(work, "4")]


@pytest.mark.parametrize("at", [1, 2])
async def test_v5_a_fork_in_the_middle_of_a_gather_is_refused(store: Store, at: int) -> None:
    async with harness(store, several) as app:
        old = await drained(app, app.start(several))
        with pytest.raises(InvalidInput, match=r"together with entry .* at=3"):
            await app.fork(old, at=at)
        assert len(await app.list()) == 1
        again = await drained(app, app.fork(old, at=3))
        assert await again.result() == ["0", "1", "2", "3", "4"]
        assert calls == ["0", "1", "2", "3", "4", "4"]


async def test_v5_what_came_while_other_operations_were_under_way_is_kept_whole_or_not_at_all(store: Store) -> None:
    """Without the code, as in a process that only serves HTTP, the order of the journal tells."""
    async with harness(store, several) as app:
        old = await drained(app, app.start(several))
    async with harness(store) as server:
        with pytest.raises(InvalidInput, match="has no entry 17; it has 0 to 4"):
            await server.fork(old.id, at=17)
        assert (await (await server.fork(old.id, at=0)).get()).forked_from == old.id


class Stepped(Machine):
    State = dict

    @step
    async def start(self, ctx: Context[Any]) -> Any:
        calls.append("start")
        return Next(self.middle, state={**ctx.state, "n": ctx.state["n"] + 1})

    @step
    async def middle(self, ctx: Context[Any]) -> Any:
        if ctx.state["n"] > 1:
            raise ValueError("too many")
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context[Any]) -> Any:
        return Done({**ctx.state, "signals": len(ctx.awaited)})


async def test_v5_a_failed_machine_is_repeated_from_its_failed_step_with_another_state(store: Store) -> None:
    async with harness(store, Stepped) as app:
        old = await drained(app, app.start(Stepped, {"n": 1}))
        assert (await old.get()).status == "failed"
        again = await drained(app, app.fork(old, state={"n": 0}, id="again"))
        assert (await again.get()).status == "awaiting_signal"
        with pytest.raises(InvalidInput, match=r"Name the step"):
            await app.fork("again")
        third = await drained(app, app.fork("again", step=Stepped.end))
        assert await third.result() == {"n": 0, "signals": 0}
        with pytest.raises(Duplicate):
            await app.fork(old, state={"n": 0}, id="again")
        assert (await old.get()).status == "failed"


async def test_v5_code_that_does_not_fit_the_kept_entries_is_refused_and_nothing_is_held(store: Store) -> None:
    @workflow(name="order", version=2)
    async def other(ctx: FunctionContext, number: int) -> None:
        await ctx.now()

    async with parked(store, order, input={"number": 1}) as (app, old):
        app.register(other)
        with pytest.raises(InvalidInput, match=r"the code has now \(.*test_v5_fork\.py:\d+\)\.$"):
            await app.fork(old, at=0, version=2)
        assert len(await app.list()) == 1


async def test_v5_bad_input_is_refused_and_starts_nothing(store: Store) -> None:
    async with harness(store, Stepped, order) as app:
        machine, function = await app.start(Stepped, {"n": 0}), await app.start(order, {"number": 1})
        await app.drain()
        for target, options, text in (
            (machine, {"at": 1}, "is a machine"),
            (machine, {"step": "nope"}, "has no step 'nope'"),
            (function, {"step": "start"}, "is a function"),
            (function, {"at": "x"}, "at='x'"),
            (function, {"at": 99}, "has no entry 99"),
            (function, {"input": {"wrong": 1}}, "does not match"),
        ):
            with pytest.raises(InvalidInput, match=text):
                await app.fork(target, **options)
        with pytest.raises(NotFound):
            await app.fork("nobody", at=1)
        with pytest.raises(NotFound):
            await app.fork(machine, step="start", version=7)
        assert len(await app.list()) == 2


@workflow(name="fails")
async def fails(ctx: FunctionContext) -> str:
    await ctx.run(work, "a", undo=work)
    return await ctx.run(boom)


def boom() -> str:
    calls.append("boom")
    if len(calls) < 4:
        raise ValueError("not yet")
    return "done"


async def test_v5_a_run_that_was_undone_is_not_kept(store: Store) -> None:
    async with harness(store, fails) as app:
        old = await drained(app, app.start(fails))
        assert calls == ["a", "boom", "A"]
        with pytest.raises(InvalidInput, match=r"was undone.*at=-1"):
            await app.fork(old, at=0)
        again = await drained(app, app.fork(old, at=-1))
        assert await again.result() == "done"


def fails_always(result: str) -> None:
    raise ConnectionError(result)


@workflow(name="cancelled")
async def cancelled(ctx: FunctionContext) -> None:
    await ctx.run(work, "a", undo=fails_always, retries=1, backoff=10)
    await ctx.wait_for_signal("go")


async def test_v5_a_function_that_is_being_undone_is_forked_without_its_entries(store: Store) -> None:
    async with parked(store, cancelled) as (app, old):
        await drained(app, app.cancel(old))
        with pytest.raises(InvalidInput, match="is being undone"):
            await app.fork(old)
        assert len(await app.list()) == 1
        await drained(app, app.fork(old, at=-1))
        assert calls == ["a", "a"]


async def test_v5_the_store_answers_while_the_code_of_a_fork_is_replayed(store: Store) -> None:
    replays, release = threading.Event(), threading.Event()

    @workflow(name="slow")
    async def slow(ctx: FunctionContext) -> None:
        await ctx.run(work, "a")
        if calls == ["a", "fork"]:
            replays.set()
            release.wait(10)
        await ctx.wait_for_signal("go")

    async with parked(store, slow) as (app, old):
        calls.append("fork")
        forked = asyncio.ensure_future(asyncio.to_thread(app.fork(old).result))
        await asyncio.to_thread(replays.wait, 10)
        assert (await asyncio.wait_for(old.get(), 5)).status == "awaiting_signal"
        release.set()
        assert (await (await forked).get()).forked_from == old.id


async def test_v5_a_fork_of_a_failed_function_keeps_what_a_retry_would_keep(store: Store) -> None:
    async def code(ctx: FunctionContext) -> str:
        await ctx.run(work, "a")
        return await ctx.run(boom)

    async with harness(store, workflow(name="plain")(code)) as app:
        old = await drained(app, app.start("plain"))
        assert (await old.get()).status == "failed"
        calls.append("-")
        again = await drained(app, app.fork(old))
        assert calls == ["a", "boom", "-", "boom"]
        assert await again.result() == "done"


@workflow(name="order")
async def undone_when_cancelled(ctx: FunctionContext) -> None:
    await ctx.run(work, "a", undo=work)
    await ctx.wait_for_signal("paid")


@pytest.mark.parametrize("drained_first", [False, True])
async def test_v5_x8_a_fork_that_is_cancelled_undoes_what_it_has_kept(store: Store, drained_first: bool) -> None:
    async with parked(store, undone_when_cancelled) as (app, old):
        again = await app.fork(old, at=0)
        if drained_first:
            await app.drain()
        await again.cancel()
        await app.drain()
        assert (await again.get()).status == "cancelled"
        assert calls == ["a", "A"]
        assert (await old.get()).status == "awaiting_signal"
