"""Waiters: replies that wait for something about an instance, by its id, each with a timeout of its own.

Replies are held weakly: when a caller stops waiting it drops its reply, and nothing has to be removed here. What is
waited for is decided in completions.py and conditions.py. Used on the clerk's loop only, except for `Asked.add`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar
from weakref import ref

from hark.model.errors import NotOpen
from hark.runtime.reply import Reply, answer_all
from hark.store.protocol import Store

Read = Callable[[Callable[[Store], Awaitable[Any]], Reply[Any]], Awaitable[None]]
RETRY = 0.2  # seconds until a check that the database did not answer is repeated
C = TypeVar("C")
Q = TypeVar("Q")


class Asked(Generic[Q]):
    """Questions of callers in any thread, which the clerk's loop takes together."""

    def __init__(self, spawn: Callable[[], None]) -> None:
        """`spawn` runs on the loop what will `take` the questions: once for all that are added before that."""
        self._spawn = spawn
        self._spawned = False
        self._questions: deque[Q] = deque()

    def __bool__(self) -> bool:
        return bool(self._questions)

    def add(self, question: Q) -> None:
        """From any thread."""
        self._questions.append(question)
        if not self._spawned:
            try:
                self._spawned = True
                self._spawn()
            except BaseException:  # a Ctrl-C comes at any line, and another thread may rely on this spawn
                self._spawned = False
                with contextlib.suppress(NotOpen):
                    self._spawn()
                raise

    def take(self) -> list[Q]:
        """Remove all questions, in their order."""
        self._spawned = False
        return [self._questions.popleft() for _ in range(len(self._questions))]


class Waiter(Generic[C]):
    """A reply, and what it waits for."""

    __slots__ = ("_reply", "condition")

    def __init__(self, reply: Reply[Any], condition: C) -> None:
        self._reply = ref(reply)
        self.condition = condition

    @property
    def reply(self) -> Reply[Any] | None:
        """The reply, or None when its caller has dropped it."""
        return self._reply()


class Waiters(Generic[C]):
    """The waiters of one process, by the id of their instance."""

    def __init__(self, late: Callable[[str, C, float], str]) -> None:
        """`late`: the text of the TimeoutError, from the id, the condition and the seconds."""
        self._late = late
        self._by_id: dict[str, list[Waiter[C]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __contains__(self, id: object) -> bool:
        return id in self._by_id

    def add(self, id: str, reply: Reply[Any], condition: C) -> Waiter[C]:
        """Wait, with no timeout yet."""
        waiter = Waiter(reply, condition)
        self._by_id.setdefault(id, []).append(waiter)
        return waiter

    def start_timeout(self, id: str, waiter: Waiter[C], seconds: float | None) -> None:
        """Answer the reply with a TimeoutError if it still waits after so many seconds; None waits without a limit."""
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, self._time_out, id, waiter, seconds)

    def _time_out(self, id: str, waiter: Waiter[C], seconds: float) -> None:
        if self.remove(id, waiter) and (reply := waiter.reply) is not None:
            answer_all([(reply, TimeoutError(self._late(id, waiter.condition, seconds)))])

    def has(self, id: str, waiter: Waiter[C]) -> bool:
        """True while this waiter waits."""
        return waiter in self._by_id.get(id, ())

    def remove(self, id: str, waiter: Waiter[C]) -> bool:
        """Stop waiting. False when this waiter had been removed before."""
        if not self.has(id, waiter):
            return False
        waiters = self._by_id[id]
        waiters.remove(waiter)
        if not waiters:
            del self._by_id[id]
        return True

    def pop(self, id: str) -> list[Reply[Any]]:
        """Stop waiting for this instance; the replies that did."""
        return [reply for waiter in self._by_id.pop(id, ()) if (reply := waiter.reply) is not None]

    def clear(self) -> list[Reply[Any]]:
        """Stop all waiting; the replies that did."""
        return [reply for id in list(self._by_id) for reply in self.pop(id)]

    def alive(self) -> dict[str, list[Waiter[C]]]:
        """The waiters whose reply is still held by a caller; the others are removed."""
        for id, waiters in list(self._by_id.items()):
            waiters[:] = [waiter for waiter in waiters if waiter.reply is not None]
            if not waiters:
                del self._by_id[id]
        return {id: list(waiters) for id, waiters in self._by_id.items()}
