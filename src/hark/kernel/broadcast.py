"""Broadcast: everybody who waits for the name, whole or absent (invariant 9).

Up to a limit the subscribers are locked and written in the same transaction. Above it one transaction
marks all of them, and chunks deliver to the marked, also to those who woke meanwhile; waits armed later
are out. Who subscribes while a broadcast is on its way is consistently in or out: in when its wait was
committed before the subscribers were read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel.requests import Publish
from hark.kernel.rows import Locked
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan_names(turn: Turn) -> None:
    for request in turn.publishes:
        if request.dedup_key is not None:
            turn.reserve(f"{request.name}\0{request.dedup_key}")


async def plan(turn: Turn) -> None:
    if turn.deliver_marks:
        for broadcast_id, id in await turn.tx.fetch(sql.take_marks, size=turn.rules.chunk):
            turn.chunk.append((broadcast_id, id))
            turn.wants.add(id)
        turn.marks = len(turn.chunk) == turn.rules.chunk
    names = sorted({request.name for request in turn.publishes})
    if not names:
        return
    found = await turn.tx.fetch(sql.subscribers, names=names, size=turn.rules.broadcast_limit + 1)
    if len(found) > turn.rules.broadcast_limit:
        turn.large = True
        return
    for name, id in found:
        turn.subscribers.setdefault(name, []).append(id)
        turn.wants.add(id)


def reached(turn: Turn) -> set[str]:
    """Rows whose waits must be read though they may not be parked: a woken step still subscribes."""
    ids = {id for ids in turn.subscribers.values() for id in ids}
    return ids | {id for _, id in turn.chunk}


async def seen(turn: Turn) -> dict[tuple[str, str], int | Publish]:
    """What was broadcast before under the same dedup key: how many it reached."""
    keys = sorted({(r.name, r.dedup_key) for r in turn.publishes if r.dedup_key is not None})
    if not keys:
        return {}
    return {(name, key): count for name, key, count in await turn.tx.fetch(sql.broadcast_seen, keys)}


def publish(turn: Turn, request: Publish, first: dict[tuple[str, str], int | Publish]) -> None:
    """In its place among the signals (S10). A large one only marks, when all of them are known."""
    key = (request.name, request.dedup_key or "")
    if request.dedup_key is not None:
        before = first.setdefault(key, request)
        if before is not request:
            _repeat(turn, request, before)
            return
    if not turn.large:
        request.answer = _reach(turn, request.name, request.payload, turn.subscribers.get(request.name, ()))
    turn.published.append((new_id(), request))


def _repeat(turn: Turn, request: Publish, before: int | Publish) -> None:
    if isinstance(before, Publish):
        turn.repeats.append((request, before))
    else:
        request.answer = before
    if request.sender is not None:
        claim, why = request.sender.claim, f"duplicate: {request.dedup_key!r} was broadcast before"
        turn.event(claim.id, "undelivered", claim.step, name=request.name, error=why)


def _reach(turn: Turn, name: str, payload: str, ids: Iterable[str]) -> int:
    """Everybody of these who is live and still subscribes."""
    reached = 0
    for id in sorted(ids):
        row = turn.rows.get(id)
        if row is None or row.terminal or not any(w.kind == "broadcast" and w.name == name for w in row.waits):
            continue
        _post(turn, row, name, payload)
        reached += 1
    return reached


def _post(turn: Turn, row: Locked, name: str, payload: str) -> None:
    woke = turn.post(row, "broadcast", name, payload)
    turn.event(row.id, "broadcast", None, name=name, status="woke" if woke else "stored")


async def record(turn: Turn) -> None:
    """Remember what was published, for its dedup key; a large one marks everybody it reaches."""
    if turn.large and turn.published:
        await turn.tx.fetch(sql.mark, [(id, request.name) for id, request in turn.published])
        counts = dict(await turn.tx.fetch(sql.marked, ids=[id for id, _ in turn.published]))
        for id, request in turn.published:
            request.answer = counts.get(id, 0)
        turn.marks = True
    for request, before in turn.repeats:
        request.answer = before.answer
    if turn.published:
        rows = [
            (id, request.name, request.payload if turn.large else "null", request.dedup_key, request.answer)
            for id, request in turn.published
        ]
        await turn.tx.fetch(sql.insert_broadcasts, rows)


async def deliver_marked(turn: Turn) -> None:
    """A chunk: to the marked, also to those who woke meanwhile."""
    if not turn.chunk:
        return
    ids = sorted({broadcast_id for broadcast_id, _ in turn.chunk})
    for broadcast_id, name, payload in await turn.tx.fetch(sql.broadcasts_by_id, ids=ids):
        for id in sorted(id for b, id in turn.chunk if b == broadcast_id):
            row = turn.rows.get(id)
            if row is not None and not row.terminal:
                _post(turn, row, name, payload)
    await turn.flush()
