"""Turns on SQLite in memory, for tests of the kernel alone."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from hark.kernel.definitions import Catalog
from hark.kernel.requests import Capacity, Request
from hark.kernel.result import TurnResult
from hark.kernel.turn import run_turn
from hark.store.sql import Sql
from hark.store.sqlite import SqliteStore
from tests.support.turns import REGISTER, TickingClock, rules


class MemoryTurns:
    """Runs turns, each in a transaction of its own, with a clock that advances a millisecond per turn."""

    def __init__(self, store: SqliteStore, clock: TickingClock) -> None:
        self.store = store
        self.clock = clock
        self.rules = rules()
        self.catalog: Catalog = {}

    async def run(self, *requests: Request, claim: Capacity | None = None, **how: bool) -> TurnResult:
        tx = await self.store.begin()
        result = await run_turn(tx, self.rules, self.catalog, requests, claim, **how)
        await tx.commit()
        return result

    async def read(self, text: str) -> Sequence[Any]:
        return await self.store.read(Sql(text))


@pytest.fixture
async def turns() -> AsyncIterator[MemoryTurns]:
    clock = TickingClock()
    store = SqliteStore("sqlite://", clock=clock)
    await store.open()
    turns = MemoryTurns(store, clock)
    await turns.run(REGISTER)
    yield turns
    await store.close()
