"""Return work to its queue: reclaim the work of dead workers, hand back that of a stopping worker.

A lost worker counts as a crash of the instance, which is quarantined after too many in a row (M5); so does code that
exits. A hand-back counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hark.kernel import finish
from hark.kernel.requests import Commit, HandBack, Reclaim
from hark.kernel.result import Failed
from hark.model.errors import EXIT_ADVICE, unfinished_undo
from hark.model.failures import Failure
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_PAGE = 1000  # the LIMIT of `statements.abandoned`


def plan(turn: Turn) -> None:
    for request in turn.batch.of(HandBack):
        turn.locks.ids.update(claim.id for claim in request.claims)


async def plan_abandoned(turn: Turn) -> list[str]:
    """Lock the instances of dead workers, and the parents, which count a quarantined child. Returns the ids."""
    leases = _leases(turn.batch.of(Reclaim))
    owners = [owner for owner, _ in leases]
    abandoned: list[str] = []
    for id, parent in await turn.tx.fetch(sql.abandoned, leases, owners=owners) if owners else ():
        abandoned.append(id)
        turn.locks.ids.add(id)
        if parent is not None:
            turn.locks.ids.add(parent)
    return abandoned


def _leases(requests: Iterable[Reclaim]) -> list[tuple[str, int | None]]:
    """The owners, each with the lease it had when it was found dead."""
    found: dict[str, int | None] = {}
    for request in requests:
        found |= {owner: request.leases.get(owner) for owner in request.owners}
    return sorted(found.items())


async def apply(turn: Turn, abandoned: list[str]) -> None:
    has_any = bool(turn.batch.of(Reclaim)) or bool(turn.batch.of(HandBack))
    if has_any:
        await _reclaim(turn, abandoned)
        await _hand_back(turn)
        await _retire(turn)


async def _reclaim(turn: Turn, abandoned: list[str]) -> None:
    owners = {owner for request in turn.batch.of(Reclaim) for owner in request.owners}
    rows = await turn.tx.fetch(sql.details, ids=sorted(abandoned)) if abandoned else ()
    await _count_crashes(turn, [row for row in rows if row.status == "executing" and row.lease_owner in owners], {})
    if len(abandoned) >= _PAGE:
        turn.result.again.extend(turn.batch.of(Reclaim))


async def release(turn: Turn, requests: Sequence[Commit]) -> None:
    """Return instances to the queue whose activations have given up their claims: an exit is a crash of this activation
    alone, the end of the event loop it ran on is none."""
    exits: dict[str, Failure] = {}
    back: list[tuple[str, int]] = []
    for request in requests:
        claim = request.claim
        if request.decision.failure is not None:
            exits[claim.id] = request.decision.failure
            continue
        back.append((claim.id, claim.epoch))
        turn.rows[claim.id].status = "runnable"
        turn.history.event(claim.id, "handed_back", claim.step)
        turn.result.pending.made_claimable = True
    if exits:
        await _count_crashes(turn, await turn.tx.fetch(sql.details, ids=sorted(exits)), exits)
    if back:
        await turn.tx.fetch(sql.hand_back, back)


async def _count_crashes(turn: Turn, rows: Sequence[sql.Details], exits: Mapping[str, Failure]) -> None:
    """Count a crash of each of these executing instances, and make it claimable or quarantine it. `exits` has how the
    code has ended those whose worker lives on. Under lock."""
    back: list[str] = []
    quarantined: list[sql.Details] = []
    ends: dict[str, finish.EndReason] = {}
    for row in rows:
        exit = exits.get(row.id)
        if exit is not None:
            failed = Failed(row.id, row.definition, row.step, row.attempt, "crashed", exit)
            turn.history.failures.append(failed)
        if row.crashes + 1 >= turn.rules.max_crashes:
            quarantined.append(row)
            ends[row.id] = "failed", _why_quarantined(row, exit)
            continue
        back.append(row.id)
        turn.result.pending.lanes.add((row.queue, row.lane))
        turn.rows[row.id].status = "runnable"
        if row.concurrency_key is not None:
            turn.buckets.freed.add(row.concurrency_key)
        told = {} if exit is None else {"error": exit.text, "traceback": exit.traceback}
        turn.history.event(row.id, "reclaimed", row.step, worker=row.lease_owner, **told)
    if ends:
        await finish.end(turn, quarantined, ends)
    if back:
        await turn.tx.fetch(sql.reclaim, ids=back)
        turn.result.pending.made_claimable = True


def _why_quarantined(row: sql.Details, exit: Failure | None) -> str:
    undo = "" if row.cancel_reason is None else f" {unfinished_undo(row.cancel_reason)}"
    times = f"{row.crashes + 1} times in a row"
    if exit is None:
        return (
            f"quarantined: step {row.step!r} lost its worker {times}. "
            f"Find out what kills the worker, then retry the instance.{undo}"
        )
    return (
        f"quarantined: step {row.step!r} crashed {times}, the last time with {exit.text}. "
        f"{EXIT_ADVICE} Then retry the instance.{undo}"
    )


async def _hand_back(turn: Turn) -> None:
    rows: list[tuple[str, int]] = []
    outside: list[str] = []
    for request in turn.batch.of(HandBack):
        request.result = None
        for claim in request.claims:
            row = turn.rows.get(claim.id)
            if row is None or row.status != "executing" or row.epoch != claim.epoch:
                continue
            row.status = "runnable"
            rows.append((claim.id, claim.epoch))
            if request.outside:
                outside.append(claim.id)
            if claim.concurrency_key is not None:
                turn.buckets.freed.add(claim.concurrency_key)
            turn.history.event(claim.id, "handed_back", claim.step)
    if outside:
        await turn.tx.fetch(sql.end_leases, ids=sorted(outside))
    if rows:
        await turn.tx.fetch(sql.hand_back, rows)
        turn.result.pending.made_claimable = True


async def _retire(turn: Turn) -> None:
    """Delete all workers that leave or are dead in one statement: in two statements, two workers that each retire the
    other while they leave would deadlock."""
    leaving = {request.retire for request in turn.batch.of(HandBack) if request.retire is not None}
    dead = _leases(request for request in turn.batch.of(Reclaim) if request not in turn.result.again)
    turn.result.retired = bool(leaving)
    if leaving or dead:
        ids = leaving | {owner for owner, _ in dead}
        await turn.tx.fetch(sql.retire, dead, ids=sorted(ids), leaving=sorted(leaving))
