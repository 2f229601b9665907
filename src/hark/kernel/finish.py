"""End instances: by their own outcome, or from outside (cancelled, quarantined).

Terminal means empty (invariant 11): no waits, no pending awakeables, no slot. A failed instance keeps its waits,
closed, so that a retry can open them again. Each end counts against the wait of the parent (children.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from hark.kernel.children import ChildEnd
from hark.kernel.requests import Commit
from hark.kernel.runs import run_awakeables, run_signals
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model.activation import Claim
from hark.model.decisions import Finish
from hark.model.errors import unfinished_undo
from hark.model.lanes import INTERPRETED
from hark.model.outside import OWNER
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


EndReason = tuple[Literal["cancelled", "failed"], str]  # status, reason


async def by_outcome(turn: Turn, finishes: list[tuple[Commit, Finish]]) -> None:
    """End instances with their outcomes. The undo of a cancel ends as `cancelled`, whatever its outcome is."""
    failed: list[str] = []
    dropped: list[str] = []
    tasks: list[str] = []
    failed_tasks: list[str] = []
    for request, move in finishes:
        if request.claim.kind == "task":  # notes have armed waits that the claim does not know
            tasks.append(request.claim.id)
            (failed_tasks if _status(request.claim, move) == "failed" else dropped).append(request.claim.id)
            run_signals.drop_waits(turn, turn.rows[request.claim.id])
        elif request.claim.waits:
            (failed if _status(request.claim, move) == "failed" else dropped).append(request.claim.id)
    if dropped:
        await turn.tx.fetch(sql.drop_waits, ids=dropped)
    await _close_waits(turn, failed, failed_tasks)
    asking = {r.claim.id for r, _ in finishes if r.claim.waits and _may_ask(r.claim)}
    if asking:
        turn.history.withdrawn(await turn.tx.fetch(sql.cancel_awakeables, ids=sorted(asking)))
    others = [
        r.claim.id
        for r, _ in finishes
        if (r.claim.traits.creates_awakeables or r.claim.kind in INTERPRETED) and r.claim.id not in asking
    ]
    if others:
        await turn.tx.fetch(sql.cancel_no_awakeables, ids=others)
    await run_awakeables.cancel(turn, tasks)
    rows = []
    for request, move in finishes:
        claim, decision = request.claim, request.decision
        status, result, error, traceback = _status(claim, move), move.result, move.error, move.traceback
        if claim.cancel_reason is not None:
            if status == "cancelled":
                if move.status == "failed":
                    turn.history.undo_failed(claim, decision, error or "")
                result, error, traceback = None, claim.cancel_reason, None
                turn.history.event(claim.id, "cancelled", decision.step, error=error)
            else:
                error = f"{error or ''} {unfinished_undo(claim.cancel_reason)}".lstrip()
                turn.history.failed(claim.id, claim.definition, decision.step, claim.attempt, error, decision.failure)
        rows.append((claim.id, claim.epoch, status, decision.step, decision.state, result, error, traceback))
        turn.rows[claim.id].status = status
        turn.result.counts.ended[status, claim.definition] += 1
        turn.result.finished[claim.id] = (claim.id, status, result, error)
        if claim.parent_wait and not claim.counted:
            turn.children.ended.append(ChildEnd(claim.parent_wait, claim.id, status, error, result))
        if claim.scheduled_at is not None and claim.parent_id is None:
            turn.schedules.ended.append(claim.id)
    await turn.tx.fetch(sql.finish, rows)


def _may_ask(claim: Claim) -> bool:
    """Return True if an awakeable of the instance may be pending: it waits for one whose answer it was not handed. One
    that was settled while the instance executed may be among them."""
    waits = [wait for wait in claim.waits if WAIT_KINDS[wait.kind].has_awakeable and wait.fired_at is None]
    answers = {(row.kind, row.name) for row in claim.inbox} if waits else ()
    return any((wait.kind, wait.name) not in answers for wait in waits)


async def _close_waits(turn: Turn, failed: list[str], tasks: list[str]) -> None:
    """Close the waits of failed instances, for a retry. A task that is run again waits for its own children as before,
    and for nothing else."""
    if tasks:
        await turn.tx.fetch(sql.drop_all_but_children, ids=tasks)
    if failed or tasks:
        await turn.tx.fetch(sql.close_waits, ids=[*failed, *tasks])


def _status(claim: Claim, move: Finish) -> Literal["done", "failed", "cancelled"]:
    return move.status if claim.cancel_reason is None or move.keeps_undo else "cancelled"


async def end(turn: Turn, rows: Iterable[sql.Details], ends: dict[str, EndReason]) -> None:
    """End instances from outside. `rows` are the instances, `ends` has a status and a reason for each id."""
    ids = sorted(ends)
    fetched: list[str] = []  # tasks of workers outside: each has a lease of its own
    for row in rows:
        status, reason = ends[row.id]
        if row.lease_owner is not None and row.lease_owner.startswith(OWNER):
            fetched.append(row.id)
        if row.status in ("executing", "runnable"):
            turn.buckets.remove(row.concurrency_key, row.blocked_on)
        if row.parent_wait is not None and not row.counted:
            turn.children.ended.append(ChildEnd(row.parent_wait, row.id, status, reason))
        if row.scheduled_at is not None and row.parent_id is None:
            turn.schedules.ended.append(row.id)
        turn.rows[row.id].status = status
        turn.result.counts.ended[status, row.definition] += 1
        turn.result.finished[row.id] = (row.id, status, None, reason)
        if status == "failed":
            turn.history.failed(row.id, row.definition, row.step, row.attempt, reason)
        else:
            turn.history.event(row.id, "cancelled", row.step, error=reason)
    if fetched:
        await turn.tx.fetch(sql.end_leases, ids=sorted(fetched))
    await turn.tx.fetch(sql.end, [(id, *ends[id]) for id in ids])
    tasks = [id for id in ids if turn.rows[id].kind == "task"]
    cancelled = sorted(id for id, (status, _) in ends.items() if status == "cancelled")
    if cancelled:
        await turn.tx.fetch(sql.drop_waits, ids=cancelled)
    failed = sorted(ends.keys() - set(cancelled))
    await _close_waits(turn, [id for id in failed if id not in tasks], [id for id in failed if id in tasks])
    turn.history.withdrawn(await turn.tx.fetch(sql.cancel_awakeables, ids=ids))
    await run_awakeables.cancel(turn, tasks)
    for id in tasks:
        run_signals.drop_waits(turn, turn.rows[id])
