"""Deliver signals in the order of the calls (S10), and broadcasts in their place among them.

Every delivery goes through `Inbox.post`. Leans on invariants 3, 4 and 5. What a program does with a signal is not
decided here: see programs/.

`store/schema/functions.sql` repeats deduplication and delivery for the call turn; tests/kernel/test_call_turns.py
compares both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import broadcast
from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, Deliver, Publish, RecordRefusal, SignalWithStart
from hark.kernel.rows import LockedRow
from hark.kernel.runs import run_signals
from hark.model.decisions import SendSignal
from hark.model.errors import HarkError, NoTarget
from hark.model.lanes import INTERPRETED
from hark.model.values import Delivery
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


@request_for(SendSignal)
def _request(effect: SendSignal, sender: Commit) -> Deliver:
    return Deliver(
        target=effect.target, name=effect.name, payload=effect.payload, dedup_key=effect.dedup_key, sender=sender
    )


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Deliver):
        if request.also_lock:
            turn.locks.ids.update(request.also_lock)
        if _is_assumed_id(request):
            turn.locks.add_assumed_id(request.target)
        else:
            turn.locks.add_target(request.target)
    for with_start in turn.batch.of(SignalWithStart):
        turn.locks.ids.update(with_start.also_lock)


def is_generated_id(target: str) -> bool:
    """True for the shape of a generated id: it is locked as an id, which saves the read for a key."""
    return len(target) == 36 and target[8] == target[13] == target[18] == target[23] == "-"


def _is_assumed_id(request: Deliver) -> bool:
    return request.sender is None and not request.by_key and is_generated_id(request.target)


async def find_seen_before(turn: Turn) -> dict[SignalWithStart, str]:
    """Find the signal_with_start requests whose dedup key a holder of their key has seen, now or earlier, with the id
    of that holder: they start nothing, and the holder is their result (S9)."""
    requests = turn.batch.of(SignalWithStart)
    asked = set()
    for request in requests:
        request.result = None  # an attempt of this turn that was rolled back may have set it
        request.was_delivered = False
        if request.dedup_key is not None:
            asked.add((request.item.correlation_key or "", request.dedup_key))
    if not asked:
        return {}
    holders = {(key, dedup): id for key, dedup, id in await turn.tx.fetch(sql.seen_by_holders, sorted(asked))}
    found = {}
    for request in requests:
        id = holders.get((request.item.correlation_key or "", request.dedup_key))
        if id is not None:
            found[request] = id
    return found


async def apply(turn: Turn, seen_before: dict[SignalWithStart, str]) -> None:
    deliveries = await _without_misread_keys(turn)
    if turn.locks.has_runs:
        targets = {request: turn.locks.find(_target(request)) for request in deliveries}
        deliveries = await run_signals.prepare(turn, deliveries, targets)
    seen = await _seen(turn, deliveries)
    published = await broadcast.published_before(turn)
    for request in deliveries:
        match request:
            case Deliver():
                _deliver(turn, request, seen)
            case SignalWithStart():
                _deliver_with_start(turn, request, seen, seen_before)
            case Publish():
                broadcast.publish(turn, request, published)
    await run_signals.write(turn)


async def _without_misread_keys(turn: Turn) -> list[Deliver | SignalWithStart | Publish]:
    """The deliveries of this turn, without those of fenced outcomes. A target that looked like an id but is a key is
    retried by key in the next turn, together with all later signals to the same instance, so that they keep their
    order."""
    deliveries = [
        request
        for request in turn.batch.deliveries
        if isinstance(request, SignalWithStart) or request.sender is None or not request.sender.fenced
    ]
    misread = {
        request.target
        for request in deliveries
        if isinstance(request, Deliver) and not request.by_key and turn.locks.is_key(request.target)
    }
    if not misread:
        return deliveries
    holders, retried, kept = await turn.locks.resolve(misread), set(), []
    for request in deliveries:
        row = turn.locks.find(_target(request))
        if isinstance(request, Deliver) and request.sender is None and request.target in misread:
            request.by_key = True
            retried.add(holders.get(request.target))
            turn.result.again.append(request)
        elif isinstance(request, Deliver) and request.sender is None and row is not None and row.id in retried:
            turn.result.again.append(request)
        else:
            kept.append(request)
    return kept


_Seen = dict[tuple[str, str], str]
"""The dedup keys that were seen before: the id of the instance that has seen it, by receiver and key."""


async def _seen(turn: Turn, requests: list[Deliver | SignalWithStart | Publish]) -> _Seen:
    """Read the dedup keys that the receivers have seen before (S7).

    A signal from NATS may be delivered again after its receiver has finished and another instance holds the key. If
    such a signal is addressed by key, an earlier holder that has seen it counts too, as for signal_with_start."""
    pairs, by_key = set(), {}
    for request in requests:
        if request.dedup_key is not None and (row := turn.locks.find(_target(request))) is not None:
            pairs.add((row.id, request.dedup_key))
            if isinstance(request, Deliver) and request.is_in_bucket and not _is_assumed_id(request):
                by_key[request.target, request.dedup_key] = row.id
    if not pairs:
        return {}
    seen = {(id, key): id for id, key in await turn.tx.fetch(sql.seen, sorted(pairs))}
    for target, key, id in await turn.tx.fetch(sql.seen_by_holders, sorted(by_key)) if by_key else ():
        seen.setdefault((by_key[target, key], key), id)
    return seen


def _target(request: Deliver | SignalWithStart | Publish) -> str:
    match request:
        case Deliver():
            return request.target
        case SignalWithStart():
            return request.item.correlation_key or ""
        case Publish():
            return ""  # a broadcast has no target


def _deliver(turn: Turn, request: Deliver, seen: _Seen) -> None:
    row = turn.locks.find(request.target)
    if row is not None and request.dedup_key is not None and (row.id, request.dedup_key) in seen:
        seen_by = seen[row.id, request.dedup_key]
        request.result = Delivery("duplicate", seen_by)
        turn.history.near_miss("signal", request.target, request.name, "duplicate", seen_by)
        _report(turn, request, f"duplicate: {seen_by} has seen the dedup key {request.dedup_key!r}")
    elif row is None or row.terminal or row.kind == "task":
        request.result = _no_target(request.target, row)
        reason, id = ("missing", None) if row is None else ("finished", row.id)
        turn.history.near_miss("signal", request.target, request.name, reason, id)
        _report(turn, request, str(request.result))
    else:
        if request.dedup_key is not None:
            seen[row.id, request.dedup_key] = row.id
        if row.kind in INTERPRETED:
            woke = run_signals.deliver(turn, row, request.name, request.payload, request.dedup_key)
        else:
            woke = turn.inbox.post(row, "signal", request.name, request.payload, dedup_key=request.dedup_key)
        request.result = Delivery("woke" if woke else "stored", row.id)
        turn.history.event(row.id, "signal", None, name=request.name, status=request.result.status)


def record_refusals(turn: Turn) -> None:
    """Record refused signals as near misses of their targets (D7)."""
    for request in turn.batch.of(RecordRefusal):
        turn.history.near_miss("signal", request.target, request.name, "refused", detail=request.why)
        request.result = None


def _deliver_with_start(
    turn: Turn, request: SignalWithStart, seen: _Seen, seen_before: dict[SignalWithStart, str]
) -> None:
    key = request.item.correlation_key or ""
    if request in seen_before:
        request.result = seen_before[request]
        turn.history.near_miss("signal", key, request.name, "duplicate", request.result)
        return
    if isinstance(request.result, HarkError):
        return
    row = turn.locks.find(key)
    assert row is not None
    request.result = row.id
    if request.dedup_key is not None:
        if (row.id, request.dedup_key) in seen:
            turn.history.near_miss("signal", key, request.name, "duplicate", row.id)
            return
        seen[row.id, request.dedup_key] = row.id
    request.was_delivered = True
    if row.kind in INTERPRETED:
        woke = run_signals.deliver(turn, row, request.name, request.payload, request.dedup_key)
    else:
        woke = turn.inbox.post(row, "signal", request.name, request.payload, dedup_key=request.dedup_key)
    turn.history.event(row.id, "signal", None, name=request.name, status="woke" if woke else "stored")


def _no_target(target: str, row: LockedRow | None) -> NoTarget:
    if row is None:
        why, advice = "there is no such instance", "Check the id or key, or start the instance before you send to it."
    elif row.kind == "task":
        why, advice = "that is a task", "Send to its job: the task that waits for the signal receives it."
    else:
        why, advice = (
            f"that instance is {row.status}",
            "A finished instance receives nothing: send to another, or start one.",
        )
    return NoTarget(f"No target {target!r}: {why}. Nothing was stored. {advice}", target=target)


def _report(turn: Turn, request: Deliver, error: str) -> None:
    if request.sender is not None:
        claim = request.sender.claim
        turn.history.event(claim.id, "undelivered", claim.step, target=request.target, name=request.name, error=error)
