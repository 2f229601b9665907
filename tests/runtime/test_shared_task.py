"""A round of steps in one task: each of them must not notice that it was not given a task of its own."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, step
from tests.support.stores import Store

_SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nobody")


class Odd(Machine):
    """Does what its input says, in a round with others."""

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
            case "cancelled for nothing":
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
_HOWS = ["plain", "wait", "timeout", "group", "cancelled for nothing", "cancels itself", *sorted(_FAILS)]


@pytest.mark.parametrize("third", _HOWS)
async def test_each_step_of_a_round_sees_its_own_context_task_and_cancels(store: Store, third: str) -> None:
    async with Hark(store.url, **store.options) as app:
        app.register(Odd)
        kinds = ["plain", "plain", third, *(_HOWS * 12)]
        odd = [await app.start(Odd, {"how": how}) for how in kinds]
        async with app.worker():
            for how, one in zip(kinds, odd, strict=True):
                ended = await _end(app, one)
                if how in _FAILS:
                    assert ended.status == "failed", how
                else:
                    assert ended.result == ["nobody", how, int(how == "cancels itself")], (how, ended)


async def _end(app: Hark, one: Any) -> Any:
    async def ended() -> Any:
        while (instance := await one.get()).status not in ("done", "failed"):
            await asyncio.sleep(0.005)
        return instance

    return await asyncio.wait_for(ended(), 30)
