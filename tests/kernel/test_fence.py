"""The fence: an outcome counts only if its instance executes at the outcome's own epoch (X2, invariant 2)."""

from typing import Any

import pytest

from hark.kernel.fast.advance_turn import run_advance_turn
from hark.kernel.requests import Cancel, HandBack, Reclaim, Retain, StartInstances
from hark.model.activation import Claim
from tests.support.turns import MINUTE, advance, capacity, done, new


@pytest.fixture
def turns(turns_on_both: Any) -> Any:
    return turns_on_both


async def two_owners(turns: Any) -> tuple[Claim, Claim]:
    """Two claims of `x`: that of a zombie and that of the present owner."""
    [zombie] = (await turns.run(StartInstances(items=[new("x")]), claim=capacity("zombie"))).claims
    [owner] = (await turns.run(HandBack(claims=[zombie]), claim=capacity("owner"))).claims
    return zombie, owner


@pytest.mark.parametrize("zombie_first", [True, False])
async def test_x2_of_a_zombie_and_the_owner_in_one_turn_the_owner_commits(turns: Any, zombie_first: bool) -> None:
    zombie, owner = await two_owners(turns)
    late, present = advance(zombie, new("born")), done(owner)
    await turns.run(*([late, present] if zombie_first else [present, late]))
    assert (late.fenced, present.fenced) == (True, False)
    assert await turns.read("SELECT id, status FROM instances") == [("x", "done")]


async def test_fault_70_of_two_outcomes_of_one_claim_in_one_turn_the_first_commits(turns: Any) -> None:
    _, owner = await two_owners(turns)
    first, second = done(owner), advance(owner, new("born"))
    await turns.run(first, second)
    assert (first.fenced, second.fenced) == (False, True)
    assert await turns.read("SELECT id, status FROM instances") == [("x", "done")]


async def test_x2_a_cancel_in_the_turn_of_a_zombie_does_not_revive_its_outcome(turns: Any) -> None:
    zombie, _ = await two_owners(turns)
    await turns.run(StartInstances(items=[new("other")]))
    late = done(zombie, new("born"))
    await turns.run(late, Cancel(target="other"))
    assert late.fenced
    assert await turns.read("SELECT id, status FROM instances ORDER BY id") == [
        ("other", "cancelled"), ("x", "executing"),
    ]  # fmt: skip


async def test_x2_a_cancel_in_the_turn_of_an_outcome_comes_before_it(turns: Any) -> None:
    _, owner = await two_owners(turns)
    late = done(owner, new("born"))
    await turns.run(late, Cancel(target="x"))
    assert late.fenced
    assert await turns.read("SELECT id, status FROM instances") == [("x", "cancelled")]


async def test_x2_an_outcome_of_an_instance_that_was_removed_is_fenced(turns: Any) -> None:
    zombie, owner = await two_owners(turns)
    await turns.run(done(owner))
    await turns.run(Retain(before=turns.clock.now + MINUTE, ids=["x"]))
    late = advance(zombie, new("born"))
    await turns.run(late)
    assert late.fenced
    assert await turns.read("SELECT id FROM instances") == []


async def test_x2_an_advance_turn_moves_on_the_owner_and_not_the_zombie(turns: Any) -> None:
    zombie, _ = await two_owners(turns)
    [other] = (await turns.run(StartInstances(items=[new("other")]), claim=capacity("owner"))).claims
    late, present = advance(zombie), advance(other)
    tx = await turns.store.begin()
    result = await run_advance_turn(tx, [late, present])
    await tx.commit()
    assert (late.fenced, late.result, present.fenced, present.result) == (True, None, False, True)
    assert (result.ran_ahead, result.provable) == ([present], True)
    assert await turns.read("SELECT id, step FROM instances ORDER BY id") == [("other", "after-next"), ("x", "start")]
    assert await turns.read("SELECT instance_id FROM events WHERE type = 'next'") == [("other",)]


async def test_x2_a_hand_back_or_a_reclaim_of_a_zombie_does_not_take_the_instance_from_its_owner(turns: Any) -> None:
    zombie, _ = await two_owners(turns)
    result = await turns.run(HandBack(claims=[zombie]), Reclaim(owners=["zombie"]), claim=capacity("third"))
    assert result.claims == []
    assert not result.pending.made_claimable
    assert await turns.read("SELECT status, lease_owner, crashes FROM instances") == [("executing", "owner", 0)]
    assert await turns.read("SELECT count(*) FROM events WHERE type IN ('handed_back', 'reclaimed')") == [(1,)]


async def test_x2_a_cancel_in_the_turn_of_a_hand_back_comes_before_it(turns: Any) -> None:
    _, owner = await two_owners(turns)
    await turns.run(HandBack(claims=[owner]), Cancel(target="x"))
    assert await turns.read("SELECT status FROM instances") == [("cancelled",)]
    assert await turns.read("SELECT count(*) FROM events WHERE type = 'handed_back'") == [(1,)]


@pytest.mark.parametrize("lost", [False, True])
async def test_x2_a_claim_that_comes_back_twice_in_one_turn_does_so_once(turns_on_both: Any, lost: bool) -> None:
    turns = turns_on_both
    [claim] = (await turns.run(StartInstances(items=[new("x")]), claim=capacity("gone"))).claims
    first = Reclaim(owners=["gone"]) if lost else HandBack(claims=[claim])
    await turns.run(first, HandBack(claims=[claim]))
    assert await turns.read("SELECT status, epoch FROM instances") == [("runnable", claim.epoch + 1)]
    assert await turns.read("SELECT type FROM events WHERE type <> 'started'") == [
        ("reclaimed" if lost else "handed_back",)
    ]
