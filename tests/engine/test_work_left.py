"""The work that a turn leaves for the next one (engine/turns/work_left.py)."""

from __future__ import annotations

import pytest

from hark.engine.turns.work_left import WorkLeft
from hark.kernel.result import TurnResult


def after(left: WorkLeft, *, freed: bool = False, claimed: bool = True, **pending: bool) -> bool:
    result = TurnResult(0, 0)
    for name, value in pending.items():
        setattr(result.pending, name, value)
    left.update(result, freed=freed, claimed=claimed, swept=False, pending_deliveries=False)
    return left.claimable


def test_a_hint_is_taken_once_and_says_that_something_may_be_claimable() -> None:
    left = WorkLeft()
    assert not left.take_hint()
    assert not left.claimable
    left.hinted = True
    assert left.take_hint()
    assert not left.take_hint()
    assert left.claimable


def test_a_turn_that_has_claimed_leaves_nothing() -> None:
    left = WorkLeft()
    left.claimable = True
    assert not after(left)


@pytest.mark.parametrize("reason", ["freed", "more", "left_claimable"])
def test_what_a_turn_frees_or_leaves_is_for_the_next_one(reason: str) -> None:
    assert after(WorkLeft(), **{reason: True})


def test_without_a_claim_what_was_claimable_still_is() -> None:
    left = WorkLeft()
    left.claimable = True
    assert after(left, claimed=False)
