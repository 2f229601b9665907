"""A turn reads and writes for an instance according to the traits of its program, not to the name of its dialect."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hark.kernel.requests import Capacity, Commit, DefinitionRow, Register, Request, StartInstances, Sweep
from hark.kernel.result import TurnResult
from hark.kernel.turn import run_turn
from hark.model.activation import Claim, Traits
from hark.model.decisions import (
    Arm,
    Decision,
    Finish,
    JournalLine,
    Move,
    NewAwakeable,
    NewInstance,
    Park,
    Proceed,
    Redo,
)
from hark.store.sql import Sql
from hark.store.sqlite import SqliteStore
from tests.support.turns import TickingClock, rules

_KEEPS = Traits(keeps_journal=True, waits_while_executing=True)
_ASKS = Traits(creates_awakeables=True)


class Turns:
    """Turns of a dialect that no other test has: `graph`."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.rules = rules()
        self.catalog: dict[str, Any] = {}

    async def run(self, *requests: Request, claim: Traits | None = None) -> TurnResult:
        capacity = None if claim is None else Capacity("w", {"default": 1}, {("g", 1): claim})
        tx = await self.store.begin()
        result = await run_turn(tx, self.rules, self.catalog, requests, capacity)
        await tx.commit()
        return result

    async def executing(self, traits: Traits) -> Claim:
        await self.run(
            Register(rows=[DefinitionRow("g", 1, "graph", "default", "start")]),
            StartInstances(items=[NewInstance("g", "{}", "one")]),
        )
        [claim] = (await self.run(claim=traits)).claims
        return claim

    async def again(self, claim: Claim, move: Move, traits: Traits, **more: Any) -> Claim:
        """Commit an outcome that is queued, and claim it again."""
        await self.run(Commit(claim=claim, decision=Decision("next", "start", "{}", move, **more)))
        [claim] = (await self.run(claim=traits)).claims
        return claim


@pytest.fixture
async def turns() -> AsyncIterator[Turns]:
    store = SqliteStore("sqlite://", clock=TickingClock())
    await store.open()
    yield Turns(store)
    await store.close()


async def test_a_claim_has_the_traits_of_its_program(turns: Turns) -> None:
    assert (await turns.executing(_ASKS)).traits == _ASKS


@pytest.mark.parametrize(("traits", "lines"), [(_KEEPS, ["run"]), (Traits(), [])])
async def test_the_journal_is_read_for_a_program_that_keeps_one(turns: Turns, traits: Traits, lines: list[str]) -> None:
    claim = await turns.executing(traits)
    claim = await turns.again(claim, Redo(0), traits, journal=[JournalLine(0, 0, "run", "f", "1")])
    assert [line.kind for line in claim.journal] == lines


@pytest.mark.parametrize(("traits", "names"), [(_KEEPS, ["go"]), (Traits(), [])])
async def test_waits_that_nothing_has_answered_are_read_for_a_program_that_waits_while_it_executes(
    turns: Turns, traits: Traits, names: list[str]
) -> None:
    claim = await turns.executing(traits)
    wait = Arm("signal", "w", name="go")
    await turns.run(Commit(claim=claim, decision=Decision("next", "start", "{}", Proceed(arm=(wait,)))))
    claim.epoch += 1
    claim = await turns.again(claim, Redo(0), traits)
    assert [wait.name for wait in claim.waits] == names


@pytest.mark.parametrize(("traits", "status"), [(_ASKS, "CANCELLED"), (Traits(), "PENDING")])
async def test_the_end_cancels_awakeables_without_a_wait_for_a_program_that_creates_them(
    turns: Turns, traits: Traits, status: str
) -> None:
    claim = await turns.executing(traits)
    awakeable = NewAwakeable("prom-1", 0, "w")
    asking = Park((Arm("timer", "t", timeout=1),), awakeables=(awakeable,))
    await turns.run(Commit(claim=claim, decision=Decision("await", "start", "{}", asking)))
    [claim] = (await turns.run(Sweep(), claim=traits)).claims
    await turns.run(Commit(claim=claim, decision=Decision("done", "start", "{}", Finish("done"))))
    assert await turns.store.read(Sql("SELECT status FROM awakeables")) == [(status,)]
