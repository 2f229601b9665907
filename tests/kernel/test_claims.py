"""Claims: which rows get the free slots of one turn."""

from typing import Any

from hark.kernel.requests import Deliver, StartInstances
from tests.support.turns import advance, capacity, done, new, on, park


async def test_a_backlog_of_refused_rows_does_not_hold_up_the_row_behind_it(turns: Any) -> None:
    """The turn reads past the rows whose bucket has refused one of them, instead of three of them per turn."""
    await turns.run(StartInstances(items=[new("holder", concurrency_key="k")]))
    await turns.run(claim=capacity("worker"))
    await turns.run(StartInstances(items=[new(f"blocked-{n:03}", concurrency_key="k") for n in range(500)]))
    await turns.run(StartInstances(items=[new("behind")]))
    result = await turns.run(claim=capacity("worker"))
    assert [claim.id for claim in result.claims] == ["behind"]


async def test_a_start_in_the_turn_of_a_waking_signal_is_claimed_with_it(turns_on_both: Any) -> None:
    turns = turns_on_both
    [waiting] = (await turns.run(StartInstances(items=[new("waiting")]), claim=capacity("worker"))).claims
    await turns.run(park(waiting, on("go")))
    together = [Deliver(target="waiting", name="go"), StartInstances(items=[new("started")])]
    result = await turns.run(*together, claim=capacity("worker", 3, backlog=False))
    assert {claim.id for claim in result.claims} == {"waiting", "started"}


async def test_the_next_turn_claims_a_step_that_lost_its_slot_while_others_ran_ahead(turns_on_both: Any) -> None:
    """Three slots and one row that waits: the queue is read to its end, and still a row is left behind."""
    turns = turns_on_both
    items = [new(f"ahead-{n}") for n in range(3)]
    claims = (await turns.run(StartInstances(items=items), claim=capacity("worker", 3))).claims
    await turns.run(StartInstances(items=[new("waits")]))
    result = await turns.run(*map(advance, claims), claim=capacity("worker", 0))
    assert [claim.id for claim in result.claims] == ["waits"]
    [displaced] = {claim.id for claim in claims} - {request.claim.id for request in result.ran_ahead}
    backlog = result.pending.left_claimable or result.pending.backlog
    [again] = (await turns.run(done(result.claims[0]), claim=capacity("worker", 1, backlog=backlog))).claims
    assert again.id == displaced
