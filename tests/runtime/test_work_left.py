"""What a turn leaves for the next one, and for express turns beside it (runtime/work_left.py)."""

from __future__ import annotations

import pytest

from hark.kernel.result import TurnResult
from hark.runtime.work_left import WorkLeft


def after(
    left: WorkLeft, *, full_queues_only: bool, freed: bool = False, claimed: bool = True, **pending: bool
) -> tuple[bool, bool]:
    result = TurnResult(0, 0)
    for name, value in pending.items():
        setattr(result.pending, name, value)
    left.update(
        result, freed=freed, claimed=claimed, swept=False, marks=False, full_queues_only=full_queues_only
    )  # fmt: skip
    return left.claimable, left.claimable_anywhere


def test_a_hint_may_be_about_any_queue() -> None:
    left = WorkLeft()
    assert not left.take_hint()
    assert (left.claimable, left.claimable_anywhere) == (False, False)
    left.hinted = True
    assert left.take_hint()
    assert not left.take_hint()
    assert (left.claimable, left.claimable_anywhere) == (True, True)


def test_a_turn_that_claimed_for_all_queues_leaves_nothing() -> None:
    left = WorkLeft()
    left.claimable = left.claimable_anywhere = True
    assert after(left, full_queues_only=False) == (False, False)


def test_a_turn_that_claimed_for_full_queues_leaves_the_others_as_they_were() -> None:
    left = WorkLeft()
    left.claimable = left.claimable_anywhere = True
    assert after(left, full_queues_only=True) == (True, True)
    left.claimable_anywhere = False  # an express turn has claimed for the others
    assert after(left, full_queues_only=True) == (False, False)


def test_rows_that_wait_for_a_slot_of_a_full_queue_are_not_for_express_turns() -> None:
    assert after(WorkLeft(), full_queues_only=True, left_claimable=True) == (True, False)
    assert after(WorkLeft(), full_queues_only=False, left_claimable=True) == (True, True)


@pytest.mark.parametrize("reason", ["freed", "more", "made_claimable"])
def test_what_a_turn_for_full_queues_frees_or_makes_claimable_may_be_in_any_queue(reason: str) -> None:
    assert after(WorkLeft(), full_queues_only=True, **{reason: True}) == (True, True)


def test_without_a_claim_what_was_claimable_still_is() -> None:
    left = WorkLeft()
    left.claimable = True
    assert after(left, full_queues_only=False, claimed=False) == (True, True)
