"""Settle awakeables: resolved, rejected, timed out or withdrawn.

Each settles once, with the inbox row of its answer in the same commit (invariant 8).

Only the settling turn knows which awakeable an answer settles, and with which schema. It validates a small answer
itself. Any other answer is validated outside the turns (`TurnResult.to_validate`) and then comes back: a turn must
not wait for it; an effect cannot leave its outcome and is validated in the turn, within the same limits of work
(model/validation.py). An answer that does not match the schema, or comes from a person who was not asked, is refused
and changes nothing (A8).

`store/schema/functions.sql` repeats the settlement for the call turn; tests/kernel/test_call_turns.py compares
both.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from hark.kernel.effects import request_for
from hark.kernel.inbox import load_waits
from hark.kernel.requests import AssignAwakeable, Commit, SettleAwakeable
from hark.kernel.rows import LockedRow
from hark.model import json, validation
from hark.model.answers import dump_answer
from hark.model.decisions import Settle
from hark.model.errors import AlreadySettled, HarkError, InvalidAnswer, NotAssigned, NotFound
from hark.model.names import from_micros, instance_of
from hark.model.schema import example_answers, like_an_answer
from hark.store import statements as sql
from hark.store.protocol import Conflicted

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class _Settled(msgspec.Struct, gc=False):
    """A row for `statements.settle`."""

    id: str
    asker: str | None  # the instance whose wait must be fired; None when the wait is not kept
    status: str
    payload: str | None
    error: str | None
    answered_by: str | None


@request_for(Settle)
def _request(effect: Settle, sender: Commit) -> SettleAwakeable:
    # Read the owner now: a request that names a wrong owner runs again, an effect cannot do so without its outcome.
    return SettleAwakeable(settle=effect, sender=sender, read_owner=True)


async def plan(turn: Turn) -> None:
    """Lock the owner of each awakeable. Its id names the owner (A2), which saves a read; otherwise it is read."""
    unknown = set()
    requests: Iterable[SettleAwakeable | AssignAwakeable]
    requests = chain(turn.batch.of(SettleAwakeable), turn.batch.of(AssignAwakeable))
    for request in requests:
        id = request.settle.awakeable if isinstance(request, SettleAwakeable) else request.awakeable
        if request.task_id is not None:
            turn.locks.ids.add(request.task_id)
        owner = None if request.read_owner else instance_of(id)
        if owner is None:
            unknown.add(id)
        else:
            turn.locks.ids.add(owner)
    if unknown:
        for _, owner, task in await turn.tx.fetch(sql.awakeable_owners, ids=sorted(unknown)):
            turn.locks.ids.update((owner,) if task is None else (owner, task))


async def apply(turn: Turn) -> None:
    requests = [
        request
        for request in turn.batch.of(SettleAwakeable)
        if request.sender is None or not request.sender.fenced
    ]  # fmt: skip
    if not requests:
        return
    states = await read_states(turn, {request.settle.awakeable for request in requests})
    settled: dict[str, _Settled] = {}
    for request in requests:
        state = states.get(request.settle.awakeable)
        if state is not None and state.instance_id not in turn.rows and not request.read_owner:
            request.read_owner = True  # the id named another instance than the owner: run again, and read the owner
            turn.result.again.append(request)
        elif state is not None and state.task_id not in turn.rows and state.task_id != request.task_id:
            if request.sender is not None:
                raise Conflicted("another transaction holds the task that asked")
            request.task_id = state.task_id  # run again, and lock the task with all other rows
            turn.result.again.append(request)
        else:
            _settle(turn, request, state, settled)
    if settled:
        await turn.tx.fetch(sql.settle, [(s.id, s.status, s.payload, s.error, s.answered_by) for s in settled.values()])
        asked = {s.id: s.asker for s in settled.values() if s.asker is not None}
        if asked:
            await turn.tx.fetch(sql.fire_answered, ids=sorted({*asked.values()}), names=list(asked))
    await turn.inbox.flush()


async def read_states(turn: Turn, awakeables: Iterable[str]) -> dict[str, sql.AwakeableState]:
    """Read awakeables, and lock the tasks that asked, if they are free: only the states say which belong to a task.
    Then the states were read before the lock, and are read again (invariant 3)."""
    ids = sorted(awakeables)
    states = await turn.tx.fetch(sql.awakeable_states, ids=ids)
    tasks = [state.task_id for state in states if state.task_id is not None and state.task_id not in turn.rows]
    if tasks:
        locked = await turn.locks.acquire_free(tasks)
        await load_waits(turn.tx, [row for row in locked if row.parked])
        states = await turn.tx.fetch(sql.awakeable_states, ids=ids)
    return {state.id: state for state in states}


def _settle(
    turn: Turn, request: SettleAwakeable, state: sql.AwakeableState | None, settled: dict[str, _Settled]
) -> None:
    settle = request.settle
    row = turn.rows.get(state.task_id or state.instance_id) if state is not None else None
    if state is None or row is None:
        _refuse(turn, request, NotFound(f"There is no awakeable {settle.awakeable!r}. Check the id."))
        return
    if settle.awakeable not in settled and is_late(turn, state):
        _close(turn, row, Settle(settle.awakeable, "TIMEOUT"), settled)
    if settle.awakeable in settled or state.status != "PENDING":
        _refuse(turn, request, _settled_before(turn, state, settled.get(settle.awakeable)))
    elif (not_assigned := _not_assigned(state, settle)) is not None:
        _refuse(turn, request, not_assigned)
    elif (problems := _problems(request, state.schema)) is None:
        turn.result.to_validate.append(request)
    elif problems:
        _refuse(turn, request, _invalid(settle, problems, state.schema or "null"))
    else:
        _close(turn, row, settle, settled)
        request.result = _shown(state, settle, turn.now)


def is_late(turn: Turn, state: sql.AwakeableState) -> bool:
    """Return True for an awakeable that is pending after its timeout: no timer fires while its instance executes."""
    return state.status == "PENDING" and state.timeout_at is not None and state.timeout_at <= turn.now


def _close(turn: Turn, row: LockedRow, settle: Settle, settled: dict[str, _Settled]) -> None:
    if settle.status == "CANCELLED":  # the instance that withdraws it gets no answer
        turn.history.event(row.id, "awakeable", None, awakeable=settle.awakeable, status=settle.status)
    else:
        post_answer(turn, row, settle)
    # A woken instance has no deadline, and drops this wait when it continues: the wait is left as it is, as that of a
    # signal is.
    asker = None if row.id in turn.inbox.woken else row.id
    settled[settle.awakeable] = _Settled(
        settle.awakeable, asker, settle.status, settle.payload, settle.error, settle.by
    )
    if asker is not None:  # as `statements.fire_answered` does in the store
        for wait in row.waits:
            if wait.kind == "awakeable" and wait.name == settle.awakeable:
                wait.fired_at = turn.now


def _settled_before(turn: Turn, state: sql.AwakeableState, in_this_turn: _Settled | None) -> AlreadySettled:
    if in_this_turn is not None:
        return already_settled(state.id, in_this_turn.status, in_this_turn.answered_by, turn.now)
    assert state.resolved_at is not None
    return already_settled(state.id, state.status, state.answered_by, state.resolved_at)


def already_settled(id: str, status: str, by: str | None, at: int) -> AlreadySettled:
    """The error about an awakeable that was settled at this time, µs."""
    when = from_micros(at)
    return AlreadySettled(
        f"Awakeable {id} was {status} at {when:%Y-%m-%d %H:%M:%S} UTC"
        f"{f', by {by}' if by else ''}. An awakeable settles once; nothing was changed.",
        status=status,
        by=by,
        at=when,
    )


def _not_assigned(state: sql.AwakeableState, settle: Settle) -> NotAssigned | None:
    # Anyone with the link, and any step, may answer without being an assignee (decision 6).
    return None if settle.via in ("link", "step") else not_assigned(state, settle.by, "answer")


def not_assigned(state: sql.AwakeableState, by: str | None, verb: str) -> NotAssigned | None:
    """The error of a person who may not answer or claim an awakeable, or None. Group members are not known here."""
    assignees = json.load(state.assignees) if state.assignees is not None else []
    # A caller without `by` is code with access to the store. `by` is what the door says: auth.py takes it from the API
    # token.
    if not assignees or by is None or by in assignees or state.groups is not None:
        return None
    return NotAssigned(
        f"{by} may not {verb} awakeable {state.id}; it is assigned to {', '.join(assignees)}. "
        f"Nothing was changed; one of them can {verb} it.",
        problems=[f"by: {by} is not an assignee ({', '.join(assignees)})"],
    )


def matches_schema(request: SettleAwakeable, wanted: str) -> bool:
    """Return True when the answer is known to match this schema, without validation outside the turns."""
    return _problems(request, wanted) == []


def _problems(request: SettleAwakeable, wanted: str | None) -> list[str] | None:
    """The mismatches of the answer with the schema; None if they must be found outside the turns."""
    settle = request.settle
    # A payload of None means that no answer is given, as in a rejection; the JSON value null is the text "null".
    if wanted is None or settle.payload is None or settle.status != "RESOLVED":
        return []
    if request.problems is not None and request.schema == wanted:
        return request.problems
    if request.sender is not None:
        return validation.problems(wanted, settle.payload)
    request.schema, request.problems = wanted, validation.quick_problems(wanted, settle.payload)
    return request.problems


def validate(request: SettleAwakeable) -> None:
    """Validate the answer of a request in `TurnResult.to_validate`. It may take long, and needs a thread of its own."""
    assert request.schema is not None
    assert request.settle.payload is not None
    request.problems = validation.problems(request.schema, request.settle.payload)


def _invalid(settle: Settle, problems: list[str], schema: str) -> InvalidAnswer:
    examples = example_answers(json.load(schema))
    like = like_an_answer(examples)
    return InvalidAnswer(
        f"The answer to awakeable {settle.awakeable} does not match its schema: {'; '.join(problems)}. "
        f"Nothing was changed; correct the answer and send it again.{like}",
        problems=problems,
        examples=examples if like else [],
    )


def _shown(state: sql.AwakeableState, settle: Settle, now: int) -> sql.AwakeableRow:
    """The row as `read_awakeables` shows it now, so that the caller needs no read of its own."""
    return sql.AwakeableRow(
        state.id, state.instance_id, state.task, state.entry_index, settle.status, settle.payload, settle.error,
        state.timeout_at, state.created_at, now, state.title, state.description, state.schema, state.assignees,
        settle.by, state.nonce, state.groups, state.claimed_by, state.due_at,
    )  # fmt: skip


def post_answer(turn: Turn, row: LockedRow, settle: Settle) -> None:
    """Post the answer to the inbox of the instance that asked; an event says who gave it and through which door."""
    post(turn, row, settle)
    origin = _origin(settle)
    turn.history.event(row.id, "awakeable", None, awakeable=settle.awakeable, status=settle.status, **origin)


def answer_event(settle: Settle) -> dict[str, str]:
    return {"awakeable": settle.awakeable, "status": settle.status, **_origin(settle)}


def _origin(settle: Settle) -> dict[str, str]:
    return {key: value for key, value in (("by", settle.by), ("via", settle.via)) if value is not None}


def post(turn: Turn, row: LockedRow, settle: Settle | sql.AnswerRow) -> None:
    turn.inbox.post(row, "awakeable", settle.awakeable, answer_payload(settle))


def answer_payload(settle: Settle | sql.AnswerRow) -> str:
    return dump_answer(settle.status, settle.payload, settle.error, settle.by)


def _refuse(turn: Turn, request: SettleAwakeable, error: HarkError) -> None:
    request.result = error
    if request.sender is not None and request.settle.status != "CANCELLED":
        claim = request.sender.claim
        turn.history.event(claim.id, "unsettled", claim.step, awakeable=request.settle.awakeable, error=str(error))
