"""The options of `ctx.run`: keyword arguments, a timeout, and a policy of retries."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from hark import FunctionContext, Hark, InstanceFailed, InvalidInput, RetryPolicy, RunFailed, workflow
from hark.model.retry_policy import allows_retry, delay_before
from tests.promises.support_functions import Flaky, failure_of, hang, one
from tests.support.harness import drained, harness, parked
from tests.support.stores import Store

# -- keyword arguments -----------------------------------------------------------------------------


async def test_a_run_passes_keyword_arguments(store: Store) -> None:
    async def slow(a: int, *, b: int) -> list[int]:
        return [a, b]

    def plain(a: int, *, b: int = 0) -> list[int]:
        return [a, b]

    @workflow
    async def both(ctx: FunctionContext) -> Any:
        first = await ctx.run(slow, 1, kwargs={"b": 2})
        return [first, await ctx.run(plain, kwargs={"a": 3, "b": 4}), await ctx.run(plain, 5, kwargs={})]

    async with parked(store, both) as (_, it):
        assert await it.result() == [[1, 2], [3, 4], [5, 0]]


# -- failures --------------------------------------------------------------------------------------


async def takes_one(a: int) -> int:
    return a


async def ignores_its_cancellation() -> str:
    try:
        await hang()
    except asyncio.CancelledError:
        return "late"
    return "never"


async def is_refused() -> None:
    raise TimeoutError("the bank did not answer")


async def cancels_itself() -> None:
    task = asyncio.ensure_future(asyncio.sleep(10))
    task.cancel()
    await task


NO_B = "takes_one() got an unexpected keyword argument 'b'"
NO_JSON = (
    "The result of <lambda> contains object at $[1], which has no JSON; use dicts with text keys, lists, text, "
    "numbers, a dataclass, a msgspec Struct or a pydantic model"
)
TOO_LATE = "it did not end within its timeout of 0.01 s"


@pytest.mark.parametrize(
    ("function", "options", "type", "message"),
    [
        pytest.param(takes_one, {"kwargs": {"b": 2}}, "TypeError", NO_B, id="unknown keyword argument"),
        pytest.param(lambda: [1, object()], {}, "InvalidInput", NO_JSON, id="result that cannot be written"),
        pytest.param(ignores_its_cancellation, {"timeout": 0.01}, "TimeoutError", TOO_LATE, id="timeout"),
        pytest.param(is_refused, {"timeout": 60}, "TimeoutError", "the bank did not answer", id="error of its own"),
        pytest.param(cancels_itself, {}, "CancelledError", "", id="cancels itself"),
    ],
)
async def test_a_run_fails_with_the_error_of_its_function_or_of_its_timeout(
    store: Store, function: Any, options: dict[str, Any], type: str, message: str
) -> None:
    async with parked(store, failure_of(function, **options)) as (_, it):
        assert await it.result() == [type, message]


# -- timeout ---------------------------------------------------------------------------------------


async def test_a_timeout_ends_an_async_run(store: Store) -> None:
    ended: list[str] = []

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @workflow
    async def patient(ctx: FunctionContext) -> Any:
        try:
            await ctx.run(hang, timeout=0.01)
        except RunFailed as error:
            await ctx.wait_for_signal("go")  # the replay sees the same error
            return [error.type, error.message]

    async with parked(store, patient) as (app, it):
        assert ended == ["cancelled"]
        await drained(app, it.signal("go"))
        assert await it.result() == ["TimeoutError", TOO_LATE]
        assert ended == ["cancelled"]


async def test_a_timeout_or_a_cancellation_ends_one_of_several_runs(store: Store) -> None:
    @workflow
    async def beside(ctx: FunctionContext) -> Any:
        runs = ctx.run(hang, timeout=timedelta(milliseconds=10)), ctx.run(one, timeout=60), ctx.run(cancels_itself)
        late, done, cancelled = await ctx.gather(*runs, return_exceptions=True)
        return [late.type, done, cancelled.type]

    async with parked(store, beside) as (_, it):
        assert await it.result() == ["TimeoutError", 1, "CancelledError"]


async def test_a_plain_function_that_times_out_runs_to_its_end_and_its_result_is_dropped(store: Store) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def block() -> str:
        may_end.wait(30)
        ended.set()
        return "late"

    async with parked(store, failure_of(block, timeout=0.01)) as (_, it):
        assert (await it.result())[0] == "TimeoutError"
        assert not ended.is_set()
        may_end.set()
        await asyncio.to_thread(ended.wait, 30)
        assert (await it.result())[0] == "TimeoutError"


async def test_a_timeout_counts_as_an_attempt(store: Store) -> None:
    tries: list[int] = []

    async def slow_at_first() -> str:
        tries.append(1)
        if len(tries) < 3:
            await asyncio.Event().wait()
        return "there"

    @workflow
    async def patient(ctx: FunctionContext) -> str:
        return await ctx.run(slow_at_first, timeout=0.01, retries=2, backoff=10)

    async with harness(store, patient) as app:
        it = await app.start(patient)
        for pause in (10, 20):
            await app.drain()
            await app.advance(pause)
        await app.drain()
        assert await it.result() == "there"
        assert len(tries) == 3


async def test_a_cancel_of_the_instance_is_not_taken_for_a_timeout(store: Store) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()
    tries: list[int] = []

    async def hang() -> None:
        tries.append(1)
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @workflow
    async def patient(ctx: FunctionContext) -> None:
        await ctx.run(hang, timeout=600, retries=5, backoff=0)

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(patient)
        await asyncio.wait_for(begun.wait(), 20)
        await it.cancel("enough")
        await asyncio.wait_for(ended.wait(), 20)
        assert (await it.get()).status == "cancelled"
    assert tries == [1]


# -- a policy of retries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "pauses"),
    [
        pytest.param({"retries": 3, "backoff": 10}, (10, 20, 40), id="a number"),
        pytest.param(
            {"retries": RetryPolicy(4, delay=10, factor=3, max_delay=timedelta(seconds=50))}, (10, 30, 50, 50),
            id="a policy",
        ),
    ],
)  # fmt: skip
async def test_retries_wait_without_a_slot_and_after_the_last_one_the_run_has_failed(
    store: Store, options: dict[str, Any], pauses: tuple[int, ...]
) -> None:
    flaky = Flaky()

    @workflow
    async def stubborn(ctx: FunctionContext) -> Any:
        return await ctx.run(flaky.run, **options)

    async with parked(store, stubborn) as (app, it):
        for number, pause in enumerate(pauses, 1):
            assert flaky.tries == number
            assert (await it.get()).status == "awaiting_signal"
            await app.advance(pause - 1)
            assert await app.drain() == {"steps": 0}
            await drained(app, app.advance(1))
        assert flaky.tries == len(pauses) + 1
        with pytest.raises(InstanceFailed, match="run raised OSError: no"):
            await it.result()


async def test_an_error_in_unless_is_not_retried(store: Store) -> None:
    tries: list[str] = []

    class Refused(ValueError):
        """A ValueError too."""

    async def pay(error: type[Exception]) -> None:
        tries.append(error.__name__)
        raise error("no")

    @workflow
    async def payment(ctx: FunctionContext) -> list[Any]:
        policy = RetryPolicy(3, delay=0, unless=(ValueError, LookupError))
        found = await ctx.gather(
            ctx.run(pay, Refused, retries=policy), ctx.run(pay, KeyError, retries=policy), return_exceptions=True
        )
        return [error.type for error in found if isinstance(error, RunFailed)]

    async with parked(store, payment) as (_, it):
        assert await it.result() == ["Refused", "KeyError"]
    assert sorted(tries) == ["KeyError", "Refused"]


async def test_the_delay_with_jitter_is_chosen_once(store: Store) -> None:
    flaky = Flaky(1)

    @workflow
    async def stubborn(ctx: FunctionContext) -> Any:
        waiting = ctx.wait_for_signal("go")
        run = ctx.run(flaky.run, retries=RetryPolicy(1, delay=1000, jitter=True))
        return await ctx.gather(run, waiting)

    async with parked(store, stubborn) as (app, it):
        [timer] = [wait for wait in await app.waits() if wait.kind == "timer"]
        assert timer.deadline is not None
        assert 500 <= (timer.deadline - timer.since).total_seconds() <= 1000
        await drained(app, it.signal("go"))  # replays the function: its timer stays
        [again] = [wait for wait in await app.waits() if wait.kind == "timer"]
        assert again.deadline == timer.deadline
        await drained(app, app.advance(1000))
        assert flaky.tries == 2


def test_delays_grow_by_the_factor_and_stay_within_their_bounds() -> None:
    assert [delay_before(RetryPolicy(9), n) for n in (1, 2, 3)] == [1_000_000, 2_000_000, 4_000_000]
    assert delay_before(RetryPolicy(1000, delay=0, factor=999_999), 1000) == 0
    century = 36_525 * 86_400 * 1_000_000
    assert delay_before(RetryPolicy(1000, factor=999_999), 1000) == century
    assert delay_before(RetryPolicy(1000, max_delay=60), 1000) == 60_000_000
    jittered = RetryPolicy(3, delay=8, jitter=True)
    assert all(4_000_000 <= delay_before(jittered, 1) <= 8_000_000 for _ in range(200))
    assert len({delay_before(jittered, 1) for _ in range(50)}) > 1


def test_a_policy_of_no_retries_allows_none() -> None:
    assert not allows_retry(RetryPolicy(0), 1, OSError())
    assert allows_retry(RetryPolicy(1, unless=ValueError), 1, OSError())  # type: ignore[arg-type]
    assert not allows_retry(RetryPolicy(1), 2, OSError())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"limit": -1}, "retries=-1"),
        ({"limit": True}, "retries=True"),
        ({"limit": 1001}, "0 to 1000"),
        ({"limit": 1, "delay": -1}, "delay"),
        ({"limit": 1, "delay": float("nan")}, "delay"),
        ({"limit": 1, "max_delay": "1 h"}, "max_delay"),
        ({"limit": 1, "factor": 0.5}, "factor=0.5"),
        ({"limit": 1, "factor": float("inf")}, "factor=inf"),
        ({"limit": 1, "jitter": 1}, "jitter=1"),
        ({"limit": 1, "unless": "ValueError"}, "unless=(ValueError,)"),
        ({"limit": 1, "unless": (ValueError("x"),)}, "exception classes"),
    ],
)
def test_a_malformed_policy_raises(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RetryPolicy(**options)
    assert named in str(refused.value)


# -- gather with exceptions ------------------------------------------------------------------------


async def test_gather_with_return_exceptions_waits_for_all_and_withdraws_nothing(store: Store) -> None:
    async def fail() -> None:
        raise KeyError("x")

    @workflow
    async def all_of_them(ctx: FunctionContext) -> Any:
        question = await ctx.awakeable(title="ok?")

        async def branch() -> None:
            await ctx.sleep(5)
            raise ValueError("in a branch")

        found = await ctx.gather(ctx.run(fail), question, branch(), return_exceptions=True)
        return [f"{type(one).__name__}: {one}" if isinstance(one, Exception) else one for one in found]

    async with parked(store, all_of_them) as (app, it):
        [question] = await app.awakeables()
        assert question.status == "PENDING"
        await drained(app, app.advance(5))
        assert (await it.get()).status == "awaiting_signal"
        await drained(app, app.resolve(question.id, "yes"))
        assert await it.result() == ["RunFailed: fail raised KeyError: 'x'", "yes", "ValueError: in a branch"]


async def test_gather_of_nothing_with_return_exceptions_is_an_empty_list(store: Store) -> None:
    @workflow
    async def nothing(ctx: FunctionContext) -> Any:
        return await ctx.gather(return_exceptions=True)

    async with parked(store, nothing) as (_, it):
        assert await it.result() == []


# -- assignees and calls ---------------------------------------------------------------------------


async def test_assignees_none_means_anyone(store: Store) -> None:
    seen: list[str] = []

    @workflow
    async def asks(ctx: FunctionContext) -> Any:
        for wrong in (5, "ann", b"ann", [5], [""]):
            try:
                await ctx.awakeable(assignees=wrong)  # type: ignore[arg-type]
            except InvalidInput as error:
                seen.append(str(error))
        return await (await ctx.awakeable(assignees=None))

    async with parked(store, asks) as (app, it):
        [question] = await app.awakeables()
        assert not question.assignees
        await drained(app, app.resolve(question.id, "yes", by="anyone"))
        assert await it.result() == "yes"
    assert len(seen) == 10  # five in each replay
    assert seen[0] == "assignees=5: give a list of names, or None for anyone."


async def test_the_error_of_a_call_says_once_that_the_child_was_cancelled(store: Store) -> None:
    @workflow
    async def child(ctx: FunctionContext) -> None:
        await ctx.wait_for_signal("never")

    @workflow
    async def parent(ctx: FunctionContext) -> Any:
        found = await ctx.gather(ctx.call(child, id="a"), ctx.call(child, id="b"), return_exceptions=True)
        return [str(error) for error in found]

    async with harness(store, child, parent) as app:
        it = await drained(app, app.start(parent))
        await app.cancel("a")
        await drained(app, app.cancel("b", "too late"))
        assert await it.result() == ["child a was cancelled", "child b was cancelled: too late"]
