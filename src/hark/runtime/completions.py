"""Completions: callers that wait for the end of an instance.

The commits of this process answer them without a read. What ends in other processes is found by one read for all
waiters, at each hint and each poll. Everything but `ask` and `hint` runs on the clerk's loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from hark.kernel.result import End
from hark.model.errors import no_instance
from hark.model.values import TERMINAL
from hark.runtime.reply import Reply, answer_all
from hark.runtime.thread_loop import ThreadLoop
from hark.runtime.waiters import RETRY, Asked, Read, Waiters
from hark.store import reads
from hark.store.protocol import Store, StoreFault


class Completions:
    """The callers of one process that wait for an end. They are answered with (id, status, result, error)."""

    def __init__(self, read: Read, loop: ThreadLoop, check_again: Callable[[], None]) -> None:
        """`read` reads with retries, `loop` is the clerk's, `check_again` causes another `check`."""
        self._read = read
        self._check_again = check_again
        self.asked: Asked[tuple[str, float | None, Reply[Any]]] = Asked(lambda: loop.spawn(self._resolve))
        self.waiting: Waiters[None] = Waiters(_late)
        # While `_resolve` reads, its waiters are not added yet: what ends meanwhile is kept for them.
        self._reading = 0
        self._ended: dict[str, End] = {}
        self._hinted = False

    def ask(self, target: str, seconds: float | None, reply: Reply[Any]) -> None:
        """Wait for the end of an instance. From any thread."""
        self.asked.add((target, seconds, reply))

    async def _resolve(self) -> None:
        """Find the instances of the targets; answer for those that have ended, and wait for the others."""
        asked = self.asked.take()
        if not asked:  # a Ctrl-C may have spawned this twice
            return
        targets = sorted({target for target, _, _ in asked})
        found: Reply[Any] = Reply()
        self._reading += 1
        await self._read(lambda store: store.read(reads.results, [(target,) for target in targets]), found)
        self._reading -= 1
        try:
            ends = {target: (id, status, result, error) for target, id, status, result, error in await found}
        except Exception as error:
            answer_all([(reply, error) for _, _, reply in asked])
            return
        answers: list[tuple[Reply[Any], Any]] = []
        for target, seconds, reply in asked:
            id, status, _, _ = end = ends[target]
            if id is None:
                answers.append((reply, no_instance(target)))
            elif status in TERMINAL:
                answers.append((reply, end))
            elif id in self._ended:
                answers.append((reply, self._ended[id]))
            else:
                self.waiting.start_timeout(id, self.waiting.add(id, reply, None), seconds)
        answer_all(answers)
        if not self._reading:
            self._ended.clear()
        if self._hinted:  # another process may have ended one of them meanwhile
            self._hinted = False
            self._check_again()

    def answer_ended(self, ended: dict[str, End]) -> None:
        """Answer for instances that a turn of this process has ended."""
        if self._reading:
            self._ended |= ended
        if self.waiting:
            self._answer(end for id, end in ended.items() if id in self.waiting)

    def hint(self) -> None:
        """Another process did something. From any thread."""
        self._hinted = self._hinted or self._reading > 0

    async def check(self, store: Store) -> None:
        """Answer for instances that other processes have ended."""
        ids = list(self.waiting.alive())
        if not ids:
            return
        try:
            rows = await store.read(reads.outcomes, ids=ids)
        except StoreFault:
            asyncio.get_running_loop().call_later(RETRY, self._check_again)
            return
        self._answer((id, status, result, error) for id, status, result, error in rows)

    def close(self, error: Exception) -> None:
        """Answer every waiter with this error."""
        replies = [*(reply for _, _, reply in self.asked.take()), *self.waiting.clear()]
        answer_all([(reply, error) for reply in replies])

    def _answer(self, ends: Iterable[End]) -> None:
        answers: list[tuple[Reply[Any], Any]] = []
        for end in ends:
            id, _, _, _ = end
            answers.extend((reply, end) for reply in self.waiting.pop(id))
        answer_all(answers)


def _late(id: str, condition: None, seconds: float) -> str:
    return f"Instance {id} has not ended within {seconds:g} s; its work continues."
