"""A turn reads and writes for an instance according to the traits of its program, not to its name."""

from typing import Any

import pytest

from hark.kernel.requests import Capacity, Commit, DefinitionRow, Register, Request, StartInstances, Sweep
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
from hark.model.events import OutcomeType

_ASKS = Traits(creates_awakeables=True)


def _capacity(traits: Traits) -> Capacity:
    """For a program that no other test has: `graph`."""
    return Capacity("w", {"default": 1}, {"g@1": traits})


async def _executing(turns: Any, traits: Traits) -> Claim:
    await turns.run(
        Register(rows=[DefinitionRow("g", 1, "graph", "default", "start")]),
        StartInstances(items=[NewInstance("g", "{}", "one")]),
    )
    return await _claim(turns, traits)


async def _claim(turns: Any, traits: Traits, *requests: Request) -> Claim:
    [claim] = (await turns.run(*requests, claim=_capacity(traits))).claims
    assert isinstance(claim, Claim)
    return claim


async def _commit(turns: Any, claim: Claim, label: OutcomeType, move: Move, **more: Any) -> None:
    await turns.run(Commit(claim=claim, decision=Decision(label, "start", "{}", move, **more)))


async def test_a_claim_has_the_traits_of_its_program(turns: Any) -> None:
    assert (await _executing(turns, _ASKS)).traits == _ASKS


@pytest.mark.parametrize(("traits", "lines"), [(Traits(keeps_journal=True), ["run"]), (Traits(), [])])
async def test_the_journal_is_read_for_a_program_that_keeps_one(turns: Any, traits: Traits, lines: list[str]) -> None:
    claim = await _executing(turns, traits)
    await _commit(turns, claim, "next", Redo(0), journal=[JournalLine(0, 0, "run", "f", "1")])
    claim = await _claim(turns, traits)
    assert [line.kind for line in claim.journal] == lines


@pytest.mark.parametrize(("traits", "names"), [(Traits(waits_while_executing=True), ["go"]), (Traits(), [])])
async def test_waits_that_nothing_has_answered_are_read_for_a_program_that_waits_while_it_executes(
    turns: Any, traits: Traits, names: list[str]
) -> None:
    claim = await _executing(turns, traits)
    await _commit(turns, claim, "next", Proceed(arm=(Arm("signal", "w", name="go"),)))
    claim.epoch += 1
    await _commit(turns, claim, "next", Redo(0))
    claim = await _claim(turns, traits)
    assert [wait.name for wait in claim.waits] == names


@pytest.mark.parametrize(("traits", "status"), [(_ASKS, "CANCELLED"), (Traits(), "PENDING")])
async def test_the_end_cancels_awakeables_without_a_wait_for_a_program_that_creates_them(
    turns: Any, traits: Traits, status: str
) -> None:
    claim = await _executing(turns, traits)
    timer = Arm("timer", "t", timeout=1)
    await _commit(turns, claim, "await", Park((timer,), awakeables=(NewAwakeable("prom-1", 0),)))
    claim = await _claim(turns, traits, Sweep())
    await _commit(turns, claim, "done", Finish("done"))
    assert await turns.read("SELECT status FROM awakeables") == [(status,)]
