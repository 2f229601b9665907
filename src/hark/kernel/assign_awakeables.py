"""Claim and unclaim awakeables: record which person works on an open question (user tasks of processes).

A claim is recorded as advice for people: it keeps others from claiming, not from answering. `settle.plan` locks for
both, so a claim either precedes the settlement or is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import settle
from hark.kernel.requests import AssignAwakeable
from hark.model.errors import AlreadyClaimed, HarkError, NotFound
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def apply(turn: Turn) -> None:
    """Record and clear claims, after the settlements of the same turn."""
    requests = turn.batch.of(AssignAwakeable)
    if not requests:
        return
    states = await settle.read_states(turn, {request.awakeable for request in requests})
    claimed: dict[str, str | None] = {}
    for request in requests:
        state = states.get(request.awakeable)
        if state is not None and state.instance_id not in turn.rows and not request.read_owner:
            request.read_owner = True  # the id named another instance than the owner: run again, and read the owner
            turn.result.again.append(request)
        elif state is not None and state.task_id not in turn.rows and state.task_id != request.task_id:
            request.task_id = state.task_id  # run again, and lock the task with all other rows
            turn.result.again.append(request)
        elif state is None or (state.task_id or state.instance_id) not in turn.rows:
            request.result = NotFound(f"There is no awakeable {request.awakeable!r}. Check the id.")
        else:
            holder = claimed.get(state.id, state.claimed_by)
            request.result = _refusal(turn, request, state, holder) or _shown(state, request.by)
            if not isinstance(request.result, HarkError) and holder != request.by:
                claimed[state.id] = request.by
                _record(turn, request, state, holder)
    if claimed:
        await turn.tx.fetch(sql.claim_awakeables, sorted(claimed.items()))


def _refusal(turn: Turn, request: AssignAwakeable, state: sql.AwakeableState, holder: str | None) -> HarkError | None:
    if state.status != "PENDING":
        assert state.resolved_at is not None
        return settle.already_settled(state.id, state.status, state.answered_by, state.resolved_at)
    if settle.is_late(turn, state):  # no timer fires while its instance is executing
        assert state.timeout_at is not None
        return settle.already_settled(state.id, "TIMEOUT", None, state.timeout_at)
    if request.by is None:
        return None
    if holder is not None and holder != request.by:
        return AlreadyClaimed(
            f"Awakeable {state.id} is claimed by {holder}. Ask {holder} to unclaim it, or unclaim it yourself.",
            status=state.status,
            by=holder,
        )
    return settle.not_assigned(state, request.by, "claim")


def _record(turn: Turn, request: AssignAwakeable, state: sql.AwakeableState, holder: str | None) -> None:
    asker = state.task_id or state.instance_id
    if request.by is None:
        turn.history.event(asker, "unclaimed", None, awakeable=state.id, by=holder, via=request.via)
    else:
        turn.history.event(asker, "claimed", None, awakeable=state.id, by=request.by, via=request.via)


def _shown(state: sql.AwakeableState, by: str | None) -> sql.AwakeableRow:
    """The row as `read_awakeables` shows it now."""
    return sql.AwakeableRow(
        state.id, state.instance_id, state.task, state.entry_index, state.status, None, None, state.timeout_at,
        state.created_at, None, state.title, state.description, state.schema, state.assignees, None, state.nonce,
        state.groups, by, state.due_at,
    )  # fmt: skip
