"""Durable functions used in unusual ways: shared promises, code that refuses to be closed,
a context used outside its workflow, runs that are interrupted while other operations are open."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from hark import AwakeableRejected, FunctionContext, Hark, InvalidOutcome, RunFailed, workflow
from tests.promises.support_functions import Calls, Flaky, hang, one
from tests.promises.support_signals import rows
from tests.support.harness import drained, harness, parked
from tests.support.inspect import until
from tests.support.stores import Store

# -- shared promises -------------------------------------------------------------------------------


async def test_awaiting_a_withdrawn_operation_raises_an_error_that_says_so(store: Store) -> None:
    @workflow
    async def shares(ctx: FunctionContext) -> Any:
        signal = ctx.wait_for_signal("x")

        async def patient() -> Any:
            return await signal

        async def hasty() -> Any:
            return await ctx.first(signal, ctx.sleep(1))

        return await ctx.gather(patient(), hasty())

    async with parked(store, shares) as (app, it):
        await drained(app, app.advance(1))
        assert "This operation was withdrawn" in str((await it.get()).error)


async def test_a_withdrawn_awakeable_is_rejected_inside_gather_too(store: Store) -> None:
    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        await ctx.first(question, ctx.sleep(1))
        try:
            return await ctx.gather(ctx.run(one), question)
        except AwakeableRejected:
            return "gone"

    async with parked(store, asks) as (app, it):
        await drained(app, app.advance(1))
        assert await it.result(timeout=0) == "gone"


async def test_an_awakeable_that_a_failed_gather_withdrew_is_rejected_with_that_reason(store: Store) -> None:
    def fail() -> None:
        raise ValueError("broken")

    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        with pytest.raises(RunFailed):
            await ctx.gather(question, ctx.run(fail))
        try:
            return await question
        except AwakeableRejected as error:
            return [question.id, str(error)]

    async with parked(store, asks) as (app, it):
        id, reason = await it.result(timeout=0)
        assert reason == (
            f"Awakeable {id} was withdrawn: ctx.first was decided by another operation, or another one of ctx.gather "
            "failed. Create a new awakeable if you still need an answer."
        )
        assert (await app.awakeable(id)).status == "CANCELLED"


async def test_the_same_coroutine_twice_is_one_branch(store: Store) -> None:
    @workflow
    async def twins(ctx: FunctionContext) -> Any:
        async def ask() -> Any:
            return (await ctx.wait_for_signal("x")).payload

        asked = ask()
        return await ctx.gather(asked, asked)

    async with parked(store, twins) as (app, it):
        await drained(app, it.signal("x", 5))
        assert await it.result(timeout=0) == [5, 5]


async def test_branches_that_await_each_other_fail_instead_of_waiting_for_ever(store: Store) -> None:
    @workflow
    async def knot(ctx: FunctionContext) -> Any:
        tied: list[Any] = []

        async def wait_for(n: int) -> Any:
            await ctx.run(one)
            return await tied[n]

        tied += [ctx.gather(wait_for(1)), ctx.gather(wait_for(0))]
        return await tied[0]

    async with parked(store, knot) as (_, it):
        assert "can never be resolved" in str((await it.get()).error)


# -- code that is closed ---------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_bare_except_in_a_loop_does_not_block_the_worker(store: Store) -> None:
    @workflow
    async def greedy(ctx: FunctionContext) -> Any:
        got: list[Any] = []
        while len(got) < 2:
            try:
                await ctx.now()
                got.append((await ctx.wait_for_signal("x")).payload)
            except:  # noqa: E722  # what it is about
                continue
        return got

    async with harness(store, greedy) as app:
        it = await app.start(greedy)
        for n in range(2):
            await app.drain()
            await it.signal("x", n)
        await app.drain()
        assert await it.result(timeout=0) == [0, 1]
    gc.collect()  # collect here, so that an unclosed coroutine is reported in this test and not in another


async def test_an_abandoned_async_generator_requests_no_further_operations(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what earlier tests left, which may log too
    calls = Calls()

    @workflow
    async def reads(ctx: FunctionContext) -> str:
        async def pages() -> Any:
            try:
                for n in range(10):
                    yield await ctx.run(calls.note, n)
            finally:
                await ctx.run(calls.note, "tidied")

        async for page in pages():
            if page == 2:
                break
        await ctx.run(calls.note, "after")
        await ctx.wait_for_signal("x")
        await ctx.run(calls.note, "end")
        return "ok"

    async with parked(store, reads) as (app, it):
        await drained(app, it.signal("x"))
        assert await it.result(timeout=0) == "ok"
    assert calls == [0, 1, 2, "after", "end"]
    assert caplog.text == ""


async def test_ctx_used_outside_its_workflow_is_an_error_that_says_so_and_changes_nothing(store: Store) -> None:
    seen: list[BaseException] = []
    kept: list[FunctionContext] = []

    def misuse(ctx: FunctionContext) -> None:
        for call in (lambda: ctx.signal("nobody", "x"), lambda: ctx.sleep(5), ctx.uuid, ctx.random):
            try:
                call()
            except BaseException as error:
                seen.append(error)

    async def misuse_on_the_loop(ctx: FunctionContext) -> None:
        misuse(ctx)

    @workflow
    async def lends(ctx: FunctionContext) -> str:
        kept.append(ctx)
        await ctx.run(misuse, ctx)
        await ctx.gather(ctx.run(misuse_on_the_loop, ctx), ctx.run(one))
        await ctx.wait_for_signal("x")
        return "ok"

    async with parked(store, lends) as (app, it):
        await drained(app, it.signal("x"))
        assert await it.result(timeout=0) == "ok"
    misuse(kept[-1])
    assert len(seen) == 12
    for error in seen:
        assert isinstance(error, InvalidOutcome)
        assert "outside of workflow lends" in str(error)


async def test_continue_as_new_applies_requested_effects_and_withdraws_open_operations(store: Store) -> None:
    @workflow
    async def waits(ctx: FunctionContext) -> Any:
        return (await ctx.wait_for_signal("hello")).payload

    @workflow
    async def loop(ctx: FunctionContext, n: int = 0) -> Any:
        if n:
            return await ctx.wait_for_signal("end")
        question = await ctx.awakeable()
        await ctx.first(ctx.call(waits, id="child"), ctx.wait_for_signal("x"), ctx.sleep(1), question)
        ctx.signal("told", "hello", 7)
        return ctx.continue_as_new({"n": 1})

    async with harness(store, loop, waits) as app:
        told = await app.start(waits, id="told")
        it = await drained(app, app.start(loop))
        app.clock.now += 1_000_000
        await it.signal("x")
        [question] = await app.awakeables()
        await app.resolve(question.id)
        await drained(app, app.sweep())
        assert (await app.get("child")).status == "cancelled"
        assert await told.result(timeout=0) == 7
        # Answers to withdrawn operations do not stay in the inbox.
        left = f"SELECT kind FROM inbox WHERE instance_id = '{it.id}' AND consumed_at IS NULL"
        assert await rows(store, left) == []


# -- retry -----------------------------------------------------------------------------------------


async def test_x8_a_retry_repeats_operations_that_its_failure_withdrew(store: Store) -> None:
    calls, flaky = Calls(), Flaky()

    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        try:
            return await ctx.gather(ctx.run(flaky.run), question)
        except RunFailed:
            await ctx.run(calls.note, "undone")
            raise

    async with parked(store, asks) as (app, it):
        [question] = await app.awakeables(status="CANCELLED")
        flaky.fix()
        await drained(app, app.retry(it.id))
        [again] = await app.awakeables(status="PENDING")
        assert again.id == question.id
        await drained(app, app.resolve(again.id, "yes"))
        assert await it.result(timeout=0) == [1, "yes"]


async def test_x8_a_retry_does_not_repeat_effects_requested_before_the_failure(store: Store) -> None:
    calls, flaky = Calls(), Flaky()

    @workflow
    async def careful(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable()
        failing, charged = ctx.run(flaky.run), ctx.run(calls.note, "charged")
        signal = ctx.wait_for_signal("go")
        got = [await charged, (await signal).payload, await question]
        await ctx.run(calls.note, "looked")
        return [*got, await failing]

    async with parked(store, careful) as (app, it):
        await it.signal("go", "went")
        [question] = await app.awakeables()
        await drained(app, app.resolve(question.id, "yes"))
        assert (await it.get()).status == "failed"
        flaky.fix()
        await drained(app, app.retry(it.id))
        assert await it.result(timeout=0) == ["charged", "went", "yes", 1]
    assert calls.count("charged") == 1


async def test_x8_a_retry_calls_the_child_again_and_restarts_its_timeouts(store: Store) -> None:
    is_fixed = False

    @workflow
    async def child(ctx: FunctionContext) -> int:
        if not is_fixed:
            raise ValueError("not yet")
        return 5

    @workflow
    async def calls(ctx: FunctionContext) -> Any:
        return await ctx.call(child)

    @workflow
    async def waits(ctx: FunctionContext) -> Any:
        return (await ctx.wait_for_signal("x", "y", timeout=10)).payload

    async with harness(store, calls, waits, child) as app:
        caller, waiter = await app.start(calls), await app.start(waits)
        await app.drain()
        is_fixed = True
        await drained(app, app.retry(caller.id))
        assert await caller.result(timeout=0) == 5
        for _ in range(3):
            await drained(app, app.advance(9))
            assert (await waiter.get()).status == "awaiting_signal"
            await drained(app, app.advance(1))
            assert "SignalTimeout" in str((await waiter.get()).error)
            await drained(app, app.retry(waiter.id))
        await drained(app, waiter.signal("y", 3))
        assert await waiter.result(timeout=0) == 3


async def test_x8_a_retry_withdraws_operations_that_only_the_failed_attempt_requested(store: Store) -> None:
    calls, flaky = Calls(), Flaky()

    @workflow
    async def waits(ctx: FunctionContext) -> None:
        await ctx.wait_for_signal("never")

    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        try:
            await ctx.run(flaky.run)
        except RunFailed:
            await ctx.awakeable(title="what now?")
            ctx.call(waits, id="helper")
            await ctx.run(calls.note, "looked")
            raise
        await ctx.wait_for_signal("go")

    async with parked(store, asks, waits) as (app, it):
        flaky.fix()
        await drained(app, app.retry(it.id))
        assert [wait.name for wait in (await it.get()).waits] == ["go"]
        [question] = await app.awakeables()
        assert question.status == "CANCELLED"
        assert (await app.get("helper")).status == "cancelled"


# -- runs ------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_wait_concurrent_with_a_run_is_answered_after_a_restart_too(store: Store) -> None:
    begun: list[str] = []

    async def forever(name: str) -> None:
        begun.append(name)
        await asyncio.Event().wait()

    @workflow
    async def hears(ctx: FunctionContext) -> Any:
        return (await ctx.first(ctx.run(forever, "hears"), ctx.wait_for_signal("x")))[0]

    @workflow
    async def sleeps(ctx: FunctionContext) -> Any:
        return (await ctx.first(ctx.run(forever, "sleeps"), ctx.sleep(0.3)))[0]

    async with Hark(store.url, **store.options) as app:
        app.register(hears, sleeps)
        async with app.worker(grace=0):
            both = [await app.start(hears), await app.start(sleeps)]
            await until(lambda: len(begun) == 2, "both to begin")
        async with app.worker(grace=0):
            # On a slow machine the other one's time may be over: then it does not begin again.
            await until(lambda: begun.count("hears") == 2, "the one without a timer to begin again")
            await both[0].signal("x")
            assert [await it.result(timeout=60) for it in both] == [1, 1]


async def test_claims_not_yet_started_when_the_worker_stops_do_not_start(store: Store) -> None:
    """Hundreds are claimed at once; each waits in its run: the shared task starts one of them per loop iteration."""
    begun: list[int] = []
    alive = 0

    async def forever(n: int) -> None:
        nonlocal alive
        begun.append(n)
        alive += 1
        try:
            await asyncio.Event().wait()
        finally:
            alive -= 1

    @workflow
    async def waits(ctx: FunctionContext, n: int) -> None:
        await ctx.run(forever, n)

    async with Hark(store.url, **store.options) as app:
        app.register(waits)
        for n in range(60):
            await app.start(waits, {"n": n})
        async with app.worker(grace=0):
            await until(lambda: begun, "one to begin")
        seen = len(begun)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(begun) == seen
        assert alive == 0
        assert {one.status for one in await app.list(limit=100)} == {"runnable"}


async def test_a4_an_answer_in_time_is_not_a_timeout_if_it_is_read_late(store: Store) -> None:
    """It executes, so only it can fire its own deadline; when it checks, the deadline is past and it is answered."""

    @workflow
    async def races(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable(timeout=10)
        return (await ctx.first(ctx.run(hang), question))[1]

    async with harness(store, races) as app:
        async with app.worker():
            it = await app.start(races)
            await until(app.awakeables, "the question")
            [question] = await app.awakeables()
            worker: Any = app._clerk.worker
            notify = worker.notify

            def notify_late(*signalled: Any) -> None:
                app.clock.now += 11_000_000
                notify(*signalled)

            worker.notify = notify_late
            await app.resolve(question.id, "in time")
            assert await it.result(timeout=20) == "in time"
        told = [event.data for event in await app.events(it) if event.type == "awakeable"]
        assert [data["status"] for data in told if data] == ["PENDING", "RESOLVED"]


@pytest.mark.parametrize("together", [True, False], ids=["in one turn", "one after the other"])
@pytest.mark.parametrize("how", ["first", "gather", "anew", "retry"])
async def test_a4_an_instance_answered_twice_that_runs_after_its_deadlines_has_no_timeout(
    store: Store, how: str, together: bool
) -> None:
    """The first answer wakes it and leaves its wait unmarked; that wait never fires."""
    flaky = Flaky()

    @workflow
    async def asks(ctx: FunctionContext, again: bool = False) -> Any:
        a, b = await ctx.awakeable(timeout=10, title="a"), await ctx.awakeable(timeout=20, title="b")
        match how:
            case "first":
                found: Any = await ctx.first(a, b)
            case "gather":
                found = await ctx.gather(a, b)
            case "anew":
                return "anew" if again else ctx.continue_as_new({"again": bool(await a)})
            case _:
                found = [await a]
                await ctx.run(flaky.run)
                found.append(await b)
        await ctx.sleep(100)
        return found

    async with parked(store, asks) as (app, it):
        ids = {question.title: question.id for question in await app.awakeables(job=it.id)}
        answers = [app.resolve(ids["a"], "A"), app.resolve(ids["b"], "B")]
        if together:
            await asyncio.gather(*answers)
        else:
            for answer in answers:
                await answer
        await drained(app, app.advance(30))
        if how == "retry":
            assert (await it.get()).status == "failed"
            flaky.fix()
            await app.retry(it.id)
            await drained(app, app.advance(30))
        await drained(app, app.advance(101))
        results = {"first": [0, "A"], "gather": ["A", "B"], "anew": "anew", "retry": ["A", "B"]}
        assert await it.result() == results[how]
        told = [event.data for event in await app.events(it) if event.type == "awakeable"]
        assert [data["status"] for data in told if data and data["status"] != "PENDING"] == ["RESOLVED", "RESOLVED"]
        assert await app.waits() == []
