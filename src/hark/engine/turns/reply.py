"""Reply: the result of a call to come, one API for sync and async code.

A reply is awaited, or blocked on with `.result()`. The call has been made already: reading the reply only waits.
The clerk's thread settles replies with raw values (`answer_all`, which wakes every event loop once, however many
replies it has); the value is converted when the reply is read, in the thread that reads it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from hark.model.errors import WouldBlockEventLoop
from hark.model.log import get_logger

T = TypeVar("T")
_log = get_logger()
_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Reply(Generic[T]):
    """The result of a call: `await` it, or call `.result()` in sync code. It may be read again, from any thread."""

    __slots__ = ("__weakref__", "_convert", "_done", "_error", "_event", "_lock", "_read", "_value", "_waiters")

    def __init__(self, convert: Callable[[Any], T] | None = None) -> None:
        """`convert`: makes the value of the raw one, or raises; called once, in the thread of the first reader."""
        self._convert = convert
        self._done = False
        self._read = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._waiters: list[_Waiter] | None = None
        self._event: threading.Event | None = None
        self._lock = threading.Lock()

    def __await__(self) -> Generator[Any, None, T]:
        while not self._done:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            if self._register(loop, future):
                try:
                    yield from future
                except BaseException:  # the waiting task was cancelled: it no longer expects the result
                    self._read = True
                    raise
        return self._outcome()

    def _register(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> bool:
        with self._lock:
            if not self._done:
                self._waiters = self._waiters or []
                self._waiters.append((loop, future))
            return not self._done

    def result(self, timeout: float | None = None) -> T:
        """Block until the result is there, and return it. In async code, `await` the reply instead.

        Args:
            timeout: Seconds to wait at most; None waits without a limit.

        Returns:
            The result of the call.

        Raises:
            TimeoutError: There is no result yet; the call itself continues.
            WouldBlockEventLoop: An event loop runs in this thread.
            HarkError: Whatever the call failed with.
        """
        refuse_to_block_a_loop("`.result()`", "await")
        with self._lock:
            if not self._done and self._event is None:
                self._event = threading.Event()
        if not self._done and self._event is not None and not self._event.wait(timeout):
            raise TimeoutError(f"No result within {timeout} seconds; the call continues. Read the reply again later.")
        return self._outcome()

    def done(self) -> bool:
        """Return True once the result, or the error, can be read without waiting."""
        return self._done

    def expect_nothing(self) -> None:
        """Log no error if nothing reads it: the caller has ended."""
        self._read = True

    def _outcome(self) -> T:
        self._read = True
        if self._convert is not None:
            self._convert_value()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def _convert_value(self) -> None:
        with self._lock:  # several threads may read at the same time
            convert = self._convert
            if convert is not None and self._error is None:
                try:
                    self._value = convert(self._value)
                except Exception as error:
                    self._value, self._error = None, error
            self._convert = None

    def _settle(self, value: Any) -> list[_Waiter]:
        """Store the raw value, or the exception, unless there is one already. Return the waiters to wake."""
        with self._lock:
            if self._done:
                return []
            if isinstance(value, BaseException):
                self._error = value
            else:
                self._value = value
            self._done = True
            waiters, self._waiters = self._waiters or [], None
            if self._event is not None:
                self._event.set()
        return waiters

    def __del__(self) -> None:
        if getattr(self, "_done", False) and not self._read:
            if self._convert is not None:  # some errors are found by the conversion only
                self._convert_value()
            if self._error is not None:
                _log.error("The result of this call was never read, and it failed: %r", self._error)


def refuse_to_block_a_loop(what: str, instead: str) -> None:
    """Raise `WouldBlockEventLoop` when an event loop runs in this thread: for every call that blocks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WouldBlockEventLoop(f"{what} would block the running event loop. Write `{instead}` here instead.")


def answer_all(answers: Iterable[tuple[Reply[Any], Any]]) -> None:
    """Settle many replies, waking each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for reply, value in answers:
        for loop, future in reply._settle(value):
            loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_wake, futures)


def _wake(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
