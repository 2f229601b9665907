"""Several steps share one task: to each of them it looks like a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from hark import Conflict, Context, Done, Hark, Machine, step
from tests.support.stores import Store

_SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="unset")


class Odd(Machine):
    """Does what its input says, in a task that it shares with others."""

    @step
    async def start(self, ctx: Context) -> Done:
        how = ctx.state["how"]
        before = _SEEN.get()
        _SEEN.set(how)
        task = asyncio.current_task()
        assert task is not None
        match how:
            case "wait":
                await asyncio.sleep(0.01)
            case "timeout":
                try:
                    async with asyncio.timeout(0.01):
                        await asyncio.Event().wait()
                except TimeoutError:
                    pass
            case "group":
                async with asyncio.TaskGroup() as group:
                    for _ in range(3):
                        group.create_task(asyncio.sleep(0))
            case "cancels itself":
                task.cancel()
            case "cancels itself and waits":
                task.cancel()
                await asyncio.sleep(0)
            case "cancels itself and recovers":
                task.cancel()
                try:
                    await asyncio.sleep(0)
                except asyncio.CancelledError:
                    task.uncancel()
            case "raises":
                raise ValueError(how)
        assert asyncio.current_task() is task
        return Done([before, _SEEN.get(), task.cancelling()])


_FAILS = {"raises", "cancels itself and waits"}
_HOWS = ["plain", "wait", "timeout", "group", "cancels itself and recovers", "cancels itself", *sorted(_FAILS)]


@pytest.mark.parametrize("third", _HOWS)
async def test_each_step_in_a_shared_task_has_its_own_context_task_and_cancellation(store: Store, third: str) -> None:
    async with Hark(store.url, **store.options) as app:
        app.register(Odd)
        kinds = ["plain", "plain", third, *(_HOWS * 12)]
        odd = [await app.start(Odd, {"how": how}) for how in kinds]
        async with app.worker():
            for how, one in zip(kinds, odd, strict=True):
                ended = await _end(one)
                if how in _FAILS:
                    assert ended.status == "failed", how
                else:
                    assert ended.result == ["unset", how, int(how == "cancels itself")], (how, ended)


async def _end(one: Any) -> Any:
    try:
        return await one.wait_for("done", timeout=30)
    except Conflict:
        return await one.get()
