"""Commit outcomes: fence, consume, park, finish.

A commit that is not executing at its own epoch is dropped before anything of it is written (invariant 2).
A park arms its waits and then looks into the inbox under the same lock (invariant 4): any answer this
activation was not handed wakes it at once (invariant 5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from hark.kernel.requests import Commit
from hark.model.activation import WaitRow
from hark.model.decisions import Advance, Arm, Finish, Park, Redo
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
    live = [request for request in turn.commits if not request.fenced]
    finishes, parks, others = [], [], []
    consumed: list[int] = []
    spent: list[str] = []  # waits that have served; only a Retry keeps them, and a park says itself which
    for request in live:
        decision, claim = request.decision, request.claim
        consumed += decision.consume
        turn.events.append((claim.id, decision.label, decision.step, decision.data))
        match decision.move:
            case Advance() as move:
                spent += [wait.id for wait in claim.waits]
                turn.rows[claim.id].waits = []
                if turn.run_on and move.rate_limit is None and not move.rekey:
                    turn.nexts.append(request)
                    continue
            case Finish():
                finishes.append(request)
            case Park():
                parks.append(request)
        others.append(request)
    if consumed:
        await turn.tx.fetch(sql.consume, seqs=consumed)
    await _finish(turn, finishes)
    await count_ended(turn)
    awake = await _park(turn, parks)
    if spent:
        await turn.tx.fetch(sql.delete_waits, ids=spent)
    if others:
        await turn.tx.fetch(sql.conclude, [_conclusion(turn, request, awake) for request in others])
        turn.freed.update(r.claim.concurrency_key for r in others if r.claim.concurrency_key is not None)


def _conclusion(turn: Turn, request: Commit, awake: set[str]) -> tuple[Any, ...]:
    """The row of an outcome that does not run straight on."""
    decision, claim = request.decision, request.claim
    status, attempt, due, result, error = "runnable", 0, None, None, None
    key, rate, weight = claim.concurrency_key, None, 1.0
    match decision.move:
        case Advance() as move:
            rate, weight = move.rate_limit, move.weight
            if move.rekey:
                key = move.concurrency_key
        case Redo(delay):
            attempt = claim.attempt + 1
            due = turn.now + delay if delay else None
            rate, weight = claim.rate_limit, claim.weight
        case Park():
            if claim.id not in awake:
                waits = turn.rows[claim.id].waits
                status = "awaiting_children" if any(w.kind == "children" for w in waits) else "awaiting_signal"
                deadlines = [w.deadline for w in waits if w.deadline is not None and w.fired_at is None]
                due = min(deadlines, default=None)
        case Finish() as move:
            status, result, error = move.status, move.result, move.error
        case _ as never:
            assert_never(never)
    if status == "runnable" and due is None:
        turn.runnable = True
    if due is not None:
        turn.due(due)
    turn.rows[claim.id].status = status
    return (
        claim.id, claim.epoch, status, decision.step, decision.state, result, error, attempt, due, key, rate, weight,
        status in ("done", "failed"),
    )  # fmt: skip


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
    for request in finishes:
        claim = request.claim
        turn.finished.add(claim.id)
        if claim.parent_wait and not claim.counted:
            turn.ended.append(claim.parent_wait)


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
        # Reached now, not before; a failed parent gets it too: a retry finds its inbox as it should be.
        if row is not None and remaining <= 0 < remaining + counts[wait]:
            turn.post(row, "children", "", "null", wait_id=wait)
            turn.event(parent, "joined", None)
    await turn.flush()


async def _park(turn: Turn, parks: list[Commit]) -> set[str]:
    """Arm, then look: who has an answer it was not handed does not sleep at all."""
    gone: list[str] = []
    armed: list[tuple[Any, ...]] = []
    awakeables: list[tuple[Any, ...]] = []
    for request in parks:
        move, claim = request.decision.move, request.claim
        assert isinstance(move, Park)
        row = turn.rows[claim.id]
        drop = {wait.id for wait in claim.waits} if move.disarm is None else set(move.disarm)
        gone.extend(drop)
        row.waits = [wait for wait in claim.waits if wait.id not in drop]
        row.looked = True
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
    if armed:
        await turn.tx.fetch(sql.insert_waits, armed)
    if awakeables:
        await turn.tx.fetch(sql.insert_awakeables, awakeables)
    await turn.flush()
    return await _answered(turn, parks)


def _arm(turn: Turn, arm: Arm) -> WaitRow:
    ends = [arm.deadline] if arm.deadline is not None else []
    if arm.timeout is not None:
        ends.append(turn.now + arm.timeout)
    remaining = arm.join - turn.failed_children.get(arm.id, 0) if arm.kind == "children" else None
    return WaitRow(arm.id, arm.place, arm.kind, arm.name, arm.key, min(ends, default=None), remaining, None)


async def _answered(turn: Turn, parks: list[Commit]) -> set[str]:
    mail = {request.claim.id: request for request in parks if turn.rows[request.claim.id].mail}
    awake: set[str] = set()
    if not mail:
        return awake
    for seq, id, kind, name, wait_id in await turn.tx.fetch(sql.inbox_heads, ids=sorted(mail)):
        if seq in mail[id].decision.handed:
            continue  # the step has seen it and chose to wait on
        if any(wait.answered_by(kind, name, wait_id) for wait in turn.rows[id].waits):
            awake.add(id)
    return awake
