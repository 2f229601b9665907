"""Which turns leave the claims of other queues to express turns (runtime/express_turns.py)."""

from __future__ import annotations

from typing import Any

import pytest

from hark.kernel.requests import Commit, Request, Sweep
from hark.model.activation import Claim
from hark.model.decisions import (
    Advance,
    Arm,
    Decision,
    Effect,
    JournalLine,
    Move,
    NewInstance,
    Park,
    Proceed,
    SendBroadcast,
)
from hark.runtime.express_turns import full_queues

MANY = 20
FREE = {"news": 0, "mail": 0, "default": 7}


CHILD = NewInstance("Child", "{}", "child", queue="default")
CHILDREN = (Arm("children", "wait", children=(CHILD,)),)


def outcome(*, effects: list[Effect] | None = None, move: Move | None = None, **columns: Any) -> Commit:
    claim = Claim(
        "id", "Definition", 1, "machine", "news", 0, "start", "{}", 0, 1, None, None, None, None, False, False, 0, 0,
        None, 1.0, None, None, None, "lane", None,
    )  # fmt: skip
    for name in ("concurrency_key", "parent_id"):
        if name in columns:
            setattr(claim, name, columns.pop(name))
    decision = Decision("next", "next", "{}", move or Advance(), effects=effects or [], **columns)
    return Commit(claim=claim, decision=decision)


def test_a_large_turn_of_outcomes_claims_for_the_full_queues_only() -> None:
    assert full_queues([outcome() for _ in range(MANY)], FREE) == {"news", "mail"}


def test_a_small_turn_claims_for_all_queues() -> None:
    assert not full_queues([outcome() for _ in range(MANY - 1)], FREE)


@pytest.mark.parametrize(
    "free", [{"news": 0}, {"news": 1, "default": 7}, {}], ids=["all full", "none full", "no queue"]
)
def test_a_turn_claims_for_all_queues_if_all_or_none_of_them_are_full(free: dict[str, int]) -> None:
    assert not full_queues([outcome() for _ in range(MANY)], free)


@pytest.mark.parametrize(
    "other",
    [
        Sweep(),
        outcome(effects=[SendBroadcast(name="price", payload="1")]),
        outcome(queue="default"),
        outcome(concurrency_key="key"),
        outcome(parent_id="parent"),
        outcome(journal=[JournalLine(1, 1, "broadcast", effect=SendBroadcast(name="price", payload="1"))]),
        outcome(move=Park(arm=CHILDREN)),
        outcome(move=Proceed(arm=CHILDREN)),
    ],
    ids=[
        "a request of a caller",
        "an effect",
        "another queue",
        "a concurrency key",
        "a parent",
        "an effect of a function",
        "children",
        "children of a function",
    ],
)
def test_a_turn_that_may_make_instances_of_other_queues_claimable_claims_for_all_queues(other: Request) -> None:
    outcomes = [outcome() for _ in range(MANY)]
    assert full_queues(outcomes, FREE)
    assert not full_queues([*outcomes, other], FREE)
