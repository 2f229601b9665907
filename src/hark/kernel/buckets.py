"""Apply rate limits and concurrency keys: token buckets, and slots.

Slots are counted, not stored: an instance that executes under a key holds a slot, so no crash can leak one. The bucket
row is the lock of its key. A refused row leaves the claim index (`blocked_on`) until its bucket is due; the turn that
frees a slot makes the bucket due. Rows are blocked under the bucket's lock and a turn that frees a slot waits for that
lock, so the promotion always sees a row that was blocked meanwhile (the same race as invariant 4). Work without keys
and limits costs nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from hark.kernel.limits import Limits
from hark.model.values import Rate
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

MAX_ROUNDS = 3  # rounds of claims in a turn: each replaces the rows that a bucket refused in the one before
PAST_REFUSED = 1000  # rows to read once a bucket has refused some: the rows behind them must not wait for them
_SOON = 5_000  # µs until the next promotion, after one that met a row locked by another transaction
_LATER = 1_000_000  # µs until the next promotion, when the free slots went to rows that perhaps no worker can run
_MAX_SEEN = 100_000  # buckets whose rows a process remembers, so that its memory is bounded
_MAX_PROMOTED = 500  # rows that one bucket promotes in one turn


class Candidate(Struct, gc=False):
    """A claimable row, as `statements.claimable` returns it."""

    id: str
    queue: str
    priority: int
    since: int
    concurrency_key: str | None
    rate_limit: str | None
    weight: float


class Bucket(Struct, gc=False):
    """A row of `buckets`, and whether this turn must write it back."""

    kind: str
    key: str
    shard: int
    capacity: float
    available: float
    refilled_at: int
    due_at: int | None
    changed: bool = False


_Shards = dict[tuple[str, str], list[Bucket]]  # by kind and key


class _Head(Struct, gc=False):
    """The first row that is blocked on a bucket."""

    priority: int
    since: int
    weight: float


class BucketState:
    """The changes of one turn to slots and buckets."""

    __slots__ = ("freed", "inserted", "left", "refused")

    def __init__(self) -> None:
        self.freed: set[str] = set()  # concurrency keys whose slots came free
        self.left: set[str] = set()  # rate limits on which a row was blocked that has ended: it may have been the head
        self.refused: set[str] = set()  # buckets that refused a candidate
        self.inserted = False  # bucket rows were inserted

    def remove(self, concurrency_key: str | None, blocked_on: str | None) -> None:
        """Note that a runnable or executing row has ended, or goes on elsewhere. If it was promoted, the slot that it
        would take goes to the next blocked row; if it was the head of a rate limit, the bucket is due for the next one.
        """
        if concurrency_key is not None:
            self.freed.add(concurrency_key)
        if blocked_on is not None and blocked_on.startswith("rate:"):
            self.left.add(blocked_on.removeprefix("rate:"))


# -- claims ----------------------------------------------------------------------------------------


async def admit(turn: Turn, wanted: list[Candidate]) -> tuple[list[Candidate], int]:
    """Take slots and tokens for these candidates, in order; block those that get none.

    Returns:
        The candidates that may run, and how many could not be decided because another transaction
        holds their bucket.
    """
    names = {("slot", c.concurrency_key) for c in wanted if c.concurrency_key is not None}
    names |= {("rate", c.rate_limit) for c in wanted if c.rate_limit is not None}
    if not names:
        return wanted, 0
    buckets = await _take(turn, names)
    keys = [key for kind, key in buckets if kind == "slot"]
    used: dict[str, int] = dict(await turn.tx.fetch(sql.slots_used, [(key,) for key in keys])) if keys else {}
    heads = await _heads(turn, buckets)
    granted: list[Candidate] = []
    blocked: list[tuple[str, str]] = []
    empty: set[str] = set()  # rate limits that have no tokens left for the next candidate
    undecided = 0
    for candidate in wanted:
        slot, rate = candidate.concurrency_key, candidate.rate_limit
        if (slot is not None and ("slot", slot) not in buckets) or (rate is not None and ("rate", rate) not in buckets):
            undecided += 1
        elif slot is not None and used.get(slot, 0) >= turn.rules.limits.size(slot):
            blocked.append((candidate.id, f"slot:{slot}"))
        elif rate is not None and not _spend(turn, buckets[("rate", rate)], candidate, heads.get(rate), empty):
            blocked.append((candidate.id, f"rate:{rate}"))
        else:
            granted.append(candidate)
            if slot is not None:
                used[slot] = used.get(slot, 0) + 1
    for key, head in heads.items():
        if key not in empty:  # otherwise a candidate that precedes the head was refused, and is the head now
            _set_due_for_head(turn, buckets[("rate", key)], head)
    if blocked:
        await turn.tx.fetch(sql.block, blocked)
        turn.buckets.refused.update(bucket for _, bucket in blocked)
    await _save(turn, (bucket for shards in buckets.values() for bucket in shards))
    return granted, undecided


async def block_refused(turn: Turn, found: list[Candidate]) -> list[Candidate]:
    """Block the candidates whose bucket has refused an earlier one in this turn. Returns the others."""
    rest: list[Candidate] = []
    blocked: list[tuple[str, str]] = []
    for candidate in found:
        names = (f"slot:{candidate.concurrency_key}", f"rate:{candidate.rate_limit}")
        refused = next((name for name in names if name in turn.buckets.refused), None)
        if refused is None:
            rest.append(candidate)
        else:
            blocked.append((candidate.id, refused))
    if blocked:
        await turn.tx.fetch(sql.block, blocked)
    return rest


async def _take(turn: Turn, names: set[tuple[str, str]]) -> _Shards:
    """Lock the buckets that no other worker holds, and insert those that have no row yet."""
    limits = turn.rules.limits
    new = [
        (kind, key, shard, _capacity(limits, kind, key))
        for kind, key in sorted(names - limits.known)
        for shard in range(_shards(limits, kind, key))
    ]
    # Once a turn: two turns that insert each other's buckets in their second rounds would deadlock.
    if new and not turn.buckets.inserted:
        turn.buckets.inserted = True
        await turn.tx.fetch(sql.insert_buckets, new)
        if len(limits.known) > _MAX_SEEN:
            limits.known.clear()
        limits.known |= names
    buckets: _Shards = {}
    for row in await turn.tx.fetch(sql.try_buckets, sorted(names)):
        bucket = Bucket(*row)
        _refill(turn, bucket)
        buckets.setdefault((bucket.kind, bucket.key), []).append(bucket)
    # A missing bucket is held by another worker, or retention has deleted it as idle: the next turn inserts it again.
    limits.known -= names - set(buckets)
    return buckets


def _capacity(limits: Limits, kind: str, key: str) -> float:
    rate = limits.rate(key) if kind == "rate" else None
    return rate.capacity if rate else float(limits.size(key))


def _shards(limits: Limits, kind: str, key: str) -> int:
    rate = limits.rate(key) if kind == "rate" else None
    return rate.shards if rate else 1


def _refill(turn: Turn, bucket: Bucket) -> None:
    rate = turn.rules.limits.rate(bucket.key) if bucket.kind == "rate" else None
    if rate is None:
        return
    elapsed = max(0, turn.now - bucket.refilled_at)  # a clock that jumps back refills nothing twice
    bucket.capacity = rate.capacity
    bucket.available = min(bucket.capacity, bucket.available + elapsed * rate.per_micro)


async def _heads(turn: Turn, buckets: _Shards) -> dict[str, _Head]:
    """The first blocked row of each rate limit that has any."""
    waiting = [(f"rate:{key}",) for (kind, key), shards in buckets.items() if kind == "rate" and _has_blocked(shards)]
    if not waiting:
        return {}
    found = await turn.tx.fetch(sql.blocked_heads, waiting)
    return {name.removeprefix("rate:"): _Head(priority, since, weight) for name, priority, since, weight in found}


def _has_blocked(shards: list[Bucket]) -> bool:
    return any(bucket.due_at is not None for bucket in shards)


def _spend(turn: Turn, shards: list[Bucket], candidate: Candidate, head: _Head | None, empty: set[str]) -> bool:
    """Take the tokens, or make the bucket due when they are there. Strictly in order: no candidate overtakes a
    blocked row."""
    key = shards[0].key
    rate = turn.rules.limits.rate(key)
    if rate is None:
        return True  # this process does not configure the limit, and the row alone does not define it
    if key in empty or (head is not None and (candidate.priority, candidate.since) > (head.priority, head.since)):
        return False
    need = min(candidate.weight, rate.capacity)
    for bucket in shards:
        if bucket.available >= need - 1e-9:
            bucket.available -= need
            bucket.changed = True
            return True
    empty.add(key)
    _set_due(turn, shards, need, rate)
    return False


def _set_due_for_head(turn: Turn, shards: list[Bucket], head: _Head) -> None:
    """Make the bucket due exactly when its head has its tokens: the tokens spent in this turn are known now."""
    rate = turn.rules.limits.rate(shards[0].key)
    if rate is not None:
        _set_due(turn, shards, min(head.weight, rate.capacity), rate)


def _set_due(turn: Turn, shards: list[Bucket], need: float, rate: Rate) -> None:
    """Make the bucket due when it has this many tokens, which its first row needs. At an earlier time it would only
    promote a row that is refused again."""
    for shard in shards:
        shard.changed = shard.changed or shard.due_at is not None
        shard.due_at = None
    bucket = max(shards, key=lambda shard: shard.available)
    bucket.due_at = turn.now + max(0, math.ceil((need - bucket.available) / rate.per_micro))
    bucket.changed = True
    turn.result.pending.due(bucket.due_at)


async def _save(turn: Turn, buckets: Iterable[Bucket]) -> None:
    rows = [(b.kind, b.key, b.shard, b.capacity, b.available, b.due_at) for b in buckets if b.changed]
    if rows:
        await turn.tx.fetch(sql.save_buckets, rows)


# -- rows that leave their bucket ------------------------------------------------------------------


async def release(turn: Turn) -> None:
    """Make the buckets of freed slots due, if rows are blocked on them, and those of rate limits when the first row
    that is blocked on them now has its tokens."""
    if not turn.buckets.freed and not turn.buckets.left:
        return
    names = {("slot", key) for key in turn.buckets.freed} | {("rate", key) for key in turn.buckets.left}
    held: _Shards = {}
    for row in await turn.tx.fetch(sql.hold_buckets, sorted(names)):
        bucket = Bucket(*row)
        held.setdefault((bucket.kind, bucket.key), []).append(bucket)
    configured = {
        name: shards for name, shards in held.items() if name[0] == "rate" and turn.rules.limits.rate(name[1])
    }
    if configured:
        await _set_due_for_new_heads(turn, configured)
    others = [name for name in held if name not in configured]
    if others:
        await _open(turn, others)


async def _set_due_for_new_heads(turn: Turn, buckets: _Shards) -> None:
    for shards in buckets.values():
        for bucket in shards:
            _refill(turn, bucket)
    heads = await _heads(turn, buckets)
    for (_, key), shards in buckets.items():
        if key in heads:
            _set_due_for_head(turn, shards, heads[key])
        else:
            for bucket in shards:
                bucket.changed = bucket.changed or bucket.due_at is not None
                bucket.due_at = None
    await _save(turn, (bucket for shards in buckets.values() for bucket in shards))


async def _open(turn: Turn, held: list[tuple[str, str]]) -> bool:
    """Make these buckets due if rows are blocked on them. Returns True if there are such rows."""
    blocked = {name for (name,) in await turn.tx.fetch(sql.blocked_keys, [(f"{kind}:{key}",) for kind, key in held])}
    opened = [(kind, key) for kind, key in held if f"{kind}:{key}" in blocked]
    if opened:
        await turn.tx.fetch(sql.open_buckets, opened)
    return bool(opened)


async def try_slots(turn: Turn, keys: set[str]) -> list[str]:
    """Lock the buckets of these keys without waiting: once the claims have begun, a turn must not wait for a lock.
    Returns the keys that are locked."""
    found = await turn.tx.fetch(sql.try_buckets, [("slot", key) for key in sorted(keys)]) if keys else []
    return [key for _, key, *_ in found]


async def release_late(turn: Turn, keys: set[str]) -> None:
    """Release slots that came free during the claims; their buckets are locked (`try_slots`). The next turn
    promotes."""
    if keys and await _open(turn, [("slot", key) for key in sorted(keys)]):
        turn.result.pending.due(turn.now)


async def promote(turn: Turn) -> None:
    """Make the first blocked rows of due buckets claimable again."""
    due: _Shards = {}
    for row in await turn.tx.fetch(sql.due_buckets):
        bucket = Bucket(*row)
        _refill(turn, bucket)
        due.setdefault((bucket.kind, bucket.key), []).append(bucket)
    if not due:
        return
    keys = [key for kind, key in due if kind == "slot"]
    used: dict[str, int] = dict(await turn.tx.fetch(sql.slots_used, [(key,) for key in keys])) if keys else {}
    room: dict[str, int] = {}
    for (kind, key), shards in due.items():
        if kind == "slot":
            free = turn.rules.limits.size(key) - used.get(key, 0)
        else:
            # One shard is due, and the others have filled up beside it.
            free = max(1, int(sum(b.available for b in shards) / len(shards) * _shards(turn.rules.limits, kind, key)))
        if free > 0:
            room[f"{kind}:{key}"] = min(free, _MAX_PROMOTED)
    still_blocked: set[str] = set()
    if room:
        pending = turn.result.pending
        promoted = await turn.tx.fetch(sql.promote, list(room.items()))
        pending.made_claimable = pending.made_claimable or bool(promoted)
        for key, queue, lane in promoted:
            pending.lanes.add((queue, lane))
            if f"slot:{key}" in room:
                room[f"slot:{key}"] -= 1
        still_blocked = {name for (name,) in await turn.tx.fetch(sql.blocked_keys, [(name,) for name in room])}
    for (kind, key), shards in due.items():
        for bucket in shards:
            bucket.due_at = None
            bucket.changed = True
        if f"{kind}:{key}" in still_blocked:
            _promote_again(turn, shards[0], room[f"{kind}:{key}"])
    await _save(turn, (bucket for shards in due.values() for bucket in shards))


def _promote_again(turn: Turn, bucket: Bucket, room: int) -> None:
    """Make the bucket due again, because rows are still blocked: tokens are missing, another transaction had locked
    the rows, or the slots went to other rows for which perhaps no worker has the code."""
    rate = turn.rules.limits.rate(bucket.key) if bucket.kind == "rate" else None
    if rate is not None:
        bucket.due_at = turn.now + max(_SOON, math.ceil(1 / rate.shards / rate.per_micro))
    else:
        bucket.due_at = turn.now + (_SOON if room else _LATER)
    turn.result.pending.due(bucket.due_at)
