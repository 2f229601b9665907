"""`ctx.progress` and `Instance.progress`: a small value for people and queries, written with the next commit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hark import (
    Context,
    Done,
    FunctionContext,
    Hark,
    InvalidInput,
    Machine,
    Next,
    Outcome,
    PayloadTooLarge,
    Retry,
    step,
    workflow,
)
from tests.support.harness import drained, harness, parked
from tests.support.stores import Store


async def test_a_function_that_continues_as_new_shows_progress_from_its_first_line_on(store: Store) -> None:
    @workflow
    async def pages(ctx: FunctionContext, page: int) -> Any:
        ctx.progress(page)
        return ctx.continue_as_new({"page": page + 1}) if page < 3 else page

    async with parked(store, pages, input={"page": 1}) as (_, it):
        assert (await it.result(), (await it.get()).progress) == (3, 3)


async def test_a_function_shows_its_progress_while_it_runs_and_waits(store: Store) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def build() -> None:
        begun.set()
        await go.wait()

    @workflow
    async def deploy(ctx: FunctionContext) -> None:
        ctx.progress("building")
        await ctx.run(build)
        ctx.progress({"stage": "asking", "of": 2})
        await ctx.wait_for_signal("ok")
        ctx.progress("released")

    async with Hark(store.url, **store.options) as app:
        app.register(deploy)
        async with app.worker():
            it = await app.start(deploy)
            await asyncio.wait_for(begun.wait(), 20)
            assert (await it.get()).progress == "building"
            go.set()
            parked = await it.wait_for("awaiting_signal", timeout=20)
            assert parked.progress == {"stage": "asking", "of": 2}
            await it.signal("ok")
            await it.result(timeout=20)
            assert (await it.get()).progress == "released"
            [listed] = await app.list()
            assert listed.progress == "released"


async def test_a_replay_does_not_write_an_earlier_progress_again(store: Store) -> None:
    @workflow
    async def counts(ctx: FunctionContext) -> None:
        for n in range(3):
            await ctx.wait_for_signal("go")
            if n < 2:
                ctx.progress(n)

    async with harness(store, counts) as app:
        it = await app.start(counts)
        for expected in (None, 0, 1, 1):
            await app.drain()
            assert (await it.get()).progress == expected
            if (await it.get()).status != "done":
                await it.signal("go")


async def test_a_function_that_fails_keeps_what_it_said_last(store: Store) -> None:
    @workflow
    async def fails(ctx: FunctionContext) -> None:
        ctx.progress("almost")
        raise ValueError("no")

    async with parked(store, fails) as (_, it):
        found = await it.get()
        assert (found.status, found.progress) == ("failed", "almost")


async def test_a_machine_writes_its_progress_with_its_outcome(store: Store) -> None:
    class Loop(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            ctx.progress("first")
            ctx.progress({"done": 1})
            return Next(self.middle)

        @step
        async def middle(self, ctx: Context) -> Outcome:
            if ctx.attempt == 0:
                ctx.progress("dropped")
                raise OSError("once")
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Outcome:
            return Retry(60)

    async with parked(store, Loop) as (app, it):
        assert (await it.get()).progress == {"done": 1}
        await drained(app, app.advance(60))
        found = await it.get()
        assert (found.status, found.progress) == ("done", {"done": 1})


async def test_handle_can_set_the_progress(store: Store) -> None:
    class Fails(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            ctx.progress("dropped")
            raise OSError("once")

        def handle(self, error: Exception, ctx: Context) -> Outcome:
            ctx.progress("handled")
            return Done()

    async with parked(store, Fails) as (_, it):
        assert (await it.get()).progress == "handled"


async def test_a_progress_that_is_large_or_not_json_raises_at_the_call(store: Store) -> None:
    seen: list[Exception] = []

    @workflow
    async def sloppy(ctx: FunctionContext) -> None:
        for value in ("x" * (1 << 14), object(), float("nan")):
            try:
                ctx.progress(value)
            except InvalidInput as error:
                seen.append(error)

    class Sloppy(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            with pytest.raises(PayloadTooLarge, match="16386 bytes of JSON and 16384 are allowed"):
                ctx.progress("x" * (1 << 14))
            ctx.progress("x" * ((1 << 14) - 2))
            return Done()

    async with harness(store, sloppy, Sloppy) as app:
        await app.start(sloppy)
        it = await drained(app, app.start(Sloppy))
        assert len((await it.get()).progress) == (1 << 14) - 2
    assert [type(error) for error in seen] == [PayloadTooLarge, InvalidInput, InvalidInput]


async def test_the_progress_is_kept_by_a_cancel_and_a_new_visit(store: Store) -> None:
    @workflow
    async def again(ctx: FunctionContext, n: int = 0) -> Any:
        if n == 0:
            ctx.progress("first visit")
            return ctx.continue_as_new({"n": 1})
        await ctx.wait_for_signal("never")

    async with parked(store, again) as (_, it):
        assert (await it.get()).progress == "first visit"
        await it.cancel()
        assert (await it.get()).progress == "first visit"
