"""Broadcast to all current subscribers of a name: to all of them or to none (invariant 9).

Up to a limit the subscribers are locked and written in the same transaction. Above it one transaction marks all of
them, and later turns deliver to the marked in chunks, also to instances that woke in the meantime; waits armed later
are not included. An instance that subscribes during a broadcast is in if its wait was committed before the subscribers
were read, and out otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, Publish
from hark.kernel.rows import LockedRow
from hark.model.decisions import SendBroadcast
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

Published = dict[tuple[str, str], int | Publish]  # by name and dedup key: how many it reached, or the first request


class Broadcasts:
    """The broadcasts of one turn: the instances they reach, and what has been published."""

    __slots__ = ("chunk", "large", "published", "repeats", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[str, list[str]] = {}  # by name
        self.large = False  # there are more than the limit: mark them
        self.chunk: list[tuple[str, str]] = []  # marks to deliver in this turn: broadcast, instance
        self.published: list[tuple[str, Publish]] = []  # with their ids
        self.repeats: list[tuple[Publish, Publish]] = []  # a request, and the one of this turn that it repeats


@request_for(SendBroadcast)
def _request(effect: SendBroadcast, sender: Commit) -> Publish:
    return Publish(name=effect.name, payload=effect.payload, dedup_key=effect.dedup_key, sender=sender)


def plan_names(turn: Turn) -> None:
    for request in turn.batch.of(Publish):
        if request.dedup_key is not None:
            turn.locks.reserve(f"{request.name}\0{request.dedup_key}")


async def plan(turn: Turn, *, deliver_marks: bool) -> None:
    """Lock the subscribers, and the instances of a chunk of marks."""
    broadcasts = turn.broadcasts
    if deliver_marks:
        for broadcast_id, id in await turn.tx.fetch(sql.take_marks, size=turn.rules.chunk):
            broadcasts.chunk.append((broadcast_id, id))
            turn.locks.ids.add(id)
        turn.result.pending.marks = len(broadcasts.chunk) == turn.rules.chunk
    names = sorted({request.name for request in turn.batch.of(Publish)})
    if not names:
        return
    found = await turn.tx.fetch(sql.subscribers, names=names, size=turn.rules.broadcast_limit + 1)
    for name, _, start in found:
        if start is not None:
            turn.triggered.starters.setdefault(name, []).append(start)
    found = [(name, id) for name, id, start in found if start is None]
    if len(found) > turn.rules.broadcast_limit:
        broadcasts.large = True
        return
    for name, id in found:
        broadcasts.subscribers.setdefault(name, []).append(id)
        turn.locks.ids.add(id)


def receivers(turn: Turn) -> set[str]:
    """Instances whose waits must be read even if they are not parked: a woken instance still subscribes."""
    broadcasts = turn.broadcasts
    return {id for ids in broadcasts.subscribers.values() for id in ids} | {id for _, id in broadcasts.chunk}


async def deliver_marked(turn: Turn) -> None:
    """Deliver a chunk to the marked instances, also to those that woke in the meantime."""
    chunk = turn.broadcasts.chunk
    if not chunk:
        return
    ids = sorted({broadcast_id for broadcast_id, _ in chunk})
    for broadcast_id, name, payload in await turn.tx.fetch(sql.broadcasts_by_id, ids=ids):
        for id in sorted(id for marked_by, id in chunk if marked_by == broadcast_id):
            row = turn.rows.get(id)
            if row is not None and not row.terminal:
                _post(turn, row, name, payload)
    await turn.inbox.flush()


async def published_before(turn: Turn) -> Published:
    """How many instances the earlier broadcasts with the same dedup keys reached."""
    keys = sorted({(r.name, r.dedup_key) for r in turn.batch.of(Publish) if r.dedup_key is not None})
    if not keys:
        return {}
    return {(name, key): count for name, key, count in await turn.tx.fetch(sql.broadcast_seen, keys)}


def publish(turn: Turn, request: Publish, published: Published) -> None:
    """Deliver one broadcast in its place among the signals (S10). A large one is marked later, with all others."""
    broadcasts = turn.broadcasts
    if request.dedup_key is not None:
        before = published.setdefault((request.name, request.dedup_key), request)
        if before is not request:
            _repeat(turn, request, before)
            return
    if not broadcasts.large:
        request.result = _deliver(turn, request.name, request.payload, broadcasts.subscribers.get(request.name, ()))
    broadcasts.published.append((new_id(), request))
    for start in turn.triggered.starters.get(request.name, ()):
        turn.triggered.by_broadcast.append((start, request))


def _repeat(turn: Turn, request: Publish, before: int | Publish) -> None:
    if isinstance(before, Publish):
        turn.broadcasts.repeats.append((request, before))
    else:
        request.result = before
    if request.sender is not None:
        claim, why = request.sender.claim, f"duplicate: {request.dedup_key!r} was broadcast before"
        turn.history.event(claim.id, "undelivered", claim.step, name=request.name, error=why)


def _deliver(turn: Turn, name: str, payload: str, ids: Iterable[str]) -> int:
    """Post to those of these instances that are live and still subscribe. Returns how many."""
    reached = 0
    for id in sorted(ids):
        row = turn.rows.get(id)
        if row is None or row.terminal or not any(w.kind == "broadcast" and w.name == name for w in row.waits):
            continue
        _post(turn, row, name, payload)
        reached += 1
    return reached


def _post(turn: Turn, row: LockedRow, name: str, payload: str) -> None:
    woke = turn.inbox.post(row, "broadcast", name, payload)
    turn.history.event(row.id, "broadcast", None, name=name, status="woke" if woke else "stored")


async def record(turn: Turn) -> None:
    """Store what was published, for its dedup key; mark the subscribers of large broadcasts."""
    published, large = turn.broadcasts.published, turn.broadcasts.large
    if large and published:
        await turn.tx.fetch(sql.mark, [(id, request.name) for id, request in published])
        counts = dict(await turn.tx.fetch(sql.marked, ids=[id for id, _ in published]))
        for id, request in published:
            request.result = counts.get(id, 0) + turn.triggered.started.get(request, 0)
        turn.result.pending.marks = True
    for request, before in turn.broadcasts.repeats:
        request.result = before.result
    if published:
        rows = [
            (id, request.name, request.payload if large else "null", request.dedup_key, request.result)
            for id, request in published
        ]
        await turn.tx.fetch(sql.insert_broadcasts, rows)
