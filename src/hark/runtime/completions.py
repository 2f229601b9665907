"""Who waits for which instance to end. All of them share one statement per look.

Completions in this process are told straight from the commit; those elsewhere are found by looking, at every
hint and every poll. Waiters are held weakly: who gave up waiting leaves nothing behind. Everything but
`ask` runs on the clerk's loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from hark.model.values import TERMINAL
from hark.runtime.reply import Reply, answer_all
from hark.runtime.views import not_found
from hark.runtime.waiters import Waiters
from hark.store import reads
from hark.store.protocol import Store, StoreFault

End = tuple[Any, ...]  # id, status, result, error
Read = Callable[[Callable[[Store], Awaitable[Any]], Reply[Any]], Awaitable[None]]


class Completions:
    def __init__(self, read: Read, again: Callable[[], None]) -> None:
        self._read = read
        self._again = again
        self.asked: deque[tuple[str, float | None, Reply[Any]]] = deque()
        self.waiting: Waiters[None] = Waiters(_late)
        self._asking = False
        self._finding = 0  # looks under way; what ends or is heard meanwhile is kept for them
        self._ended: dict[str, End] = {}
        self._heard = False

    def ask(self, target: str, seconds: float | None, reply: Reply[Any]) -> bool:
        """Queue a question, from any thread. True when nobody is on the way yet to `find` the answer."""
        self.asked.append((target, seconds, reply))
        first, self._asking = not self._asking, True
        return first

    async def find(self) -> None:
        """Who is meant, and has it ended? If not, the name goes on the list."""
        self._asking = False
        asked = [self.asked.popleft() for _ in range(len(self.asked))]
        targets = sorted({target for target, _, _ in asked})
        found: Reply[Any] = Reply()
        self._finding += 1
        await self._read(lambda store: store.read(reads.results, [(target,) for target in targets]), found)
        self._finding -= 1
        try:
            ends: dict[str, End] = {row[0]: tuple(row[1:]) for row in await found}
        except Exception as error:
            answer_all([(reply, error) for _, _, reply in asked])
            return
        answers: list[tuple[Reply[Any], Any]] = []
        for target, seconds, reply in asked:
            id, status, _, _ = end = ends[target]
            if id is None:
                answers.append((reply, not_found(target)))
            elif status in TERMINAL:
                answers.append((reply, end))
            elif id in self._ended:  # while we looked
                answers.append((reply, self._ended[id]))
            else:
                self.waiting.start_timeout(id, self.waiting.add(id, reply, None), seconds)
        answer_all(answers)
        if not self._finding:
            self._ended.clear()
        if self._heard:  # another process may have ended one while we looked
            self._heard = False
            self._again()

    def tell(self, finished: dict[str, tuple[str, str, str | None, str | None]]) -> None:
        """These have ended in a turn of ours."""
        if self._finding:
            self._ended |= finished
        if self.waiting:
            self._answer(end for id, end in finished.items() if id in self.waiting)

    def hear(self) -> None:
        """Something happened elsewhere. From any thread."""
        self._heard = self._heard or self._finding > 0

    async def look(self, store: Store) -> None:
        """Has anybody on the list ended elsewhere?"""
        ids = list(self.waiting.alive())
        if not ids:
            return
        try:
            rows = await store.read(reads.outcomes, ids=ids)
        except StoreFault:
            asyncio.get_running_loop().call_later(0.2, self._again)
            return
        self._answer(rows)

    def close(self, error: Exception) -> None:
        """Nobody will answer any more."""
        replies = [*(reply for _, _, reply in self.asked), *self.waiting.clear()]
        self.asked.clear()
        self._asking = False
        answer_all([(reply, error) for reply in replies])

    def _answer(self, ends: Iterable[Any]) -> None:
        answer_all([(reply, end) for end in ends for reply in self.waiting.pop(end[0])])


def _late(id: str, condition: None, seconds: float) -> str:
    return f"Instance {id} has not ended within {seconds:g} s; its work goes on."
