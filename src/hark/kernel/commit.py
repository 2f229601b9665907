"""Commit outcomes: fence them, then write each kind of move for all outcomes of the turn at once.

An outcome whose instance is not executing at the outcome's own epoch is dropped before any part of it is written
(invariant 2). Parks are in park.py, ends in finish.py, the turn of nothing but run-ahead in advance_turn.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from hark.kernel import children, definitions, finish, park, reclaim
from hark.kernel.effects import as_request
from hark.kernel.expire import next_deadline
from hark.kernel.inbox import load_waits
from hark.kernel.requests import Commit
from hark.kernel.runs import run_signals
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model.activation import Claim
from hark.model.decisions import UNDO, Advance, Finish, Hold, Move, Park, Proceed, Redo, Release
from hark.model.errors import HarkError
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

# The codes that a held instance remembers, the last ones: more than are deployed at once. The list is part of an index,
# and PostgreSQL refuses an entry of more than 2,700 bytes.
_MOST_CODES = 32


def add_effects(turn: Turn) -> None:
    """Add the requests of the outcomes' effects, and plan the waits they arm."""
    for request in turn.batch.of(Commit):
        request.fenced = False
        decision = request.decision
        for effect in decision.effects:
            turn.batch.add(as_request(effect, request))
        for line in decision.journal or ():
            if line.effect is not None:
                asked = as_request(line.effect, request)
                turn.batch.add(asked)
                turn.batch.journaled.append((request, line, asked))
        move = decision.move
        for arm in move.arm:
            WAIT_KINDS[arm.kind].plan(turn, arm, request)
        if move.version is not None:
            turn.batch.continuing.append((request, move))


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Commit):
        claim = request.claim
        turn.locks.ids.add(claim.id)
        if request.also_lock:
            turn.locks.ids |= request.also_lock
        if claim.parent_id is not None and _concerns_parent(claim, request.decision.move):
            turn.locks.ids.add(claim.parent_id)


def _concerns_parent(claim: Claim, move: Move) -> bool:
    """True when the parent counts this end, or may get back a signal."""
    match move:
        case Finish():
            return claim.parent_wait is not None and not claim.counted
        case Release(crashed=crashed):
            return crashed and claim.parent_wait is not None and not claim.counted  # it may be quarantined
        case Redo():
            return move.drop_waits
        case Advance() | Proceed() | Park() | Hold():
            return False
        case _ as never:
            assert_never(never)


def fence(turn: Turn) -> None:
    taken: set[str] = set()
    for request in turn.batch.of(Commit):
        row = turn.rows.get(request.claim.id)
        request.result = None
        request.fenced = row is None or row.status != "executing" or row.epoch != request.claim.epoch or row.id in taken
        if not request.fenced:  # the outcome of a zombie in the same turn must not fence that of the present owner
            taken.add(request.claim.id)


def fence_again(turn: Turn) -> None:
    """Drop the outcomes of instances that this turn has cancelled, and their effects: the cancel came first."""
    for request in turn.batch.of(Commit):
        request.fenced = request.fenced or turn.rows[request.claim.id].status != "executing"


async def choose_versions(turn: Turn) -> None:
    """Choose the versions with which functions continue as new. One that cannot is refused, before any part of its
    outcome is written."""
    if turn.batch.continuing:
        await definitions.refresh(turn)
    for request, move in turn.batch.continuing:
        request.continues_as = None
        if request.fenced:
            continue
        chosen = definitions.continue_as(turn, request.claim, move)
        if isinstance(chosen, HarkError):
            request.fenced, request.result = True, chosen
        elif chosen[0] != request.claim.version:
            request.continues_as = chosen


async def apply(turn: Turn, *, run_ahead: bool) -> list[Commit]:
    """Write the outcomes. Returns those that may run ahead; claim.py decides, as other work may need their slots."""
    running: list[Commit] = []
    finishes: list[tuple[Commit, Finish]] = []
    parks: list[tuple[Commit, Park]] = []
    proceeds: list[tuple[Commit, Proceed]] = []
    holds: list[tuple[Commit, Hold]] = []
    released: list[Commit] = []
    queued: list[Commit] = []
    new_visits: list[str] = []
    consumed: list[int] = []
    restored: list[int] = []
    undoable: list[tuple[str, str | None]] = []
    progress: list[tuple[str, str]] = []
    restarted: list[tuple[str, str]] = []  # instances that start an attempt without waits, and the places they asked in
    renewed: list[tuple[str, int, str]] = []  # functions that continue as new with another version, and its lane
    moved: list[tuple[str, str, str]] = []  # instances that continue in another lane or queue
    used_waits: list[str] = []  # waits that led to this step; a Retry keeps them, a park or proceed names those to drop
    for request in turn.batch.of(Commit):
        if request.fenced:
            continue
        decision, claim = request.decision, request.claim
        consumed += decision.consume
        restored += decision.restore
        if decision.has_undo is not None:
            undoable.append((claim.id, UNDO if decision.has_undo else None))
        if decision.progress is not None:
            progress.append((claim.id, decision.progress))
        if decision.failed_attempts:
            turn.history.failed_attempts(claim, decision)
        for event in decision.events:
            turn.history.events.append((claim.id, event.type, event.step, event.data))
        if decision.lane is not None or decision.queue is not None:
            moved.append((claim.id, decision.lane or claim.lane, decision.queue or claim.queue))
        has_event = True
        match decision.move:
            case Advance() as move:
                used_waits += [wait.id for wait in claim.waits]
                turn.rows[claim.id].waits = []
                if run_ahead and move.runs_ahead():
                    running.append(request)
                    continue  # its event is written with it
                queued.append(request)
            case Proceed() as move:
                if move.arm or move.awakeables or claim.waits or move.fire_deadlines:
                    proceeds.append((request, move))
                if run_ahead and move.runs_ahead():
                    running.append(request)
                    continue
                if move.continue_as_new:
                    new_visits.append(claim.id)
                    if request.continues_as is not None:
                        version, lane = request.continues_as
                        turn.result.pending.lanes.add((claim.queue, lane))
                        renewed.append((claim.id, version, lane))
                queued.append(request)
            case Redo() as move:
                if move.drop_waits:
                    restarted.append((claim.id, move.asked))
                    turn.rows[claim.id].waits = []
                queued.append(request)
            case Park() as move:
                parks.append((request, move))
                has_event = False  # it is written when its waits are armed
            case Finish() as move:
                finishes.append((request, move))
                has_event = claim.cancel_reason is None  # that of the end of an undo is written in finish.py
            case Hold() as move:
                holds.append((request, move))
            case Release():
                released.append(request)
                has_event = False  # it is written in reclaim.py, which decides what it is
            case _ as never:
                assert_never(never)
        if has_event:
            turn.history.outcome(claim, decision)
        if claim.concurrency_key is not None:
            turn.buckets.freed.add(claim.concurrency_key)
    if progress:
        await turn.tx.fetch(sql.set_progress, progress)
    if restored:
        await turn.tx.fetch(sql.restore, seqs=restored)
    if consumed:
        await turn.tx.fetch(sql.consume, seqs=consumed)
    if undoable:
        await turn.tx.fetch(sql.set_on_cancel, undoable)
    if finishes:
        await finish.by_outcome(turn, finishes)
    if released:
        await reclaim.release(turn, released)
    waiting: list[tuple[Commit, Park | Proceed]] = [*parks, *proceeds]
    if turn.children.ended:
        # A function that withdraws a call cancels the child in the same turn: its wait is gone, and is not answered.
        gone = {id for _, move in waiting for id in move.disarm or ()}
        turn.children.ended = [end for end in turn.children.ended if end.wait not in gone]
    await children.count_ended(turn)
    if new_visits:
        turn.history.withdrawn(await turn.tx.fetch(sql.cancel_awakeables, ids=new_visits))
    if waiting:
        await park.arm(turn, waiting)
    if parks:
        await park.park(turn, parks)
    if proceeds:
        await park.keep_waits(turn, proceeds)
    if used_waits:
        await turn.tx.fetch(sql.delete_waits, ids=used_waits)
    if restarted:
        await turn.tx.fetch(sql.drop_waits, ids=[id for id, _ in restarted])
        turn.history.withdrawn(await turn.tx.fetch(sql.cancel_asked, restarted))
        for id, _ in restarted:
            run_signals.drop_waits(turn, turn.rows[id])
    if queued:
        await requeue(turn, queued)
    if holds:
        await load_waits(turn.tx, [turn.rows[request.claim.id] for request, _ in holds])
        await turn.tx.fetch(sql.hold, [_held(turn, request.claim, move) for request, move in holds])
    if renewed:
        await turn.tx.fetch(sql.change_versions, renewed)
    if moved:
        await turn.tx.fetch(sql.change_lanes, moved)
        turn.result.pending.lanes.update((queue, lane) for _, lane, queue in moved)
    return running


def _held(turn: Turn, claim: Claim, move: Hold) -> tuple[Any, ...]:
    row = turn.rows[claim.id]
    row.status = "held"
    due = next_deadline(row.waits)
    if due is not None:
        turn.result.pending.due(due)
    tried = [*(claim.held_by or "").split(","), move.fingerprint] if claim.held_by else [move.fingerprint]
    codes = list(dict.fromkeys(tried))[-_MOST_CODES:]
    return claim.id, claim.epoch, ",".join(codes), move.error, move.traceback, due


async def requeue(turn: Turn, requests: list[Commit]) -> None:
    """Make these claimable again, now or after a delay."""
    rows = []
    for request in requests:
        decision, claim = request.decision, request.claim
        attempt, due, key, rate, weight, new_visit = 0, None, claim.concurrency_key, claim.rate_limit, claim.weight, 0
        match decision.move:
            case Redo(delay):  # a loop, a pause and a gate also continue like this, without a failed attempt
                attempt = claim.attempt + (decision.label == "retry")
                due = turn.now + delay if delay else None
            case Proceed() as move:
                rate, weight, new_visit = None, 1.0, int(move.continue_as_new)
            case Advance() as move:
                rate, weight = move.rate_limit, move.weight
                key = move.concurrency_key if move.rekey else key
            case Park() | Finish() | Hold() | Release():
                raise AssertionError(f"a {type(decision.move).__name__} is not queued")
            case _ as never:
                assert_never(never)
        if due is None:
            turn.result.pending.made_claimable = True
        else:
            turn.result.pending.due(due)
        turn.rows[claim.id].status = "runnable"
        rows.append((claim.id, claim.epoch, decision.step, decision.state, attempt, due, key, rate, weight, new_visit))
    await turn.tx.fetch(sql.requeue, rows)
