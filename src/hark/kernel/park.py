"""Arm waits, and park instances on them.

A park arms its waits and then reads the inbox under the same lock (invariant 4): any answer that this activation was
not handed makes it runnable instead (invariant 5). A function that proceeds arms waits too, and keeps executing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hark.kernel import expire, kept_messages
from hark.kernel.inbox import load_waits, read_before, read_waits
from hark.kernel.requests import Commit
from hark.kernel.runs import run_signals
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model.activation import Claim, WaitRow
from hark.model.decisions import Arm, NewAwakeable, Park, Proceed
from hark.model.values import Status
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def arm(turn: Turn, requests: Sequence[tuple[Commit, Park | Proceed]]) -> None:
    """Replace the waits of these instances as their moves say."""
    disarmed: list[str] = []
    fired: list[str] = []
    armed: list[tuple[Any, ...]] = []
    each: list[tuple[Any, ...]] = []  # waits that receive several answers
    awakeables: list[tuple[Any, ...]] = []
    noted = await _noted_waits(turn, requests)
    for request, move in requests:
        claim = request.claim
        row = turn.rows[claim.id]
        waits = noted.get(claim.id, claim.waits)
        dropped = {wait.id for wait in waits} if move.disarm is None else set(move.disarm)
        disarmed.extend(dropped)
        row.waits = [wait for wait in waits if wait.id not in dropped]
        if dropped and claim.kind == "task":
            run_signals.drop_waits(turn, row)
        row.waits_are_current = not row.waits  # a wait that is kept may have been answered while the step ran
        if row.waits and claim.inbox:
            fired += _fire_answered(turn, row.waits, claim)
        for new in move.arm:
            wait = new_wait(turn, new)
            row.waits.append(wait)
            (each if wait.answers_each else armed).append(wait_columns(claim.id, wait))
            WAIT_KINDS[wait.kind].armed(turn, row, wait)
        for asked in move.awakeables:
            awakeables.append(_awakeable(turn, claim, asked))
            turn.history.asked(claim.id, asked.id, awaited=asked.awaited)
    if disarmed:
        await turn.tx.fetch(sql.delete_waits, ids=disarmed)
    if fired:
        await turn.tx.fetch(sql.fire_waits, ids=fired)
    if armed:
        await turn.tx.fetch(sql.insert_waits, armed)
    if each:
        await turn.tx.fetch(sql.insert_waits_for_each, each)
    if armed or each:
        await run_signals.take_signals(turn)
        if turn.batch.message_waits:
            await kept_messages.take_for_outcomes(turn)
    if awakeables:
        await turn.tx.fetch(sql.insert_awakeables, awakeables)
    await turn.inbox.flush()


async def _noted_waits(turn: Turn, requests: Sequence[tuple[Commit, Park | Proceed]]) -> dict[str, list[WaitRow]]:
    """Read the waits of the tasks among these: notes have armed some since the claim read them."""
    noted: dict[str, list[WaitRow]] = {r.claim.id: [] for r, _ in requests if r.claim.kind == "task"}
    for id, wait in await read_waits(turn.tx, noted) if noted else ():
        noted[id].append(wait)
    return noted


def new_wait(turn: Turn, arm: Arm) -> WaitRow:
    """The wait to arm. The key of a wait for a signal of a run is the id of the run."""
    remaining = WAIT_KINDS[arm.kind].remaining(turn, arm)
    due = arm.due(turn.now)
    key = arm.id if arm.fresh else arm.key or arm.run  # with a key, only what is directed to it answers it
    return WaitRow(arm.id, arm.place, arm.kind, arm.name, key, due, remaining, None, turn.now, arm.answers_each)


def wait_columns(instance: str, w: WaitRow) -> tuple[Any, ...]:
    return w.id, instance, w.place, w.kind, w.name, w.key, w.deadline, w.remaining


def _awakeable(turn: Turn, claim: Claim, a: NewAwakeable) -> tuple[Any, ...]:
    timeout = None if a.timeout is None else turn.now + a.timeout
    return (
        a.id, claim.id, a.task, a.place, a.entry_index, timeout, a.nonce, a.title, a.description, a.schema, a.assignees,
        a.groups, a.due_at,
    )  # fmt: skip


def _fire_answered(turn: Turn, kept: list[WaitRow], claim: Claim) -> list[str]:
    """Fire the kept waits that take one answer and have it: the verb that posted it to a woken instance left them open,
    and they must not time out any more. Returns their ids."""
    once = [wait for wait in kept if wait.fired_at is None and WAIT_KINDS[wait.kind].has_one_answer]
    answers = {(row.kind, row.name) for row in claim.inbox} if once else ()
    answered = [wait for wait in once if (wait.kind, wait.name) in answers]
    for wait in answered:
        wait.fired_at = turn.now
    return [wait.id for wait in answered]


async def park(turn: Turn, parks: Sequence[tuple[Commit, Park]]) -> None:
    """Park these instances, whose waits are armed; those with an answer they were not handed are runnable instead."""
    answered = await _answered(turn, [request for request, _ in parks])
    rows = [_parked(turn, request, move, request.claim.id in answered) for request, move in parks]
    await turn.tx.fetch(sql.park, rows)


async def _answered(turn: Turn, requests: list[Commit]) -> set[str]:
    handed: dict[str, frozenset[int]] = {}
    unread: list[tuple[str, int]] = []
    for request in requests:
        claim, decision = request.claim, request.decision
        if turn.rows[claim.id].has_inbox_rows:
            handed[claim.id] = frozenset(decision.handed)
            unread.append((claim.id, read_before(claim, decision)))  # known rows answer none of the waits of a function
    answered: set[str] = set()
    if not handed:
        return answered
    for seq, id, kind, name, wait_id in await turn.tx.fetch(sql.inbox_heads, sorted(unread)):
        if id in answered:
            continue  # one is enough: a process may have thousands of waits, and as many answers
        if seq in handed[id]:
            continue  # the step was handed it and chose to wait
        if any(wait.answered_by(kind, name, wait_id) for wait in turn.rows[id].waits):
            answered.add(id)
    return answered


def _parked(turn: Turn, request: Commit, move: Park, answered: bool) -> tuple[Any, ...]:
    claim, decision = request.claim, request.decision
    row = turn.rows[claim.id]
    turn.history.parked(claim, decision, move, row.waits)
    due = None
    if answered:
        row.status = "runnable"
        turn.result.pending.made_claimable = True
    else:
        row.status = _status(row.waits, move)
        due = expire.next_deadline(row.waits)
        if due is not None:
            turn.result.pending.due(due)
    return claim.id, claim.epoch, row.status, decision.step, decision.state, due


def _status(waits: list[WaitRow], move: Park) -> Status:
    """The status of an instance that is parked on these waits: the first that is more than `awaiting_signal`."""
    if not move.has_children:
        return "awaiting_signal"
    statuses = (WAIT_KINDS[wait.kind].status for wait in waits)
    return next((status for status in statuses if status != "awaiting_signal"), "awaiting_signal")


async def keep_waits(turn: Turn, proceeds: list[tuple[Commit, Proceed]]) -> None:
    """Record the waits that executing functions keep. Functions ask to fire the deadlines, which the sweep skips."""
    late = [turn.rows[request.claim.id] for request, move in proceeds if move.fire_deadlines]
    if late:
        for row in late:
            row.waits = []  # as the claim read them: one may have been answered since
        await load_waits(turn.tx, late)
        await expire.fire_deadlines(turn, late)
    for request, _ in proceeds:
        turn.result.kept[request.claim.id] = (turn.rows[request.claim.id].waits, [])
