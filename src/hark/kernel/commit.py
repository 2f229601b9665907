"""Commit outcomes: fence, consume, park, finish.

A commit that is not executing at its own epoch is dropped before anything of it is written (invariant 2).
A park arms its waits and then looks into the inbox under the same lock (invariant 4): any answer this
activation was not handed wakes it at once (invariant 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never

from hark.kernel import expire
from hark.kernel.requests import Commit, Request
from hark.model.activation import Claim, WaitRow
from hark.model.decisions import Advance, Arm, Finish, Park, Proceed, Redo, runs_ahead
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.commits:
        claim = request.claim
        turn.wants.add(claim.id)
        if isinstance(request.decision.move, Finish) and claim.parent_wait and not claim.counted:
            assert claim.parent_id is not None
            turn.wants.add(claim.parent_id)


def fence(turn: Turn) -> None:
    taken: set[str] = set()
    for request in turn.commits:
        row = turn.rows.get(request.claim.id)
        request.answer = None
        request.fenced = row is None or row.status != "executing" or row.epoch != request.claim.epoch or row.id in taken
        if not request.fenced:  # a zombie's outcome in the same turn must not fence the living one's
            taken.add(request.claim.id)


def fence_again(turn: Turn) -> None:
    """A cancel in this very turn came first: neither the outcome nor its effects count."""
    for request in turn.commits:
        request.fenced = request.fenced or turn.rows[request.claim.id].status != "executing"


async def apply(turn: Turn) -> None:
    finishes: list[Commit] = []
    parks: list[Commit] = []
    proceeds: list[Commit] = []
    queued: list[Commit] = []
    renewed: list[str] = []
    consumed: list[int] = []
    restored: list[int] = []
    spent: list[str] = []  # waits that have served; only a Retry keeps them, and a park says itself which
    for request in turn.commits:
        if request.fenced:
            continue
        decision, claim = request.decision, request.claim
        consumed += decision.consume
        restored += decision.restore
        match decision.move:
            case Proceed() as move:
                if move.arm or move.awakeables or claim.waits or move.fire_deadlines:
                    proceeds.append(request)
                if turn.run_on and runs_ahead(move):
                    turn.nexts.append(request)
                    continue
                if move.continue_as_new:
                    renewed.append(claim.id)
                queued.append(request)
            case Advance() as move:
                spent += [wait.id for wait in claim.waits]
                turn.rows[claim.id].waits = []
                if turn.run_on and runs_ahead(move):
                    turn.nexts.append(request)
                    continue  # its event is written with it
                queued.append(request)
            case Redo():
                queued.append(request)
            case Park():
                parks.append(request)
            case Finish():
                finishes.append(request)
            case _ as never:
                assert_never(never)
        turn.events.append((claim.id, decision.label, decision.step, decision.data))
        if claim.concurrency_key is not None:
            turn.freed.add(claim.concurrency_key)
    if restored:
        await turn.tx.fetch(sql.restore, seqs=restored)
    if consumed:
        await turn.tx.fetch(sql.consume, seqs=consumed)
    if finishes:
        await _finish(turn, finishes)
    if turn.ended:  # who withdraws a call cancels its child in the same turn, and is not told of that end
        gone = {id for r in parks + proceeds for id in r.decision.move.disarm or ()}  # type: ignore[union-attr]
        turn.ended = [wait for wait in turn.ended if wait not in gone]
    await count_ended(turn)
    if renewed:
        await turn.tx.fetch(sql.cancel_awakeables, ids=renewed)
    if parks or proceeds:
        await _arm_all(turn, parks + proceeds)
    if parks:
        await _park(turn, parks)
    if proceeds:
        await _keep(turn, proceeds)
    if spent:
        await turn.tx.fetch(sql.delete_waits, ids=spent)
    if queued:
        await requeue(turn, queued)


def are_plain(requests: Sequence[Request]) -> bool:
    """Nothing but steps and functions that run straight on, and ask for nothing else."""
    ids = set()
    for request in requests:
        if type(request) is not Commit:
            return False
        if request.claim.waits or not request.decision.is_plain():
            return False
        ids.add(request.claim.id)
    return len(ids) == len(requests)  # a zombie's outcome may lie beside the living one's


async def advance(turn: Turn) -> list[str]:
    """All run on: one statement locks, fences, updates and tells. The ids of those that have mail."""
    rows = sorted([(r.claim.id, r.claim.epoch, r.decision.step, r.decision.state) for r in turn.commits])
    moved = 0
    mailed: list[str] = []
    for count, ids in await turn.tx.fetch(sql.advance_all, rows, tx=turn.tx.xid):
        moved += count
        if ids is not None:
            mailed += ids.split()
    living = None
    if moved < len(rows):
        # A look, not the lock: it holds those that moved, and to wait for a lower id would deadlock (invariant 3).
        # Who did not move cannot look as if: only a Next of its own leads from executing to executing in one epoch.
        found = await turn.tx.fetch(sql.epochs, ids=[row[0] for row in rows])
        living = {(id, epoch - 1) for id, epoch in found}
    for request in turn.commits:
        request.fenced = living is not None and (request.claim.id, request.claim.epoch) not in living
        request.answer = None if request.fenced else True
    turn.ran_on = [request for request in turn.commits if not request.fenced]
    return mailed


async def requeue(turn: Turn, requests: list[Commit]) -> None:
    """Back into the line, now or after a delay."""
    rows = []
    for request in requests:
        decision, claim = request.decision, request.claim
        attempt, due, key, rate, weight, anew = 0, None, claim.concurrency_key, claim.rate_limit, claim.weight, 0
        match decision.move:
            case Redo(delay):
                attempt = claim.attempt + 1
                due = turn.now + delay if delay else None
            case Proceed() as move:
                rate, weight, anew = None, 1.0, int(move.continue_as_new)
            case Advance() as move:
                rate, weight = move.rate_limit, move.weight
                key = move.concurrency_key if move.rekey else key
        if due is None:
            turn.runnable = True
        else:
            turn.due(due)
        turn.rows[claim.id].status = "runnable"
        rows.append((claim.id, claim.epoch, decision.step, decision.state, attempt, due, key, rate, weight, anew))
    await turn.tx.fetch(sql.requeue, rows)


async def _finish(turn: Turn, finishes: list[Commit]) -> None:
    """Invariant 11: terminal means empty. A failed one keeps its waits, closed, for a retry."""
    done = [r.claim.id for r in finishes if r.claim.waits and r.decision.move.status == "done"]  # type: ignore[union-attr]
    failed = [r.claim.id for r in finishes if r.claim.waits and r.decision.move.status == "failed"]  # type: ignore[union-attr]
    if done:
        await turn.tx.fetch(sql.drop_waits, ids=done)
    if failed:
        await turn.tx.fetch(sql.close_waits, ids=failed)
    # A machine's own steps ask nobody; what was asked in its name stands behind a wait.
    asked = [
        r.claim.id for r in finishes if r.claim.kind != "machine" or any(w.kind == "awakeable" for w in r.claim.waits)
    ]
    if asked:
        await turn.tx.fetch(sql.cancel_awakeables, ids=asked)
    rows = []
    for request in finishes:
        claim, decision = request.claim, request.decision
        move = decision.move
        assert isinstance(move, Finish)
        rows.append((claim.id, claim.epoch, move.status, decision.step, decision.state, move.result, move.error))
        turn.rows[claim.id].status = move.status
        turn.finished[claim.id] = (claim.id, move.status, move.result, move.error)
        if claim.parent_wait and not claim.counted:
            turn.ended.append(claim.parent_wait)
    await turn.tx.fetch(sql.finish, rows)


async def count_ended(turn: Turn) -> None:
    """M8: each end counts once against its own wait; the last one needed is the parent's answer."""
    if not turn.ended:
        return
    counts: dict[str, int] = {}
    for wait in turn.ended:
        counts[wait] = counts.get(wait, 0) + 1
    turn.ended = []
    for wait, parent, remaining, _closed in await turn.tx.fetch(sql.count_children, sorted(counts.items())):
        row = turn.rows.get(parent)
        for armed in row.waits if row is not None else ():
            if armed.id == wait:
                armed.remaining = remaining
        # Reached now, not before; a failed parent gets it too: a retry finds its inbox as it should be.
        if row is not None and remaining <= 0 < remaining + counts[wait]:
            turn.post(row, "children", "", "null", wait_id=wait)
            turn.event(parent, "joined", None)
    await turn.flush()


async def _arm_all(turn: Turn, requests: list[Commit]) -> None:
    gone: list[str] = []
    fired: list[str] = []
    armed: list[tuple[Any, ...]] = []
    awakeables: list[tuple[Any, ...]] = []
    for request in requests:
        move, claim = request.decision.move, request.claim
        assert isinstance(move, Park | Proceed)
        row = turn.rows[claim.id]
        drop = {wait.id for wait in claim.waits} if move.disarm is None else set(move.disarm)
        gone.extend(drop)
        row.waits = [wait for wait in claim.waits if wait.id not in drop]
        row.looked = not row.waits  # a wait that is kept may have had its answer while the step ran
        if row.waits and claim.inbox:
            fired += _answered_before(turn, row.waits, claim)
        for arm in move.arm:
            wait = _arm(turn, arm)
            row.waits.append(wait)
            armed.append((wait.id, claim.id, wait.place, wait.kind, wait.name, wait.key, wait.deadline, wait.remaining))
            if wait.remaining is not None and wait.remaining <= 0:
                turn.post(row, "children", "", "null", wait_id=wait.id)
        for a in move.awakeables:
            timeout = None if a.timeout is None else turn.now + a.timeout
            awakeables.append(
                (
                    a.id, claim.id, a.task, a.place, a.entry_index, timeout, a.nonce, a.title, a.description, a.schema,
                    a.assignees,
                )
            )  # fmt: skip
    if gone:
        await turn.tx.fetch(sql.delete_waits, ids=gone)
    if fired:
        await turn.tx.fetch(sql.fire_waits, ids=fired)
    if armed:
        await turn.tx.fetch(sql.insert_waits, armed)
    if awakeables:
        await turn.tx.fetch(sql.insert_awakeables, awakeables)
    await turn.flush()


def _answered_before(turn: Turn, kept: list[WaitRow], claim: Claim) -> list[str]:
    """Of the waits that are kept, those whose answer woke it: they must not time out any more (settle.py left them)."""
    answers = {row.name for row in claim.inbox if row.kind == "awakeable"}
    fired = [wait for wait in kept if wait.kind == "awakeable" and wait.fired_at is None and wait.name in answers]
    for wait in fired:
        wait.fired_at = turn.now
    return [wait.id for wait in fired]


async def _keep(turn: Turn, proceeds: list[Commit]) -> None:
    """Those who go on with waits armed. Nobody else fires their deadlines while they run: they ask for it."""
    late = [r for r in proceeds if r.decision.move.fire_deadlines]  # type: ignore[union-attr]
    if late:
        rows = [turn.rows[request.claim.id] for request in late]
        for row in rows:
            row.waits = []  # as the claim knew them: one of them may have had its answer since
        await turn.look(rows)
        await expire.fire(turn, rows)
    for request in proceeds:
        turn.kept[request.claim.id] = (turn.rows[request.claim.id].waits, [])


async def _park(turn: Turn, parks: list[Commit]) -> None:
    """The waits are armed; now look: who has an answer it was not handed does not sleep at all."""
    awake = await _answered(turn, parks)
    await turn.tx.fetch(sql.park, [_parked(turn, request, request.claim.id in awake) for request in parks])


def _parked(turn: Turn, request: Commit, awake: bool) -> tuple[Any, ...]:
    claim, decision = request.claim, request.decision
    row = turn.rows[claim.id]
    due = None
    if awake:
        row.status = "runnable"
        turn.runnable = True
    else:
        row.status = "awaiting_children" if any(w.kind == "children" for w in row.waits) else "awaiting_signal"
        due = min((w.deadline for w in row.waits if w.deadline is not None and w.fired_at is None), default=None)
        if due is not None:
            turn.due(due)
    return claim.id, claim.epoch, row.status, decision.step, decision.state, due


def _arm(turn: Turn, arm: Arm) -> WaitRow:
    ends = [arm.deadline] if arm.deadline is not None else []
    if arm.timeout is not None:
        ends.append(turn.now + arm.timeout)
    remaining = arm.join - turn.failed_children.get(arm.id, 0) if arm.kind == "children" else None
    return WaitRow(arm.id, arm.place, arm.kind, arm.name, arm.key, min(ends, default=None), remaining, None)


async def _answered(turn: Turn, parks: list[Commit]) -> set[str]:
    mail = {request.claim.id: request for request in parks if turn.rows[request.claim.id].has_signals}
    awake: set[str] = set()
    if not mail:
        return awake
    handed = {id: frozenset(request.decision.handed) for id, request in mail.items()}
    for seq, id, kind, name, wait_id in await turn.tx.fetch(sql.inbox_heads, ids=sorted(mail)):
        if seq in handed[id]:
            continue  # the step has seen it and chose to wait on
        if any(wait.answered_by(kind, name, wait_id) for wait in turn.rows[id].waits):
            awake.add(id)
    return awake
