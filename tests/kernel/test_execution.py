"""Which execution a turn gets (kernel/execution.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from hark.kernel.execution import AdvanceTurn, CallTurn, FullTurn, choose_execution
from hark.kernel.requests import Cancel, Capacity, Commit, Deliver, Request, SettleAwakeable, StartInstances, Sweep
from hark.model.activation import Traits, WaitRow
from hark.model.decisions import Settle
from hark.model.names import awakeable_id
from tests.support.claims import a_claim
from tests.support.turns import advance, done

ROOM = Capacity("me", {"default": 5}, {"m@1": Traits()}, backlog=False)
WAITING = Capacity("me", {"default": 5}, {"m@1": Traits()}, backlog=True)
FULL_QUEUES = Capacity("me", {"default": 0}, {"m@1": Traits()}, backlog=True)


def _next(id: str) -> Commit:
    return advance(a_claim(id=id))


def _next_of_woken(id: str) -> Commit:
    """Its wait has to be removed with it."""
    request = _next(id)
    request.claim.waits = [WaitRow("wait", "", "signal", "go", None, None, None, None, 0)]
    return request


def _signal(id: str = "a") -> Deliver:
    return Deliver(target=id, name="go")


ANSWER = SettleAwakeable(settle=Settle(awakeable_id("a", 0), "RESOLVED", "1"))
CASES: dict[str, tuple[Sequence[Request], dict[str, Any], type]] = {
    "outcomes that run ahead": ([_next("a"), _next("b")], {}, AdvanceTurn),
    "one of them ends": ([_next("a"), done(a_claim(id="b"))], {}, FullTurn),
    "one of them was woken": ([_next("a"), _next_of_woken("b")], {}, FullTurn),
    "two of one instance": ([_next("a"), _next("a")], {}, FullTurn),
    "an outcome and a signal": ([_next("a"), _signal("b")], {}, FullTurn),
    "an outcome, and room to claim": ([_next("a")], {"capacity": ROOM}, FullTurn),
    "an outcome, something is due": ([_next("a")], {"sweep": True}, FullTurn),
    "an outcome, a broadcast left marks": ([_next("a")], {"pending_deliveries": True}, FullTurn),
    "an outcome, the worker stops": ([_next("a")], {"run_ahead": False}, FullTurn),
    "a signal": ([_signal()], {}, CallTurn),
    "a signal, and room to claim": ([_signal()], {"capacity": ROOM}, CallTurn),
    "a signal, and rows that wait longer": ([_signal()], {"capacity": WAITING}, FullTurn),
    "five signals": ([_signal(str(n)) for n in range(5)], {}, CallTurn),
    "six signals": ([_signal(str(n)) for n in range(6)], {}, FullTurn),
    "an answer": ([ANSWER], {}, CallTurn),
    "a signal and a cancel": ([_signal(), Cancel(target="b")], {}, FullTurn),
    "a start": ([StartInstances(items=[])], {}, FullTurn),
    "only claims": ([], {"capacity": WAITING}, CallTurn),
    "only claims, nothing waits": ([], {"capacity": ROOM}, FullTurn),
    "only claims, all queues full": ([], {"capacity": FULL_QUEUES}, FullTurn),
    "only claims, something is due": ([], {"capacity": WAITING, "sweep": True}, FullTurn),
    "a sweep": ([Sweep()], {}, FullTurn),
    "nothing": ([], {}, FullTurn),
}


@pytest.mark.parametrize("case", CASES)
def test_a_turn_gets_the_quickest_execution_that_does_all_it_has_to(case: str) -> None:
    requests, options, expected = CASES[case]
    how = {"capacity": None, "calls": True, **options}
    assert type(choose_execution(requests, **how)) is expected
    if expected is CallTurn:
        assert type(choose_execution(requests, **{**how, "calls": False})) is FullTurn
