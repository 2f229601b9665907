"""Claims: which rows get the free slots of one turn."""

from typing import Any

import pytest

from hark.kernel.requests import Deliver, HandBack, Reclaim, StartInstances
from tests.support.turns import advance, capacity, done, new, on, park


@pytest.fixture
def turns(turns_on_both: Any) -> Any:
    return turns_on_both


async def test_a_backlog_of_refused_rows_does_not_hold_up_the_row_behind_it(turns: Any) -> None:
    """The turn reads past the rows whose bucket has refused one of them, instead of three of them per turn."""
    await turns.run(StartInstances(items=[new("holder", concurrency_key="k")]))
    await turns.run(claim=capacity("worker"))
    await turns.run(StartInstances(items=[new(f"blocked-{n:03}", concurrency_key="k") for n in range(500)]))
    await turns.run(StartInstances(items=[new("behind")]))
    result = await turns.run(claim=capacity("worker"))
    assert [claim.id for claim in result.claims] == ["behind"]


async def parked(turns: Any, id: str, **options: Any) -> Deliver:
    """Park this instance. Returns the signal that wakes it."""
    [claim] = (await turns.run(StartInstances(items=[new(id, **options)]), claim=capacity("worker"))).claims
    await turns.run(park(claim, on("go")))
    return Deliver(target=id, name="go")


async def test_a_start_in_the_turn_of_a_waking_signal_is_claimed_with_it(turns: Any) -> None:
    wake = await parked(turns, "waiting")
    start = StartInstances(items=[new("started")])
    result = await turns.run(wake, start, claim=capacity("worker", 3, backlog=False))
    assert {claim.id for claim in result.claims} == {"waiting", "started"}


async def test_the_next_turn_claims_a_step_that_lost_its_slot_while_others_ran_ahead(turns: Any) -> None:
    """Three slots and one row that waits: the queue is read to its end, and still a row is left behind."""
    items = [new(f"ahead-{n}") for n in range(3)]
    claims = (await turns.run(StartInstances(items=items), claim=capacity("worker", 3))).claims
    await turns.run(StartInstances(items=[new("waits")]))
    result = await turns.run(*map(advance, claims), claim=capacity("worker", 0))
    assert [claim.id for claim in result.claims] == ["waits"]
    [displaced] = {claim.id for claim in claims} - {request.claim.id for request in result.ran_ahead}
    backlog = result.pending.left_claimable or result.pending.backlog
    [again] = (await turns.run(done(result.claims[0]), claim=capacity("worker", 1, backlog=backlog))).claims
    assert again.id == displaced


@pytest.mark.parametrize("backlog", [False, True])
@pytest.mark.parametrize("room", [1, 3])
async def test_woken_instances_are_claimed_up_to_the_free_slots_and_the_others_are_left_claimable(
    turns: Any, room: int, backlog: bool
) -> None:
    """`b` needs a bucket and `d` is a row of another process: neither is claimed in the quickest way."""
    wake = [await parked(turns, "a"), await parked(turns, "b", concurrency_key="k"), await parked(turns, "c")]
    await turns.run(StartInstances(items=[new("d")]))
    result = await turns.run(*wake, claim=capacity("worker", room, backlog=backlog))
    assert len(result.claims) == room
    rest = (await turns.run(claim=capacity("worker", 4))).claims
    assert sorted(claim.id for claim in [*result.claims, *rest]) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("backlog", [False, True])
async def test_m9_of_instances_under_one_key_that_are_woken_together_one_is_claimed(turns: Any, backlog: bool) -> None:
    wake = [await parked(turns, id, concurrency_key="k") for id in ("a", "b")]
    result = await turns.run(*wake, claim=capacity("worker", 3, backlog=backlog))
    assert len(result.claims) == 1


@pytest.mark.parametrize("priority", [-1, 1])
async def test_m10_the_most_urgent_of_the_woken_and_the_waiting_gets_the_slot(turns: Any, priority: int) -> None:
    wake = await parked(turns, "woken", priority=priority)
    await turns.run(StartInstances(items=[new("waits")]))
    [claim] = (await turns.run(wake, claim=capacity("worker"))).claims
    assert claim.id == ("woken" if priority < 0 else "waits")


@pytest.mark.parametrize("lazy", [0, 1])
async def test_m10_the_least_urgent_step_loses_its_slot(turns: Any, lazy: int) -> None:
    items = [new(f"ahead-{n}", priority=1 if n == lazy else -1) for n in range(2)]
    claims = {
        claim.id: claim for claim in (await turns.run(StartInstances(items=items), claim=capacity("w", 2))).claims
    }
    await turns.run(StartInstances(items=[new("waits")]))
    outcomes = [advance(claims[f"ahead-{n}"]) for n in range(2)]
    result = await turns.run(*outcomes, claim=capacity("w", 0))
    assert [claim.id for claim in result.claims] == ["waits"]
    assert [request.claim.id for request in result.ran_ahead] == [f"ahead-{1 - lazy}"]


@pytest.mark.parametrize("room", [0, 1])
async def test_a_turn_that_fills_its_slots_says_that_rows_may_be_left(turns: Any, room: int) -> None:
    result = await turns.run(StartInstances(items=[new("a"), new("b")]), claim=capacity("worker", room))
    assert len(result.claims) == room
    assert result.pending.left_claimable
    assert result.pending.backlog


async def test_a_turn_without_a_worker_leaves_what_it_starts_to_others(turns_on_both: Any) -> None:
    result = await turns_on_both.run(StartInstances(items=[new("a")]))
    assert result.pending.left_claimable


@pytest.mark.parametrize("lost", [False, True])
async def test_m5_what_a_worker_loses_or_hands_back_is_claimed_in_the_same_turn(turns_on_both: Any, lost: bool) -> None:
    turns = turns_on_both
    [claim] = (await turns.run(StartInstances(items=[new("a")]), claim=capacity("gone"))).claims
    back = Reclaim(owners=["gone"]) if lost else HandBack(claims=[claim])
    [again] = (await turns.run(back, claim=capacity("worker", backlog=False))).claims
    assert (again.id, again.epoch_before) == ("a", claim.epoch + 1)


async def test_a_turn_without_a_slot_does_not_forget_that_rows_may_wait(turns_on_both: Any) -> None:
    await turns_on_both.run(StartInstances(items=[new("a")]))
    result = await turns_on_both.run(claim=capacity("worker", 0))
    assert result.pending.left_claimable
    assert result.pending.backlog


async def test_m9_the_key_of_a_step_that_lost_its_slot_is_free_for_the_next_one(turns_on_both: Any) -> None:
    turns = turns_on_both
    items = [new("a", concurrency_key="k"), new("b", concurrency_key="k")]
    [claim] = (await turns.run(StartInstances(items=items), claim=capacity("worker", 2))).claims
    await turns.run(StartInstances(items=[new("urgent", priority=-1)]))
    result = await turns.run(advance(claim), claim=capacity("worker", 0))
    assert [claim.id for claim in result.claims] == ["urgent"]
    assert result.pending.earliest == result.now
