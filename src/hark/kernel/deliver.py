"""Deliver, in the order of the calls (S10): signals and messages to one instance each, broadcasts among them.

Together with broadcast.py, settle.py, expire.py and the children counted in commit.py this is all that
writes to inboxes, and all of it goes through `Turn.post`. Leans on invariants 3, 4 and 5. What a
program does with a signal is not decided here: see programs/.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import broadcast
from hark.kernel.requests import Deliver, Publish, SignalWithStart
from hark.model.errors import HarkError, NoTarget
from hark.model.values import Delivery
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan(turn: Turn) -> None:
    for request in turn.delivers:
        if not isinstance(request, Deliver):
            continue  # start.plan has the key, broadcast.plan the subscribers
        if request.sender is None and not request.by_key and looks_made(request.target):
            turn.wants.add(request.target)
            turn.guessed[request.target] = request.target
        else:
            turn.targets.add(request.target)


async def plan_messages(turn: Turn) -> None:
    if turn.messages:
        asked = {(message.name, message.key) for message in turn.messages}
        for id, _, _, _ in await turn.tx.fetch(sql.message_waits, sorted(asked)):
            turn.wants.add(id)


async def apply(turn: Turn) -> None:
    delivers = await _in_line(turn)
    seen = await _seen(turn, delivers)
    first = await broadcast.seen(turn)
    for request in delivers:
        match request:
            case Deliver():
                _deliver(turn, request, seen)
            case SignalWithStart():
                _deliver_joint(turn, request, seen)
            case Publish():
                broadcast.publish(turn, request, first)
    await _messages(turn)
    await turn.flush()


async def _in_line(turn: Turn) -> list[Deliver | SignalWithStart | Publish]:
    """All but the refused, and but keys taken for ids: these go again, and after them who follows to the same one."""
    delivers = [r for r in turn.delivers if isinstance(r, SignalWithStart) or r.sender is None or not r.sender.fenced]
    misread = {r.target for r in delivers if isinstance(r, Deliver) and not r.by_key and _misread(turn, r.target)}
    if not misread:
        return delivers
    holders, waiting, kept = await turn.resolve(misread), set(), []
    for request in delivers:
        row = turn.find(_target(request))
        if isinstance(request, Deliver) and request.sender is None and request.target in misread:
            request.by_key = True
            waiting.add(holders.get(request.target))
            turn.again.append(request)
        elif isinstance(request, Deliver) and request.sender is None and row is not None and row.id in waiting:
            turn.again.append(request)
        else:
            kept.append(request)
    return kept


def _misread(turn: Turn, target: str) -> bool:
    return target in turn.guessed and turn.find(target) is None


async def look_for_known(turn: Turn) -> None:
    """Which signal_with_start a kept holder has seen: then it starts nothing, and is told who that was (S9)."""
    asked = set()
    for joint in turn.joint:
        joint.answer = None  # not what an attempt that was rolled back said
        if joint.dedup_key is not None:
            asked.add((joint.item.correlation_key or "", joint.dedup_key))
    if asked:
        holders = {(key, dedup): id for key, dedup, id in await turn.tx.fetch(sql.seen_by_holders, sorted(asked))}
        for joint in turn.joint:
            id = holders.get((joint.item.correlation_key or "", joint.dedup_key))
            if id is not None:
                turn.known[joint] = id


async def _seen(turn: Turn, requests: list[Deliver | SignalWithStart | Publish]) -> set[tuple[str, str]]:
    pairs = set()
    for request in requests:
        if request.dedup_key is not None and (row := turn.find(_target(request))) is not None:
            pairs.add((row.id, request.dedup_key))
    if not pairs:
        return set()
    return {(id, key) for id, key in await turn.tx.fetch(sql.seen, sorted(pairs))}


def _target(request: Deliver | SignalWithStart | Publish) -> str:
    match request:
        case Deliver():
            return request.target
        case SignalWithStart():
            return request.item.correlation_key or ""
        case Publish():
            return ""  # nobody in particular


def looks_made(target: str) -> bool:
    """Has the shape of the ids we make: then it is locked as one at once, which saves the look for a key."""
    return len(target) == 36 and target[8] == target[13] == target[18] == target[23] == "-"


def _deliver(turn: Turn, request: Deliver, seen: set[tuple[str, str]]) -> None:
    row = turn.find(request.target)
    if row is not None and request.dedup_key is not None and (row.id, request.dedup_key) in seen:
        request.answer = Delivery("duplicate", row.id)
        turn.miss("signal", request.target, request.name, "duplicate", row.id)
        _report(turn, request, f"duplicate: {row.id} has seen the dedup key {request.dedup_key!r}")
    elif row is None or row.terminal:
        request.answer = _no_target(request.target, None if row is None else row.status)
        turn.miss("signal", request.target, request.name, "finished" if row else "missing", row.id if row else None)
        _report(turn, request, str(request.answer))
    else:
        if request.dedup_key is not None:
            seen.add((row.id, request.dedup_key))
        woke = turn.post(row, "signal", request.name, request.payload, dedup_key=request.dedup_key)
        request.answer = Delivery("woke" if woke else "stored", row.id)
        turn.event(row.id, "signal", None, name=request.name, status=request.answer.status)


def _deliver_joint(turn: Turn, joint: SignalWithStart, seen: set[tuple[str, str]]) -> None:
    if joint in turn.known:
        joint.answer = turn.known[joint]
        turn.miss("signal", joint.item.correlation_key or "", joint.name, "duplicate", joint.answer)
        return
    if isinstance(joint.answer, HarkError):
        return
    row = turn.find(joint.item.correlation_key or "")
    assert row is not None
    joint.answer = row.id
    if joint.dedup_key is not None:
        if (row.id, joint.dedup_key) in seen:
            turn.miss("signal", joint.item.correlation_key or "", joint.name, "duplicate", row.id)
            return
        seen.add((row.id, joint.dedup_key))
    woke = turn.post(row, "signal", joint.name, joint.payload, dedup_key=joint.dedup_key)
    turn.event(row.id, "signal", None, name=joint.name, status="woke" if woke else "stored")


async def _messages(turn: Turn) -> None:
    if not turn.messages:
        return
    asked = sorted({(message.name, message.key) for message in turn.messages})
    waiting = {(name, key): (id, wait) for id, wait, name, key in await turn.tx.fetch(sql.message_waits, asked)}
    answered: list[str | None] = []
    for message in turn.messages:
        id, wait = waiting.get((message.name, message.key), (None, None))
        row = turn.rows.get(id) if id else None
        if row is None or row.terminal:
            message.answer = NoTarget(
                f"Nobody waits for message {message.name!r} with key {message.key!r}. "
                "See `hark instance list` for what waits, then send it again.",
                target=message.key,
            )
            turn.miss("message", message.key, message.name, "missing")
            continue
        turn.post(row, "message", message.name, message.payload, wait_id=wait)
        turn.event(row.id, "message", None, name=message.name, key=message.key)
        message.answer = row.id
        # Exactly one receiver: this wait has its answer, the next message needs another.
        del waiting[(message.name, message.key)]
        for armed in row.waits:
            if armed.id == wait:
                armed.fired_at = turn.now
        answered.append(wait)
    if answered:
        await turn.tx.fetch(sql.fire_waits, ids=answered)


def _no_target(target: str, status: str | None) -> NoTarget:
    why = "there is no such instance" if status is None else f"that instance is {status}"
    return NoTarget(
        f"No target {target!r}: {why}. Nothing was stored. Check the id or key, or start it first "
        "(signal_with_start does both at once).",
        target=target,
    )


def _report(turn: Turn, request: Deliver, error: str) -> None:
    if request.sender is not None:
        claim = request.sender.claim
        turn.event(claim.id, "undelivered", claim.step, target=request.target, name=request.name, error=error)
