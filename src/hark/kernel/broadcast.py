"""Broadcast to all current subscribers of a name: to all of them or to none (invariant 9).

Up to a limit the subscribers are locked and written in the same transaction. Above it one transaction stores a
pending delivery for each, and later turns deliver these in chunks, also to instances that woke in the meantime; waits
armed later are not included. An instance that subscribes during a broadcast is in if its wait was committed before the
subscribers were read, and out otherwise.

A machine's inbox gets one row per broadcast, which answers every wait for its name, also one that is armed later. A
*fresh* wait (`Arm.fresh`, the places of a process) has a key, its own id, and gets a row of its own that is directed to
it: what was sent before it was armed cannot answer it. It receives one broadcast, or each one if it `answers_each`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, Publish
from hark.kernel.rows import LockedRow
from hark.model.activation import WaitRow
from hark.model.decisions import SendBroadcast
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

Published = dict[tuple[str, str], int | Publish]  # by name and dedup key: the instances reached, or the first request


class Broadcasts:
    """The broadcasts of one turn: the instances they reach, and what has been published."""

    __slots__ = ("answered", "chunk", "large", "published", "repeats", "subscribers")

    def __init__(self) -> None:
        self.subscribers: dict[str, list[str]] = {}  # by name
        self.large = False  # there are more than the limit: deliver later
        self.chunk: list[sql.PendingDelivery] = []  # to deliver in this turn
        self.answered: list[str] = []  # fresh waits that have received their broadcast
        self.published: list[tuple[str, Publish]] = []  # with their ids
        self.repeats: list[tuple[Publish, Publish]] = []  # a request, and the one of this turn that it repeats


@request_for(SendBroadcast)
def _request(effect: SendBroadcast, sender: Commit) -> Publish:
    return Publish(
        name=effect.name,
        payload=effect.payload,
        dedup_key=effect.dedup_key,
        sender=sender,
        skip_sender=effect.skip_sender,
    )


def plan_names(turn: Turn) -> None:
    for request in turn.batch.of(Publish):
        if request.dedup_key is not None:
            turn.locks.reserve(f"{request.name}\0{request.dedup_key}")


async def plan(turn: Turn, *, deliver_pending: bool) -> None:
    """Lock the subscribers, and the instances of a chunk of pending deliveries."""
    broadcasts = turn.broadcasts
    if deliver_pending:
        broadcasts.chunk = await turn.tx.fetch(sql.take_pending_deliveries, size=turn.rules.chunk)
        turn.locks.ids.update(one.instance_id for one in broadcasts.chunk)
        turn.result.pending.pending_deliveries = len(broadcasts.chunk) == turn.rules.chunk
    names = sorted({request.name for request in turn.batch.of(Publish)})
    if not names:
        return
    found = await turn.tx.fetch(sql.subscribers, names=names, size=turn.rules.broadcast_limit + 1)
    for name, _, start in found:
        if start is not None:
            turn.triggered.names.add(name)
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
    pending = {one.instance_id for one in broadcasts.chunk}
    return {id for ids in broadcasts.subscribers.values() for id in ids} | pending


async def deliver_chunk(turn: Turn) -> None:
    """Deliver a chunk to its instances, also to those that woke in the meantime."""
    chunk = turn.broadcasts.chunk
    if not chunk:
        return
    ids = sorted({one.broadcast_id for one in chunk})
    for broadcast_id, name, payload in await turn.tx.fetch(sql.broadcasts_by_id, ids=ids):
        for id, wait_id in sorted((m.instance_id, m.wait_id) for m in chunk if m.broadcast_id == broadcast_id):
            row = turn.rows.get(id)
            if row is None or row.terminal:
                continue
            # A fresh wait with a pending delivery may be gone, or have received a later broadcast: then it gets
            # nothing.
            fresh = [wait for wait in row.waits if wait.id == wait_id and wait.fired_at is None] if wait_id else []
            if fresh or not wait_id:
                _post(turn, row, name, payload, fresh, by_name=not wait_id)
    await turn.inbox.flush()


async def published_before(turn: Turn) -> Published:
    """Read the number of instances that earlier broadcasts with the same dedup keys reached."""
    keys = sorted({(r.name, r.dedup_key) for r in turn.batch.of(Publish) if r.dedup_key is not None})
    if not keys:
        return {}
    return {(name, key): count for name, key, count in await turn.tx.fetch(sql.broadcast_seen, keys)}


def publish(turn: Turn, request: Publish, published: Published) -> None:
    """Deliver a broadcast in its place among the signals (S10). A large one is stored later, with all others."""
    broadcasts = turn.broadcasts
    if request.dedup_key is not None:
        before = published.setdefault((request.name, request.dedup_key), request)
        if before is not request:
            _repeat(turn, request, before)
            return
    if not broadcasts.large:
        request.result = _deliver(turn, request, broadcasts.subscribers.get(request.name, ()))
    broadcasts.published.append((new_id(), request))
    if turn.has_triggered and request.name in turn.triggered.names:
        turn.triggered.by_broadcast.append(request)


def _repeat(turn: Turn, request: Publish, before: int | Publish) -> None:
    if isinstance(before, Publish):
        turn.broadcasts.repeats.append((request, before))
    else:
        request.result = before
    if request.sender is not None:
        claim, why = request.sender.claim, f"duplicate: {request.dedup_key!r} was broadcast before"
        turn.history.event(claim.id, "undelivered", claim.step, name=request.name, error=why)


def _deliver(turn: Turn, request: Publish, ids: Iterable[str]) -> int:
    """Post to the instances among these that are live and still subscribe. Returns their number."""
    reached, name, skipped = 0, request.name, request.skipped
    for id in sorted(ids):
        row = turn.rows.get(id)
        if row is None or row.terminal or id == skipped:
            continue
        by_name, fresh = False, []
        for wait in row.waits:
            if wait.kind == "broadcast" and wait.name == name:
                if wait.key is None:
                    by_name = True
                elif wait.fired_at is None:
                    fresh.append(wait)
        if by_name or fresh:
            _post(turn, row, name, request.payload, fresh, by_name=by_name)
            reached += 1
    return reached


def _post(turn: Turn, row: LockedRow, name: str, payload: str, fresh: list[WaitRow], *, by_name: bool) -> None:
    """Post to an instance: a row for its waits that match by name, and one to each of these fresh waits."""
    woke = by_name and turn.inbox.post(row, "broadcast", name, payload)
    for wait in fresh:
        woke = turn.inbox.post(row, "broadcast", name, payload, wait_id=wait.id) or woke
        if not wait.answers_each:
            wait.fired_at = turn.now
            turn.broadcasts.answered.append(wait.id)
    turn.history.event(row.id, "broadcast", None, name=name, status="woke" if woke else "stored")


async def record(turn: Turn) -> None:
    """Store the broadcasts, for their dedup keys; of large ones, a delivery for each subscriber."""
    published, large = turn.broadcasts.published, turn.broadcasts.large
    if turn.broadcasts.answered:
        await turn.tx.fetch(sql.fire_waits, ids=turn.broadcasts.answered)
    if large and published:
        await turn.tx.fetch(
            sql.add_pending_deliveries, [(id, request.name, request.skipped) for id, request in published]
        )
        counts = dict(await turn.tx.fetch(sql.count_pending_deliveries, ids=[id for id, _ in published]))
        for id, request in published:
            request.result = counts.get(id, 0) + turn.triggered.started.get(request, 0)
        turn.result.pending.pending_deliveries = True
    for request, before in turn.broadcasts.repeats:
        request.result = before.result
    if published:
        rows = [
            (id, request.name, request.payload if large else "null", request.dedup_key, request.result)
            for id, request in published
        ]
        await turn.tx.fetch(sql.insert_broadcasts, rows)
