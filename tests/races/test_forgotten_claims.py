"""A claim that the database forgot in a crash, and that another worker has made again (X2, decision 23).

A turn that only claims does not wait for the disk. After a crash of the server its instance is as it was before, and
the next claim has the same epoch: the owner tells the two apart. The crash is an UPDATE that takes the claim back.
"""

import pytest

from hark.kernel.requests import Commit, HandBack
from hark.model.activation import Claim
from tests.support.stage import Stage
from tests.support.turns import advance, capacity, done, on, park, retry, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _claimed_twice(stage: Stage) -> tuple[Claim, Claim]:
    """The claim of `a` that was forgotten, and the one that another worker has made after that."""
    await stage.start("a")
    [forgotten] = (await stage.one.run(claim=capacity("first"))).claims
    await stage.eye.execute("UPDATE instances SET status = 'runnable', epoch = epoch - 1, lease_owner = NULL")
    [held] = (await stage.two.run(claim=capacity("second"))).claims
    assert (forgotten.id, forgotten.epoch) == (held.id, held.epoch)
    return forgotten, held


async def _row(stage: Stage) -> tuple[str, str | None, int]:
    row = await stage.eye.fetchrow("SELECT status, lease_owner, epoch FROM instances WHERE id = 'a'")
    return tuple(row)  # type: ignore[return-value, arg-type]


OUTCOMES = {
    "next": advance, "done": done, "stop": stop, "retry": retry, "park": lambda claim: park(claim, on("go")),
}  # fmt: skip


@pytest.mark.parametrize(("outcome", "plain"), [*((name, False) for name in OUTCOMES), ("next", True)])
async def test_x2_the_outcome_of_a_forgotten_claim_is_refused(stage: Stage, outcome: str, plain: bool) -> None:
    forgotten, held = await _claimed_twice(stage)
    late: Commit = OUTCOMES[outcome](forgotten)  # type: ignore[operator]
    await stage.one.run(late, plain=plain)
    assert late.fenced
    assert late.result is None
    assert await _row(stage) == ("executing", "second", held.epoch)
    assert await stage.eye.fetchval("SELECT count(*) FROM events WHERE type <> 'started'") == 0
    own = done(held)
    await stage.two.run(own)
    assert not own.fenced
    assert (await _row(stage))[0] == "done"


@pytest.mark.parametrize("plain", [False, True])
async def test_x2_it_is_refused_too_after_the_present_owner_has_moved_on(stage: Stage, plain: bool) -> None:
    forgotten, held = await _claimed_twice(stage)
    await stage.two.run(advance(held), plain=True)
    late = advance(forgotten)
    await stage.one.run(late, plain=plain)
    assert late.fenced
    assert await _row(stage) == ("executing", "second", held.epoch + 1)


async def test_x2_of_both_outcomes_in_one_turn_that_of_the_owner_counts(stage: Stage) -> None:
    forgotten, held = await _claimed_twice(stage)
    late, own = done(forgotten), advance(held)
    await stage.one.run(late, own)
    assert late.fenced
    assert not own.fenced
    assert (await _row(stage))[0] == "executing"


async def test_x2_a_forgotten_claim_is_not_handed_back(stage: Stage) -> None:
    forgotten, held = await _claimed_twice(stage)
    await stage.one.run(HandBack(claims=[forgotten]))
    assert await _row(stage) == ("executing", "second", held.epoch)
    await stage.two.run(HandBack(claims=[held]))
    assert await _row(stage) == ("runnable", None, held.epoch + 1)
