"""Reading ahead in a replay: what the code does between `ctx.run` and `await` has the same effect as without it."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hark import FunctionContext, Instance, InstanceHeld, InvalidOutcome, RunFailed, workflow
from hark.model.errors import NonDeterministic
from hark.programs.functions.branches import Suspended
from hark.testing import Harness


async def one() -> int:
    return 1


async def two() -> int:
    return 2


async def fail() -> None:
    raise KeyError("x")


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self) -> int:
        return 3


Body = Callable[[FunctionContext], Any]


async def replayed(function: Any, times: int = 1, before: Callable[[], None] = lambda: None) -> Instance:
    """Start a function that waits for `go` so many times. Each is a replay; `before` is called before the first one."""
    async with Harness(function) as app:
        it = await app.start(function)
        await app.drain()
        before()
        for _ in range(times):
            await it.signal("go")
            with contextlib.suppress(InstanceHeld):
                await app.drain()
        return await it.get()


async def awaited_in_another_order(ctx: FunctionContext) -> Any:
    first, second = ctx.run(one), ctx.run(two)
    return [await second, await first, await second]


async def gathered(ctx: FunctionContext) -> Any:
    return [await ctx.gather(ctx.run(one), ctx.run(two)), await ctx.run(one)]


async def first_of_one(ctx: FunctionContext) -> Any:
    return [await ctx.first(ctx.run(one)), await ctx.run(two)]


async def withdrawn_at_once(ctx: FunctionContext) -> Any:
    done = ctx.run(one)
    await done
    return [await ctx.first(done, ctx.run(two)), await ctx.run(two)]


async def in_a_branch(ctx: FunctionContext) -> Any:
    async def branch() -> int:
        return await ctx.run(one) + await ctx.run(two)

    before = ctx.run(one)
    return [await ctx.gather(branch(), before), await ctx.run(two)]


async def caught(ctx: FunctionContext) -> Any:
    failing = ctx.run(fail)
    found = []
    for _ in range(2):
        try:
            await failing
        except RunFailed as error:
            found.append(error.type)
    return [found, await ctx.run(one)]


async def other_callables(ctx: FunctionContext) -> Any:
    return [await ctx.run(Unhashable()), await ctx.run(lambda: 4), await ctx.run("ab".upper)]


async def between_other_operations(ctx: FunctionContext) -> Any:
    run = ctx.run(one)
    at = await ctx.now()
    slept = ctx.sleep(0)
    return [await run, at == at, await slept, ctx.random() < 1, await ctx.run(two)]


async def from_another_thread(ctx: FunctionContext) -> Any:
    found: list[BaseException] = []

    def use() -> None:
        try:
            ctx.run(one)
        except InvalidOutcome as error:
            found.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    return [len(found), await ctx.run(one)]


async def in_a_generator_that_is_closed(ctx: FunctionContext) -> Any:
    found: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield await ctx.run(one)
        finally:
            try:
                await ctx.run(two)
            except Suspended:
                found.append("suspended")
                raise

    async def take() -> int:
        async for number in numbers():
            return number
        return 0

    taken = await take()
    gc.collect()
    return [taken, found, await ctx.run(two), await ctx.run(one)]


BODIES = [
    awaited_in_another_order, gathered, first_of_one, withdrawn_at_once, in_a_branch, caught, other_callables,
    between_other_operations, from_another_thread, in_a_generator_that_is_closed,
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
async def test_a_replay_gives_the_code_what_it_received_before(body: Body) -> None:
    found: list[Any] = []

    @workflow
    async def function(ctx: FunctionContext) -> Any:
        found.append(await body(ctx))
        for _ in range(2):
            await ctx.wait_for_signal("go")
        return found[-1]

    assert (await replayed(function, times=2)).status == "done"
    assert len(found) == 3
    assert found[0] == found[1] == found[2]


async def test_a_run_that_was_asked_for_and_not_awaited_is_reported_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @workflow
    async def forgetful(ctx: FunctionContext) -> None:
        ctx.run(one)  # this line
        await ctx.run(two)
        await ctx.wait_for_signal("go")

    assert (await replayed(forgetful)).status == "done"
    [text] = [record.getMessage() for record in caplog.records if "never awaited" in record.getMessage()]
    line = forgetful.__wrapped__.__code__.co_firstlineno + 2
    assert f"run one, asked for at {__file__}:{line}: its result was not read" in text


async def test_what_is_logged_before_the_last_await_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    @workflow
    async def talkative(ctx: FunctionContext) -> None:
        run = ctx.run(one)
        ctx.log.info("asked")
        await run
        ctx.log.info("received")
        await ctx.wait_for_signal("go")

    with caplog.at_level(logging.INFO, "hark.workflow"):
        assert (await replayed(talkative)).status == "done"
    said = [record.getMessage() for record in caplog.records if record.name == "hark.workflow"]
    assert said == ["asked", "received"]


async def test_v3_a_stored_value_that_no_longer_fits_holds_the_instance_where_it_is_awaited() -> None:
    @dataclass
    class Receipt:
        number: int

    async def charge() -> Any:
        return {"number": "one"}

    del charge.__annotations__["return"]  # what reads the results of an annotated function is cached

    @workflow
    async def shop(ctx: FunctionContext) -> None:
        run = ctx.run(charge)
        with contextlib.suppress(Exception):
            await run
        await ctx.wait_for_signal("go")

    def change() -> None:
        charge.__annotations__["return"] = Receipt

    found = await replayed(shop, before=change)
    assert found.status == "held"
    assert "InvalidState" in (found.error or "")


@pytest.mark.parametrize(
    ("changed", "expected", "made"),
    [
        (lambda ctx: ctx.run(two), "run one", "run two"),
        (lambda ctx: ctx.run(one, name="uno"), "run one", "run uno"),
        (lambda ctx: ctx.sleep(1), "run one", "sleep"),
    ],
)
async def test_another_operation_in_the_middle_of_a_long_replay_has_diverged(
    changed: Callable[[FunctionContext], Any], expected: str, made: str
) -> None:
    replays = 0

    @workflow
    async def long(ctx: FunctionContext) -> None:
        nonlocal replays
        replays += 1
        for nth in range(20):
            await (changed(ctx) if nth == 13 and replays > 1 else ctx.run(one))
        await ctx.wait_for_signal("go")

    error = (await replayed(long)).error
    text = f"at entry 13 the journal has {expected}, the code has {made}"
    assert error is not None
    assert error.startswith(NonDeterministic.__name__)
    assert text in error
