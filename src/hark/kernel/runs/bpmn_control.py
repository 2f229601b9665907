"""Carry out the requests of operators to a process: set variables, and resume its incidents while it is live.

A live process gets a row of kind `control` in its inbox, directed to the wait that receives the ends of its children.
No signal can be such a row (invariant 16). Before the first activation of a process, its state is only variables,
and new ones are merged into it; into the state of a failed process too, under its lock, for the retry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hark.kernel.requests import SetVariables
from hark.kernel.rows import LockedRow
from hark.model import json
from hark.model.bpmn_state import control_wait, has_begun, has_incidents, merge_variables
from hark.model.errors import Conflict, HarkError, InvalidInput, no_instance
from hark.model.lanes import BPMN
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.batch.of(SetVariables):
        turn.locks.add_target(request.target)


async def apply(turn: Turn) -> None:
    """Set variables, before the retries of the same turn: corrected variables come first."""
    asked: list[tuple[SetVariables, LockedRow]] = []
    for request in turn.batch.of(SetVariables):
        row = turn.locks.find(request.target)
        refusal = _refusal(request, row)
        if refusal is not None or row is None:
            request.result = refusal
        else:
            asked.append((request, row))
    if not asked:
        return
    found = await _states(turn, sorted({row.id for _, row in asked}))
    merged: dict[str, str] = {}
    for request, row in asked:
        step, state = found[row.id]
        # While a row waits in its inbox, a later one must come after it. An executing one would overwrite its state.
        waits_to_begin = row.status == "runnable" and not row.has_inbox_rows and not has_begun(step)
        if row.status == "failed" or waits_to_begin:
            merged[row.id] = state = merge_variables(state, request.payload, step)
            found[row.id] = (step, state)
        else:
            post(turn, row, "variables", request.payload)
        request.result = row.id
        turn.history.event(row.id, "variables", None, names=sorted(json.load(request.payload)))
    if merged:
        await turn.tx.fetch(sql.set_bpmn_states, sorted(merged.items()))
    await turn.inbox.flush()


async def with_incidents(turn: Turn, rows: list[LockedRow]) -> set[str]:
    """Find the live processes that may have incidents: those of an executing one are known to its activation only."""
    found = await _states(turn, sorted({row.id for row in rows if row.status != "executing"}))
    stuck = {id for id, (step, state) in found.items() if has_begun(step) and has_incidents(state)}
    return stuck | {row.id for row in rows if row.status == "executing"}


def post(turn: Turn, row: LockedRow, name: Literal["variables", "retry"], payload: str = "null") -> None:
    """Post a request of an operator to a live process."""
    turn.inbox.post(row, "control", name, payload, wait_id=control_wait(row.id))


async def _states(turn: Turn, ids: list[str]) -> dict[str, tuple[str, str]]:
    return {id: (step, state) for id, step, state in await turn.tx.fetch(sql.bpmn_states, ids=ids)} if ids else {}


def _refusal(request: SetVariables, row: LockedRow | None) -> HarkError | None:
    if row is None:
        return no_instance(request.target)
    if row.kind != BPMN:
        return InvalidInput(
            f"{request.target!r} is a {row.kind}, and only a process has variables. Send it a signal instead."
        )
    if row.terminal and row.status != "failed":
        return Conflict(f"{request.target!r} is {row.status}: its variables cannot change any more.", status=row.status)
    if not request.payload.startswith("{"):
        return InvalidInput("The variables of a process are an object: send the names with their values.")
    return None
