"""Execute the advance turn, the most frequent of all: only outcomes that run ahead, in one statement.

The statement takes the locks in id order, fences, updates and writes the events (invariants 2 and 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from hark.kernel import journal
from hark.kernel.inbox import load_inboxes, read_before
from hark.kernel.requests import Commit, Request
from hark.kernel.result import TurnResult
from hark.store import statements as sql
from hark.store.protocol import Tx


def are_advances(requests: Sequence[Request]) -> TypeGuard[Sequence[Commit]]:
    """Return True if these are outcomes that run ahead and bring nothing else along, each of another instance."""
    ids = set()
    for request in requests:
        if type(request) is not Commit:
            return False
        if request.claim.waits or not request.decision.is_advance():
            return False
        ids.add(request.claim.id)
    return len(ids) == len(requests)  # the outcome of a zombie may be beside that of the present owner


async def run_advance_turn(tx: Tx, commits: Sequence[Commit]) -> TurnResult:
    result = TurnResult(tx.now, tx.xid)
    with_signals = await _advance(tx, commits, result)
    await journal.write(tx, commits)
    if with_signals:
        by_id = {request.claim.id: request for request in commits}
        decided = [(by_id[id].claim, by_id[id].decision) for id in with_signals]
        result.inboxes = await load_inboxes(tx, {claim.id: read_before(claim, decision) for claim, decision in decided})
    result.provable = bool(result.ran_ahead)
    result.keeps_statuses = True
    return result


async def _advance(tx: Tx, commits: Sequence[Commit], result: TurnResult) -> list[str]:
    """Advance the instances. Returns the ids of those that have ever received a signal."""
    rows = sorted([(r.claim.id, r.claim.epoch, r.decision.step, r.decision.state) for r in commits])
    moved = 0
    with_signals: list[str] = []
    for count, ids in await tx.fetch(sql.advance_all, rows, tx=tx.xid):
        moved += count
        if ids is not None:
            with_signals += ids.split()
    alive = None
    if moved < len(rows):
        # A read, not the lock: the turn holds the rows that moved, and waiting for a lower id would deadlock
        # (invariant 3). A row that did not move cannot look as if it had: only its own Next leads from executing to
        # executing in one epoch.
        found = await tx.fetch(sql.epochs, ids=[id for id, *_ in rows])
        alive = {(id, epoch - 1) for id, epoch in found}
    for request in commits:
        request.fenced = alive is not None and (request.claim.id, request.claim.epoch) not in alive
        request.result = None if request.fenced else True
    result.ran_ahead = [request for request in commits if not request.fenced]
    return with_signals
