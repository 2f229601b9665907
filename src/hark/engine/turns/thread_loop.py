"""ThreadLoop: runs the event loop of a thread for other threads.

They wake it up, and run coroutines on it. What the loop does is in clerk.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from hark.engine.turns.caller_errors import not_open


def is_end_of_program(error: Exception) -> bool:
    """Return True for what Python's executors raise once the program ends. Reads and polls of an app that was not
    closed meet it, and there is nothing to report. The text has to tell: no public function says that Python exits."""
    return isinstance(error, RuntimeError) and str(error).startswith("cannot schedule new futures after")


class ThreadLoop:
    """Accepts work from other threads between `enter` and `leave`, until `closing` is set."""

    def __init__(self) -> None:
        self.closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_up: asyncio.Event | None = None
        self._woken = False  # the event is set, or will be: one callback for any number of calls
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> asyncio.AbstractEventLoop | None:
        return self._loop

    @property
    def is_open(self) -> bool:
        return self._loop is not None and not self.closing

    def check_open(self) -> None:
        """Raise `NotOpen` when no work is accepted."""
        if self._loop is None or self.closing:
            raise not_open()

    # -- from any thread --------------------------------------------------------------------------

    def wake(self) -> None:
        """End the `sleep` of the loop, the present one or the next."""
        loop = self._loop
        if not self._woken and loop is not None:
            try:
                self._woken = True
                loop.call_soon_threadsafe(self._wake_up.set)  # type: ignore[union-attr]
            except BaseException:  # a Ctrl-C comes at any line, and another thread may rely on this wake
                loop.call_soon_threadsafe(self._wake_up.set)  # type: ignore[union-attr]
                raise

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Run a coroutine function on the loop. `NotOpen` when no work is accepted.

        The coroutine is made on the loop: a Ctrl-C in the calling thread leaves nothing behind that has to be closed.
        """
        loop = self._loop
        if loop is None or self.closing:
            raise not_open()
        loop.call_soon_threadsafe(lambda: self.start(function(*args)))

    # -- on the loop ------------------------------------------------------------------------------

    def enter(self) -> None:
        """Accept work from now on."""
        self._wake_up = asyncio.Event()
        self._woken = False
        self._loop = asyncio.get_running_loop()

    async def leave(self) -> None:
        """Accept nothing more, and wait for the coroutines that run."""
        self._loop = None
        await asyncio.sleep(0)  # what was accepted last begins
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def start(self, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the present one."""
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def expect_wake(self) -> None:
        """Expect a wake. Called before the last check for work: a `wake` from here on ends the next `sleep`."""
        assert self._wake_up is not None
        self._woken = False
        self._wake_up.clear()

    async def sleep(self, seconds: float | None) -> None:
        """Sleep until `wake` is called, or for this many seconds."""
        assert self._wake_up is not None
        if seconds is None:
            await self._wake_up.wait()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake_up.wait(), seconds)
