"""Contain the exits of asyncio tasks that the code of activations makes (M5).

A task that calls `sys.exit` ends its event loop, before anything that awaits it hears of it: asyncio raises SystemExit
and KeyboardInterrupt out of the loop. So while a worker runs, its loop has a task factory under which the tasks made by
an activation raise `TaskExited` instead. Tasks that other code of the program makes are left alone.

A GeneratorExit becomes a RuntimeError, as in threads: asyncio throws it into the coroutine that awaits the task, which
Python takes for a request to close all of it, up to the code that is to run `handle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any

from hark.model.exits import TaskExited, comes_from_signal
from hark.model.failures import error_text

in_activation: ContextVar[bool] = ContextVar("hark_in_activation", default=False)
"""True in the context of an activation, and of all tasks, threads and callbacks that it makes."""


def contain_exits(loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
    """Give this loop the task factory; the function that is returned takes it away again."""
    before = loop.get_task_factory()

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Future[Any]:
        if in_activation.get():
            coroutine = _Contained(coroutine)
        if before is not None:
            return before(loop, coroutine, **options)
        return asyncio.Task(coroutine, loop=loop, **options)

    def remove() -> None:
        if loop.get_task_factory() is make_task:
            loop.set_task_factory(before)

    loop.set_task_factory(make_task)
    return remove


class _Contained(Coroutine[Any, Any, Any]):
    """A coroutine whose exit is a `TaskExited`. Not an `async def` around it: cancelled before its first line, that
    would leave a coroutine that was never awaited."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coroutine, name)  # its name and its frame, in tracebacks and in the names of tasks

    def send(self, value: Any) -> Any:
        try:
            return self._coroutine.send(value)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise _contained(error) from error

    def throw(self, *error: Any) -> Any:
        try:
            return self._coroutine.throw(*error)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as raised:
            raise _contained(raised) from raised

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


def _contained(error: BaseException) -> BaseException:
    if isinstance(error, GeneratorExit):
        return RuntimeError("a task raised GeneratorExit")
    return error if comes_from_signal(error) else TaskExited(error_text(error))
