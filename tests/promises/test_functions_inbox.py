"""A function with thousands of signals that it does not ask for: a commit reads only what is new (FINDINGS 35)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hark import FunctionContext, Hark, RunFailed, workflow
from tests.support.harness import drained, harness
from tests.support.inspect import rows_read
from tests.support.stores import Store

UNASKED = 300


async def note(n: int) -> int:
    return n


async def send_unasked(app: Hark, target: Any) -> None:
    await asyncio.gather(*(app.signal(target, "noise", n) for n in range(UNASKED)))


async def test_a_commit_does_not_read_known_signals_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    @workflow
    async def busy(ctx: FunctionContext) -> list[int]:
        await ctx.wait_for_signal("go")
        found = [await ctx.run(note, n) for n in range(20)]
        await ctx.wait_for_signal("end")
        return found

    async with harness(store, busy, one_call_turns=False) as app:  # the statements are counted
        it = await drained(app, app.start(busy))
        await send_unasked(app, it)
        await it.signal("go")
        with rows_read(store, monkeypatch, "inbox", "inbox_heads") as counts:
            await app.drain()
        assert sum(counts) == UNASKED + 1, "its claim reads the inbox, its commits and its park read nothing"
        await drained(app, it.signal("end"))
        assert await it.result() == list(range(20))


async def test_each_signal_is_read_once_while_the_function_takes_them_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    @workflow
    async def counts_them(ctx: FunctionContext) -> list[int]:
        await ctx.wait_for_signal("go")
        found = []
        for _ in range(20):
            found.append((await ctx.wait_for_signal("noise")).payload)
            await ctx.run(note, 1)
        return found

    async with harness(store, counts_them, one_call_turns=False) as app:  # the statements are counted
        it = await drained(app, app.start(counts_them))
        await send_unasked(app, it)
        await it.signal("go")
        with rows_read(store, monkeypatch, "inbox", "inbox_heads") as counts:
            await app.drain()
        assert sum(counts) == UNASKED + 1
        assert await it.result() == list(range(20))


async def test_signals_that_arrive_while_it_runs_are_found_in_order(store: Store) -> None:
    asked: list[asyncio.Event] = [asyncio.Event() for _ in range(3)]
    sent: list[asyncio.Event] = [asyncio.Event() for _ in range(3)]

    async def meanwhile(n: int) -> None:
        asked[n].set()
        await sent[n].wait()

    @workflow
    async def busy(ctx: FunctionContext) -> list[Any]:
        for n in range(3):
            await ctx.run(meanwhile, n)
        found = []
        for name in ("b", "a", "a"):
            found.append((await ctx.wait_for_signal(name)).payload)
            await ctx.run(note, 1)
        return found

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(busy)
        for n in range(3):
            await asyncio.wait_for(asked[n].wait(), 20)
            await it.signal("b" if n == 2 else "a", n)
            await it.signal("noise")
            sent[n].set()
        assert await it.result(timeout=20) == [2, 0, 1]


async def test_a_park_sees_a_signal_that_arrived_since_the_inbox_was_read(store: Store) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def meanwhile() -> None:
        begun.set()
        await go.wait()

    @workflow
    async def waits(ctx: FunctionContext) -> Any:
        await ctx.wait_for_signal("go")
        await ctx.run(meanwhile)
        return (await ctx.wait_for_signal("late")).payload

    async with Hark(store.url, **store.options) as app, app.worker():
        it = await app.start(waits)
        await send_unasked(app, it)
        await it.signal("go")
        await asyncio.wait_for(begun.wait(), 20)
        await it.signal("late", "in time")
        go.set()
        assert await it.result(timeout=20) == "in time"


async def test_a_retry_gets_back_the_signals_that_its_cut_lines_had_consumed(store: Store) -> None:
    fixed: list[bool] = []

    async def fail() -> None:
        if not fixed:
            raise OSError("not yet")

    @workflow
    async def takes(ctx: FunctionContext) -> list[Any]:
        first = (await ctx.wait_for_signal("noise")).payload
        try:
            await ctx.run(fail)
        except RunFailed:
            await ctx.wait_for_signal("noise")  # consumed by the failed attempt
            raise
        second = (await ctx.wait_for_signal("noise")).payload
        await ctx.run(note, 1)
        third = (await ctx.wait_for_signal("noise")).payload
        return [first, second, third]

    async with harness(store, takes) as app:
        it = await app.start(takes)
        for n in range(4):
            await it.signal("noise", n)
        await app.drain()
        assert (await it.get()).status == "failed"
        fixed.append(True)
        await drained(app, app.retry(it))
        assert await it.result() == [0, 1, 2]
