"""The testing kit: an engine in memory, with a clock that only you move.

    async with Harness(Checkout) as app:
        order = await app.start(Checkout, {"order": 42})
        assert await app.drain() == {"steps": 1, "await": 1}
        await app.advance(3600)

    app.answer("Deploy?", {"approved": True})    # a scripted answer, given by the next drains

A Harness is a Hark: the same engine, the same statements, the same worker. Only the clock is another.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hark.app import Hark
from hark.model.names import micros
from hark.model.outcomes import Duration
from hark.model.values import Awakeable
from hark.store import reads


class HandClock:
    """Starts at the real time and moves when told to."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.now


class Harness(Hark):
    """A Hark for tests: in memory unless `url=` says otherwise, clock by hand."""

    def __init__(self, *definitions: Any, url: str = "sqlite://", **options: Any) -> None:
        self.clock = HandClock()
        super().__init__(url, **options, clock=self.clock)
        self.register(*definitions)
        self._script: list[tuple[Callable[[Awakeable], bool], Any, str | None]] = []

    def answer(
        self, question: str | Callable[[Awakeable], bool], payload: Any = None, *, reject: str | None = None
    ) -> None:
        """A scripted answer: from now on `drain()` answers every question of this title (or that this is true of)."""
        fits = question if callable(question) else lambda asked: question in (asked.title, asked.id)
        self._script.append((fits, payload, reject))

    async def drain(self) -> dict[str, int]:
        """Run all that can run, in order; how many steps, and how many outcomes of each kind."""
        tally = Counter(await self._drain())
        while await self._answer():
            tally.update(await self._drain())
        return {"steps": tally.pop("steps", 0), **dict(sorted(tally.items()))}

    async def _answer(self) -> int:
        """Give the scripted answers to those who wait for them; how many."""
        given = 0
        for asked in await self.awakeables(status="PENDING", limit=10_000) if self._script else ():
            for fits, payload, reject in self._script:
                if fits(asked):
                    await (self.resolve(asked.id, payload) if reject is None else self.reject(asked.id, reject))
                    given += 1
                    break
        return given

    async def _drain(self) -> dict[str, int]:
        tally: Counter[str] = Counter()
        queues = {"default", *(row[3] for row in self._registry.rows())}
        while True:
            worker = self.worker(dict.fromkeys(sorted(queues), 1))
            async with worker:
                await worker.settle()
            tally.update(worker.tally)
            used = {row[0] for row in await self._read(lambda store: store.read(reads.queues))}
            if used <= queues:
                return tally
            queues |= used  # a start named a queue of its own

    async def advance(self, seconds: Duration) -> None:
        """Move the clock, and fire all that is due by then, this very instant included."""
        self.clock.now += micros(seconds, "advance", zero=True)
        await self.sweep()
