"""One spelling for both colours: a reply can be awaited, or blocked on with `.result()`.

What it stands for has been asked for already; awaiting only waits. Answers come from the clerk's thread:
`answer_all` wakes every event loop once, however many replies it has.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from hark.model.errors import WouldBlockEventLoop

T = TypeVar("T")
_log = logging.getLogger("hark")
_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Reply(Generic[T]):
    """The answer to come."""

    __slots__ = ("__weakref__", "_convert", "_done", "_error", "_event", "_lock", "_seen", "_value", "_waiters")

    def __init__(self, convert: Callable[[Any], T] | None = None) -> None:
        self._convert = convert
        self._done = False
        self._seen = False
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
                except BaseException:  # who waited was told to stop: the answer is no longer expected
                    self._seen = True
                    raise
        return self._outcome()

    def _register(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> bool:
        with self._lock:
            if not self._done:
                self._waiters = self._waiters or []
                self._waiters.append((loop, future))
            return not self._done

    def result(self, timeout: float | None = None) -> T:
        """Block until it is there. For plain code: where an event loop runs, `await` it instead."""
        refuse_to_block_a_loop("`.result()`", "await")
        with self._lock:
            if not self._done and self._event is None:
                self._event = threading.Event()
        if not self._done and self._event is not None and not self._event.wait(timeout):
            raise TimeoutError(f"No answer within {timeout} seconds; what was asked for goes on.")
        return self._outcome()

    def done(self) -> bool:
        """Is the answer there?"""
        return self._done

    def _outcome(self) -> T:
        self._seen = True
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[no-any-return]

    def _settle(self, value: Any) -> list[_Waiter]:
        """Take the answer; an exception is an answer too. Returns whom to wake."""
        if self._convert is not None and not isinstance(value, BaseException):
            try:
                value = self._convert(value)
            except Exception as error:
                value = error
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
        if getattr(self, "_error", None) is not None and not self._seen:
            _log.error("Nobody looked at this answer: %r", self._error)


def refuse_to_block_a_loop(what: str, instead: str) -> None:
    """For all that blocks: not on a thread whose event loop is running."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise WouldBlockEventLoop(f"{what} would block the running event loop. Write `{instead}` here instead.")


def answer_all(answers: Iterable[tuple[Reply[Any], Any]]) -> None:
    """Settle many replies, waking each loop once."""
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
