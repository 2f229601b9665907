"""Choose how a turn is executed.

    AdvanceTurn  outcomes that run ahead and bring nothing else along: one statement (advance_turn.py)
    CallTurn     a few signals and answers, or only claims: one call of a function in the database (call_turn.py)
    FullTurn     everything else: the phases of turn.py

All three leave the same rows: tests/kernel/test_call_turns.py, tests/races/test_advance_turns.py and the model in
tests/kernel/test_stateful.py compare them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hark.kernel.fast.advance_turn import are_advances
from hark.kernel.fast.call_turn import call_parameters
from hark.kernel.requests import Capacity, Commit, Request


class FullTurn(NamedTuple):
    """Execute all phases of turn.py."""


class AdvanceTurn(NamedTuple):
    """Execute one statement for all outcomes."""

    commits: Sequence[Commit]


class CallTurn(NamedTuple):
    """Execute one function call. It writes nothing if it meets a case that needs a decision of the kernel; then the
    turn is rolled back and executed in full."""

    values: dict[str, Any]
    """The parameters of the call."""


Execution = FullTurn | AdvanceTurn | CallTurn


def choose_execution(
    requests: Sequence[Request],
    capacity: Capacity | None,
    *,
    sweep: bool = False,
    pending_deliveries: bool = False,
    run_ahead: bool = True,
    calls: bool = False,
) -> Execution:
    """Choose the execution of a turn.

    Args:
        requests: What to do.
        capacity: What to claim for a worker, or None to claim nothing.
        sweep: The turn fires what is due.
        pending_deliveries: The turn delivers a chunk of what large broadcasts have left.
        run_ahead: False while the worker stops: a `Next` is queued instead of running ahead.
        calls: True if the store has calls and the app has not turned them off.
    """
    if sweep or pending_deliveries or (capacity is not None and capacity.try_held):
        return FullTurn()
    if run_ahead and capacity is None and requests and are_advances(requests):
        return AdvanceTurn(requests)
    values = call_parameters(requests, capacity) if calls else None
    return FullTurn() if values is None else CallTurn(values)
