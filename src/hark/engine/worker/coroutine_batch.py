"""Run several coroutines in one asyncio task, one after the other, as long as none of them has to wait.

A task for every step costs more than most steps. So all steps that begin together share one; the first that has to wait
keeps the task for itself, and the others continue in another. Each coroutine sees the same task from its first line to
its last, and has a context of its own, as if the task were made for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

from hark.engine.worker.contained_tasks import in_activation

T = TypeVar("T", contravariant=True)
Task = asyncio.Task[None]


class Owner(Protocol, Generic[T]):
    """Makes the coroutines that share a task."""

    def begin(self, item: T) -> Coroutine[Any, Any, None] | None:
        """Return the coroutine of an item; None if it is no longer needed."""

    def keep_task(self, item: T, task: Task) -> None:
        """Give the asyncio task to the coroutine of this item, which has to wait."""


def run(owner: Owner[T], items: deque[T]) -> Task:
    """Run the coroutines of all items, in their order."""
    return asyncio.get_running_loop().create_task(_run_all(owner, items))


async def _run_all(owner: Owner[T], items: deque[T]) -> None:
    task = asyncio.current_task()
    assert task is not None
    in_activation.set(True)  # for all of them: each has a copy of this context
    while items:
        item = items.popleft()
        coroutine = owner.begin(item)
        if coroutine is None:
            continue
        context = contextvars.copy_context()
        try:
            awaited = context.run(coroutine.send, None)
        except StopIteration:
            pass
        else:
            owner.keep_task(item, task)
            _run_in_another(owner, items)
            await _Rest(coroutine, context, awaited)
        if task.cancelling():  # the coroutine cancelled its own task: that must not reach the next one
            _run_in_another(owner, items)


def _run_in_another(owner: Owner[T], items: deque[T]) -> None:
    if items:
        run(owner, deque(items))
        items.clear()


class _Rest:
    """The rest of a coroutine that waits, in the context it began in."""

    __slots__ = ("_awaited", "_context", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context, awaited: Any) -> None:
        self._coroutine = coroutine
        self._context = context
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        coroutine, run, awaited = self._coroutine, self._context.run, self._awaited
        try:
            while True:
                try:
                    value = yield awaited
                except GeneratorExit:
                    run(coroutine.close)
                    raise
                except BaseException as error:
                    awaited = run(coroutine.throw, error)
                else:
                    awaited = run(coroutine.send, value)
        except StopIteration:
            return
