"""Broadcast: everybody who waits for the name, whole or absent (invariant 9).

Up to a limit the subscribers are locked and written in the same transaction. Above it one transaction
marks all of them, and chunks deliver to the marked, also to those who woke meanwhile; waits armed later
are out. Who subscribes while a broadcast is on its way is consistently in or out: in when its wait was
committed before the subscribers were read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Publish
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


async def apply(turn: Turn) -> None:
    requests = [request for request in turn.publishes if request.sender is None or not request.sender.fenced]
    first = await _seen(turn, requests)
    rows = []
    for request in requests:
        key = (request.name, request.dedup_key or "")
        if request.dedup_key is not None and key in first:
            request.answer = first[key]
            if request.sender is not None:
                claim, why = request.sender.claim, f"duplicate: {request.dedup_key!r} was broadcast before"
                turn.event(claim.id, "undelivered", claim.step, name=request.name, error=why)
            continue
        id = new_id()
        request.answer = await (_mark(turn, request, id) if turn.large else _reach(turn, request))
        first[key] = request.answer
        rows.append((id, request.name, request.payload if turn.large else "null", request.dedup_key, request.answer))
    if rows:
        await turn.tx.fetch(sql.insert_broadcasts, rows)
    if turn.chunk:
        await _deliver_chunk(turn)
    await turn.flush()


async def _seen(turn: Turn, requests: list[Publish]) -> dict[tuple[str, str], int]:
    keys = sorted({(r.name, r.dedup_key) for r in requests if r.dedup_key is not None})
    if not keys:
        return {}
    return {(name, key): count for name, key, count in await turn.tx.fetch(sql.broadcast_seen, keys)}


async def _reach(turn: Turn, request: Publish) -> int:
    ids = []
    for id in sorted(turn.subscribers.get(request.name, ())):
        row = turn.rows.get(id)
        if (
            row is not None
            and not row.terminal
            and any(w.kind == "broadcast" and w.name == request.name for w in row.waits)
        ):
            ids.append(id)
    await _insert(turn, request.name, request.payload, ids)
    return len(ids)


async def _insert(turn: Turn, name: str, payload: str, ids: list[str]) -> None:
    if not ids:
        return
    await turn.flush()  # what was sent before stays before
    await turn.tx.fetch(sql.insert_broadcast_signals, [(id,) for id in ids], name=name, payload=payload)
    for id in ids:
        turn.first_mail.pop(id, None)
        woke = turn.arrived(turn.rows[id], "broadcast", name, None)
        turn.event(id, "broadcast", None, name=name, status="woke" if woke else "stored")


async def _mark(turn: Turn, request: Publish, id: str) -> int:
    await turn.tx.fetch(sql.mark, id=id, name=request.name)
    [[count]] = await turn.tx.fetch(sql.marked, id=id)
    turn.marks = True
    return int(count)


async def _deliver_chunk(turn: Turn) -> None:
    ids = sorted({broadcast_id for broadcast_id, _ in turn.chunk})
    for broadcast_id, name, payload in await turn.tx.fetch(sql.broadcasts_by_id, ids=ids):
        live = [id for b, id in turn.chunk if b == broadcast_id and id in turn.rows and not turn.rows[id].terminal]
        await _insert(turn, name, payload, sorted(live))
