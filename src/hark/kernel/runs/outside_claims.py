"""Claim tasks for workers outside, which fetch and report them by calls (J11).

A fetched task is executing, like any other, under an owner and a lease of its own: a row in `workers` that its worker
renews by heartbeats. Without them, the task is reclaimed as that of any dead worker is. All its reports are
fenced by the epoch of its claim (invariant 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from hark.kernel import buckets
from hark.kernel.buckets import MAX_ROUNDS, PAST_REFUSED, Candidate
from hark.kernel.requests import CommitTask, FetchTasks, RenewTask
from hark.kernel.rows import status_of
from hark.model import epochs
from hark.model.activation import Claim
from hark.model.errors import task_lost
from hark.model.lanes import ENGINE_QUEUE
from hark.model.outside import new_token, owner_of
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class _LeaseInfo(msgspec.Struct):
    """The data of a lease, in its row."""

    lease: float = 60.0  # seconds


# -- outcomes and heartbeats ------------------------------------------------------------------------


def add_outcomes(turn: Turn) -> None:
    """Add the outcomes of fetched tasks to those of the turn."""
    for request in turn.batch.of(CommitTask):
        turn.batch.add(request.commit)


def plan(turn: Turn) -> None:
    for request in turn.batch.of(RenewTask):
        turn.locks.ids.add(request.id)


async def apply(turn: Turn) -> None:
    """Renew leases, and end those of tasks that have an outcome, before the outcomes are written: the tasks lose their
    owner then."""
    ended = []
    for request in turn.batch.of(CommitTask):
        commit = request.commit
        request.result = commit.result  # the error, if it is refused
        if not commit.fenced:
            ended.append(commit.claim.id)
        elif request.result is None:
            request.result = task_lost(commit.claim.id, status_of(turn.rows.get(commit.claim.id)))
    if ended:
        await turn.tx.fetch(sql.end_leases, ids=sorted(ended))
    await _renew(turn)


async def _renew(turn: Turn) -> None:
    held: dict[str, list[RenewTask]] = {}
    for request in turn.batch.of(RenewTask):
        row = turn.rows.get(request.id)
        if row is None or row.status != "executing" or row.epoch != request.epoch:
            request.result = task_lost(request.id, status_of(row))
        else:
            held.setdefault(request.id, []).append(request)
    if not held:
        return
    renewed = []
    for lease in await turn.tx.fetch(sql.task_leases, ids=sorted(held)):
        seconds = msgspec.json.decode(lease.info or "{}", type=_LeaseInfo).lease
        until = turn.now + int(seconds * 1_000_000)
        renewed.append((lease.owner, until))
        for request in held.pop(lease.id):
            request.result = until
    for id, requests in held.items():  # their leases are over and removed: they will be reclaimed
        for request in requests:
            request.result = task_lost(id, status_of(turn.rows.get(id)))
    if renewed:
        await turn.tx.fetch(sql.renew_leases, renewed)


# -- fetching ---------------------------------------------------------------------------------------


async def fetch(turn: Turn) -> None:
    """Claim tasks for all workers outside that ask, with a constant number of statements. The most urgent come first;
    of two workers that could take one, the one that asked first gets it."""
    requests = turn.batch.of(FetchTasks)
    if not requests:
        return
    for request in requests:
        request.result, request.tokens = [], {}
    queues = [queue for (queue,) in await turn.tx.fetch(sql.claimable_queues) if queue != ENGINE_QUEUE]
    free = {id(request): request.most for request in requests}
    for _ in range(MAX_ROUNDS):
        wanted: dict[str, int] = {}
        for request in requests:
            for lane in request.lanes:
                wanted[lane] = wanted.get(lane, 0) + free[id(request)]
        size = PAST_REFUSED if turn.buckets.refused else 0
        lanes = [(queue, lane, max(count, size)) for queue in queues for lane, count in wanted.items() if count]
        if not lanes:
            return
        rows = await turn.tx.fetch(sql.claimable_tasks, lanes, most=max(count for *_, count in lanes))
        lane_of = {id: lane for id, *_, lane in rows}
        found = [Candidate(*columns) for *columns, _ in rows]
        if turn.buckets.refused:
            found = await buckets.block_refused(turn, found)
        chosen, takers = _assign(found, lane_of, requests, dict(free))
        granted, undecided = await buckets.admit(turn, chosen)
        if granted:
            await _take(turn, granted, takers)
            for candidate in granted:
                free[id(takers[candidate.id])] -= 1
        if len(granted) + undecided == len(chosen) and len(found) == len(rows):
            return


def _assign(
    found: list[Candidate], lane_of: dict[str, str], requests: Sequence[FetchTasks], free: dict[int, int]
) -> tuple[list[Candidate], dict[str, FetchTasks]]:
    """The candidates that a worker has room for, and which of them takes each."""
    chosen: list[Candidate] = []
    takers: dict[str, FetchTasks] = {}
    for candidate in found:
        for request in requests:
            if free[id(request)] > 0 and lane_of[candidate.id] in request.lanes:
                free[id(request)] -= 1
                chosen.append(candidate)
                takers[candidate.id] = request
                break
    return chosen, takers


async def _take(turn: Turn, granted: list[Candidate], takers: dict[str, FetchTasks]) -> None:
    tokens = {candidate.id: new_token() for candidate in granted}
    owners = {id: owner_of(token) for id, token in tokens.items()}
    claims = {}
    for row in await turn.tx.fetch(sql.claim_tasks, sorted(owners.items()), nonce=epochs.new_nonce()):
        claim = Claim(*row)
        claim.counted, claim.has_inbox_rows, claim.now = bool(claim.counted), bool(claim.has_inbox_rows), turn.now
        claims[claim.id] = claim
    leases = []
    for candidate in granted:
        claim, request = claims[candidate.id], takers[candidate.id]
        request.result.append(claim)
        request.tokens[claim.id] = tokens[claim.id]
        leases.append((owners[claim.id], turn.now + request.lease, claim.lane, request.info))
    await turn.tx.fetch(sql.insert_leases, leases)
