"""Turns of the kernel alone: on SQLite in memory, or on every database."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark.kernel.definitions import Catalog
from hark.kernel.requests import Capacity, Request
from hark.kernel.result import TurnResult
from hark.kernel.turn import run_turn
from hark.store.protocol import Store as StoreProtocol
from hark.store.sql import Sql
from tests.kernel.family import Family
from tests.promises.support_signals import Turns
from tests.support.stores import Store
from tests.support.turns import REGISTER, TickingClock, rules


class KernelTurns:
    """Runs turns, each in a transaction of its own, with a clock that advances a millisecond per turn."""

    def __init__(self, store: StoreProtocol, clock: TickingClock) -> None:
        self.store = store
        self.clock = clock
        self.rules = rules()
        self.catalog = Catalog()

    async def run(self, *requests: Request, claim: Capacity | None = None, **how: bool) -> TurnResult:
        tx = await self.store.begin()
        result = await run_turn(tx, self.rules, self.catalog, requests, claim, **how)
        await tx.commit()
        return result

    async def read(self, text: str) -> Sequence[Any]:
        return await self.store.read(Sql(text))


@asynccontextmanager
async def _open(store: Store, clock: TickingClock) -> AsyncIterator[KernelTurns]:
    async with store.opened(clock=clock) as opened:
        turns = KernelTurns(opened, clock)
        await turns.run(REGISTER)
        yield turns


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture
async def turns(clock: TickingClock) -> AsyncIterator[KernelTurns]:
    async with _open(Store("sqlite", "sqlite://"), clock) as turns:
        yield turns


@pytest.fixture
async def turns_on_both(store: Store, clock: TickingClock) -> AsyncIterator[KernelTurns]:
    async with _open(store, clock) as turns:
        yield turns


@pytest.fixture
async def turns_by_hand(store: Store, clock: TickingClock) -> AsyncIterator[Turns]:
    """Turns with the machine `M`, on every database. A turn may stay open while others run."""
    async with Turns(store, clock) as turns:
        await turns.register("M")
        yield turns


@pytest.fixture
async def family(store: Store) -> AsyncIterator[Family]:
    async with Family(store) as family:
        yield family
