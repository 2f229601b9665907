"""A restore, or a failover that lost commits: nothing of the lost past is taken for the present (X2, fault 82).

The rows of a database are put back to an earlier time, between the turns of two workers. The same transitions follow a
second time, so the counts in the epochs are equal.
"""

from collections.abc import Callable
from typing import Any

import pytest

from hark.kernel.fast.advance_turn import run_advance_turn
from hark.kernel.requests import (
    Capacity,
    Commit,
    CommitNote,
    CommitTask,
    Deliver,
    FetchTasks,
    HandBack,
    RenewTask,
    StartInstances,
)
from hark.model.activation import Claim, Traits
from hark.model.epochs import MASK, count_of, epoch_before, new_nonce
from hark.model.errors import TaskLost
from hark.model.notes import NoteEvents
from hark.store.sql import Sql
from tests.support.turns import DEFINITION, advance, capacity, done, new, on, park, retry, stop

OUTCOMES: dict[str, Callable[..., Commit]] = {"done": done, "next": advance, "retry": retry, "stop": stop}


class Past:
    """A store that can be put back to an earlier time."""

    def __init__(self, turns: Any) -> None:
        self.turns = turns

    async def _write(self, *statements: str) -> None:
        tx = await self.turns.store.begin()
        for text in statements:
            await tx.fetch(Sql(text))
        await tx.commit()

    async def save(self) -> None:
        await self._write("CREATE TABLE backup AS SELECT * FROM instances")

    async def restore(self) -> None:
        await self._write("DELETE FROM instances", "INSERT INTO instances SELECT * FROM backup")

    async def rows(self) -> Any:
        return await self.turns.read("SELECT id, status, step, state, epoch, lease_owner FROM instances ORDER BY id")


@pytest.fixture
async def past(turns_on_both: Any) -> Past:
    return Past(turns_on_both)


async def two_pasts(past: Past) -> tuple[Claim, Claim]:
    """Two claims of `x`: one of the lost past, and one that was made after the restore."""
    await past.turns.run(StartInstances(items=[new("x")]))
    await past.save()
    [lost] = (await past.turns.run(claim=capacity("lost"))).claims
    await past.restore()
    [present] = (await past.turns.run(claim=capacity("present"))).claims
    assert count_of(lost.epoch) == count_of(present.epoch)
    return lost, present


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_x2_an_outcome_of_a_lost_past_is_refused(past: Past, outcome: str) -> None:
    lost, present = await two_pasts(past)
    before = await past.rows()
    late = OUTCOMES[outcome](lost, new("born"))
    await past.turns.run(late)
    assert late.fenced
    assert await past.rows() == before
    await past.turns.run(done(present))
    assert [row[:2] for row in await past.rows()] == [("x", "done")]


async def test_x2_an_advance_turn_of_a_lost_past_is_refused(past: Past) -> None:
    lost, present = await two_pasts(past)
    late = advance(lost)
    tx = await past.turns.store.begin()
    await run_advance_turn(tx, [late])
    await tx.commit()
    assert late.fenced
    assert [row[2:5] for row in await past.rows()] == [("start", "{}", present.epoch)]


async def test_x2_a_hand_back_or_a_note_of_a_lost_past_changes_nothing(past: Past) -> None:
    lost, _ = await two_pasts(past)
    before = await past.rows()
    note = CommitNote(note=NoteEvents(lost.id, lost.epoch, events=(), progress='"99 %"', step="start"))
    await past.turns.run(HandBack(claims=[lost]), note)
    assert isinstance(note.result, TaskLost)
    assert await past.rows() == before


async def test_x2_what_ran_ahead_in_a_lost_past_is_refused_when_the_present_has_come_as_far(past: Past) -> None:
    lost, present = await two_pasts(past)
    for claim in (lost, present):
        moved = advance(claim)
        await past.turns.run(moved)
        claim.run_ahead(moved.decision, past.turns.clock.now, [])
    before = await past.rows()
    late = done(lost)
    await past.turns.run(late)
    assert late.fenced
    assert await past.rows() == before
    await past.turns.run(done(present))
    assert [row[:2] for row in await past.rows()] == [("x", "done")]


async def test_x2_a_claim_with_its_wake_up_is_not_that_of_a_lost_past(past: Past) -> None:
    turns = past.turns
    [first] = (await turns.run(StartInstances(items=[new("x")]), claim=capacity("worker"))).claims
    await turns.run(park(first, on("go")))
    await past.save()
    idle = capacity("worker", backlog=False)
    [lost] = (await turns.run(Deliver(target="x", name="go"), claim=idle)).claims
    await past.restore()
    await turns.run(Deliver(target="x", name="go"), claim=idle)
    late = done(lost)
    await turns.run(late)
    assert late.fenced


async def test_j11_a_heartbeat_or_an_outcome_of_a_fetched_task_of_a_lost_past_is_refused(past: Past) -> None:
    turns = past.turns
    fetch = {"lanes": (f"{DEFINITION}@1",), "most": 1, "lease": 60_000_000, "info": "{}"}
    await turns.run(StartInstances(items=[new("x")]))
    await past.save()
    claims = []
    for _ in range(2):
        await past.restore()
        request = FetchTasks(**fetch)
        await turns.run(request)
        claims += request.result
    lost, present = claims
    late = RenewTask(id="x", epoch=lost.epoch), CommitTask(commit=done(lost))
    await turns.run(*late)
    assert all(isinstance(request.result, TaskLost) for request in late)
    in_time = RenewTask(id="x", epoch=present.epoch), CommitTask(commit=done(present))
    for request in in_time:
        await turns.run(request)
        assert not isinstance(request.result, Exception)


async def test_x2_a_function_that_stays_in_memory_of_a_lost_past_is_replayed(past: Past) -> None:
    """Its journal is read, since what it has in memory has not happened."""
    turns = past.turns
    lanes = {f"{DEFINITION}@1": Traits(keeps_journal=True)}
    await turns.run(StartInstances(items=[new("x")]))
    await past.save()

    async def parked() -> int:
        [claim] = (await turns.run(claim=Capacity("worker", {"default": 1}, lanes))).claims
        await turns.run(park(claim, on("go")))
        return int(claim.epoch) + 1

    lost = await parked()
    await past.restore()
    present = await parked()
    await turns.run(Deliver(target="x", name="go"))
    for is_lost in (True, False):
        worker = Capacity("worker", {"default": 1}, lanes, in_memory={"x": lost if is_lost else present})
        [claim] = (await turns.run(claim=worker)).claims
        assert (claim.epoch_before, claim.is_journal_unread) == (present, not is_lost)
        await turns.run(HandBack(claims=[claim]))
        present = claim.epoch + 1


def test_an_epoch_counts_and_fits_into_a_bigint_after_any_number_of_claims() -> None:
    epoch = 0
    for n in range(1, 100):
        before, nonce = epoch, new_nonce()
        assert before + nonce < 1 << 63
        epoch = before + nonce & MASK
        assert (epoch_before(epoch, nonce), count_of(epoch)) == (before, n)
    assert MASK + (1 << 31) - 1 + (MASK - (1 << 31) + 2) < 1 << 63, "the largest epoch, that ran ahead, and nonce"
