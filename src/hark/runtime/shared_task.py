"""A relay: many coroutines in one task, one after the other, for as long as none of them waits.

A task for every step costs more than most steps. So a round of steps shares one; the first that really
waits for something keeps the task for itself, and the others go on in another. Each coroutine sees one task
from its beginning to its end, and has a context of its own, as if the task were made for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T", contravariant=True)
Task = asyncio.Task[None]


class Round(Protocol, Generic[T]):
    """Whose coroutines these are."""

    def begin(self, item: T) -> Coroutine[Any, Any, None] | None:
        """The coroutine of an item; None when nobody wants it any more."""
        ...

    def waits(self, item: T, task: Task) -> None:
        """This item has the task for itself now."""
        ...


def run(owner: Round[T], items: deque[T]) -> Task:
    return asyncio.get_running_loop().create_task(_relay(owner, items))


async def _relay(owner: Round[T], items: deque[T]) -> None:
    task = asyncio.current_task()
    assert task is not None
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
            owner.waits(item, task)
            _pass_on(owner, items)
            await _Rest(coroutine, context, awaited)
        if task.cancelling():  # it asked for that itself: whoever comes next is not meant
            _pass_on(owner, items)


def _pass_on(owner: Round[T], items: deque[T]) -> None:
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
