"""The memory of an activation of a function is freed at once, without the garbage collector (FINDINGS 72)."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import Any

import pytest

from hark import FunctionContext, Hark, workflow

MANY = 50


async def nothing() -> None:
    pass


@workflow
async def asks(ctx: FunctionContext, kept: bool = False) -> Any:
    await ctx.run(nothing)
    question = await ctx.awakeable(timeout=3600)
    await ctx.gather(ctx.run(nothing), ctx.run(nothing))
    return await ctx.first(question, ctx.wait_for_signal("go", timeout=3600), ctx.sleep(3600))


@pytest.mark.parametrize("resident", [0, 2 * MANY], ids=["replayed", "resident"])
async def test_functions_that_park_and_end_leave_no_reference_cycles(resident: int) -> None:
    app = Hark("sqlite://", resident_functions=resident)
    app.register(asks)
    async with app, app.worker():
        await _run(app)  # what is made once, such as caches
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            await _run(app)
            await asyncio.sleep(0.01)
            gc.collect()
            left = Counter(type(one).__name__ for one in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.enable()
            gc.garbage.clear()
    assert not {"Session", "Claim", "Branch", "Journal", "FunctionInbox"} & left.keys(), left


async def _run(app: Hark) -> None:
    handles = await app.start_many([(asks, None)] * MANY)
    while len(await app.waits(kind="awakeable")) < MANY:
        await asyncio.sleep(0.01)
    for handle in handles:
        await handle.signal("go")
    for handle in handles:
        await handle.result(timeout=30)
