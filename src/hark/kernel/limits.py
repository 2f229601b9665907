"""Limits: token buckets and the slots of concurrency keys.

Slots are counted, not kept: who executes under a key holds a slot, so no crash can leak one. A bucket
row is the lock of its key. A row that is refused leaves the claim index (`blocked_on`) until its bucket
is due; whoever frees a slot makes the bucket due. Blocking happens under the bucket's lock and freeing
waits for it, so a row blocked meanwhile is always seen by the promotion (the wake-up race, once more).
Work without keys and limits pays nothing for any of this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from hark.model.errors import InvalidInput
from hark.model.names import check_name
from hark.model.values import Rate
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_SOON = 5_000  # µs until a promotion that met a locked row looks again
_LATER = 1_000_000  # µs until it looks whether those it promoted have been run by anybody
_KNOWN = 100_000


class Candidate(Struct, gc=False):
    id: str
    queue: str
    priority: int
    since: int
    concurrency_key: str | None
    rate_limit: str | None
    weight: float


class Bucket(Struct, gc=False):
    kind: str
    key: str
    shard: int
    capacity: float
    available: float
    refilled_at: int
    due_at: int | None
    changed: bool = False


class Limits:
    """The configured limits, and which buckets are known to have their rows."""

    def __init__(self, rates: dict[str, Rate], slots: dict[str, int]) -> None:
        if not isinstance(slots, dict):
            raise InvalidInput(f"concurrency={slots!r}: give a dict of names and how many may run at once.")
        for name in (*rates, *slots):
            check_name(name, "limit name")
            if ":" in name:
                raise InvalidInput(f"A limit's name cannot contain ':' (it separates the partition): {name!r}.")
        for name, size in slots.items():
            if type(size) is not int or size < 1:
                raise InvalidInput(f"concurrency={{{name!r}: {size!r}}}: give a whole number from 1.")
        self.rates = rates
        self.slots = slots
        self.known: set[tuple[str, str]] = set()

    def rate(self, key: str) -> Rate | None:
        return self.rates.get(key.split(":", 1)[0])

    def size(self, key: str) -> int:
        return self.slots.get(key.split(":", 1)[0], 1)

    def check(self, rate_limit: str | tuple[str, str] | None, weight: float) -> str | None:
        """A rate limit as it is written in a row; refused when unknown or never to be had."""
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise InvalidInput(f"weight={weight!r} is not possible: give a number above zero.")
        if rate_limit is None:
            return None
        name, partition = rate_limit if isinstance(rate_limit, tuple) and len(rate_limit) == 2 else (rate_limit, None)
        if not isinstance(name, str):
            raise InvalidInput(f"rate_limit={rate_limit!r}: give a configured name, or (name, partition).")
        if name not in self.rates:
            known = ", ".join(sorted(self.rates)) or "none"
            raise InvalidInput(
                f"There is no rate limit {name!r} (known: {known}). Name it in Hark(rate_limits={{{name!r}: Rate(…)}})."
            )
        if weight > self.rates[name].capacity:
            raise InvalidInput(
                f"weight={weight} is more than the limit {name!r} can ever hold at once "
                f"({self.rates[name].capacity:g}). Lower the weight or raise its burst."
            )
        return name if partition is None else f"{name}:{check_name(str(partition), 'rate limit partition')}"


async def admit(turn: Turn, wanted: list[Candidate]) -> tuple[list[Candidate], int]:
    """Who may run now, in order; the others are blocked. Also how many could not be decided this turn."""
    names = {("slot", c.concurrency_key) for c in wanted if c.concurrency_key is not None}
    names |= {("rate", c.rate_limit) for c in wanted if c.rate_limit is not None}
    if not names:
        return wanted, 0
    buckets = await _take(turn, {(kind, key or "") for kind, key in names})
    keys = [key for kind, key in buckets if kind == "slot"]
    used: dict[str, int] = dict(await turn.tx.fetch(sql.slots_used, keys=keys)) if keys else {}
    heads = await _heads(turn, buckets)
    granted: list[Candidate] = []
    blocked: list[tuple[str, str]] = []
    closed: set[str] = set()
    undecided = 0
    for candidate in wanted:
        slot, rate = candidate.concurrency_key, candidate.rate_limit
        if (slot is not None and ("slot", slot) not in buckets) or (rate is not None and ("rate", rate) not in buckets):
            undecided += 1
        elif slot is not None and used.get(slot, 0) >= turn.rules.limits.size(slot):
            blocked.append((candidate.id, f"slot:{slot}"))
        elif rate is not None and not _spend(turn, buckets[("rate", rate)], candidate, heads.get(rate), closed):
            blocked.append((candidate.id, f"rate:{rate}"))
        else:
            granted.append(candidate)
            if slot is not None:
                used[slot] = used.get(slot, 0) + 1
    for key, (_, _, weight) in heads.items():
        _await_head(turn, buckets[("rate", key)], weight)
    if blocked:
        await turn.tx.fetch(sql.block, blocked)
        turn.shut.update(bucket for _, bucket in blocked)
    await _save(turn, (bucket for shards in buckets.values() for bucket in shards))
    return granted, undecided


async def turn_away(turn: Turn, found: list[Candidate]) -> list[Candidate]:
    """Whose bucket refused somebody before them in this turn need not ask for a seat: they join its line."""
    rest: list[Candidate] = []
    blocked: list[tuple[str, str]] = []
    for candidate in found:
        names = (f"slot:{candidate.concurrency_key}", f"rate:{candidate.rate_limit}")
        shut = next((name for name in names if name in turn.shut), None)
        if shut is None:
            rest.append(candidate)
        else:
            blocked.append((candidate.id, shut))
    if blocked:
        await turn.tx.fetch(sql.block, blocked)
    return rest


async def _take(turn: Turn, names: set[tuple[str, str]]) -> dict[tuple[str, str], list[Bucket]]:
    """Lock the buckets that nobody else holds."""
    limits = turn.rules.limits
    new = [
        (kind, key, shard, *_size(limits, kind, key))
        for kind, key in sorted(names - limits.known)
        for shard in range(_shards(limits, kind, key))
    ]
    # Once a turn: two turns that make each other's buckets in their second rounds would deadlock.
    if new and not turn.made_buckets:
        turn.made_buckets = True
        await turn.tx.fetch(sql.insert_buckets, new)
        if len(limits.known) > _KNOWN:
            limits.known.clear()
        limits.known |= names
    buckets: dict[tuple[str, str], list[Bucket]] = {}
    for row in await turn.tx.fetch(sql.try_buckets, sorted(names)):
        bucket = Bucket(*row)
        _refill(turn, bucket)
        buckets.setdefault((bucket.kind, bucket.key), []).append(bucket)
    # Not there: held by another worker, or swept away as idle. The next turn makes sure of the second.
    limits.known -= names - set(buckets)
    return buckets


def _size(limits: Limits, kind: str, key: str) -> tuple[float]:
    rate = limits.rate(key) if kind == "rate" else None
    return (rate.capacity if rate else float(limits.size(key)),)


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


async def _heads(turn: Turn, buckets: dict[tuple[str, str], list[Bucket]]) -> dict[str, tuple[int, int, float]]:
    """Who is first in line at the token buckets that have a line: priority, since, weight."""
    lines = [(f"rate:{key}",) for (kind, key), shards in buckets.items() if kind == "rate" and _has_line(shards)]
    if not lines:
        return {}
    return {name[5:]: tuple(head) for name, *head in await turn.tx.fetch(sql.blocked_heads, lines)}


def _has_line(shards: list[Bucket]) -> bool:
    return any(bucket.due_at is not None for bucket in shards)


def _spend(
    turn: Turn, shards: list[Bucket], candidate: Candidate, head: tuple[int, int, float] | None, closed: set[str]
) -> bool:
    """Take the tokens, or say when they will be there. Strictly in order: who waits is not overtaken."""
    rate = turn.rules.limits.rate(shards[0].key)
    if rate is None:
        return True  # this process was not told of the limit, and no row can say more
    need = min(candidate.weight, rate.capacity)
    if shards[0].key in closed or (head is not None and (candidate.priority, candidate.since) > head[:2]):
        return False
    for bucket in shards:
        if bucket.available >= need - 1e-9:
            bucket.available -= need
            bucket.changed = True
            return True
    closed.add(shards[0].key)
    _queue_up(turn, shards, need, rate)
    return False


def _await_head(turn: Turn, shards: list[Bucket], weight: float) -> None:
    """What was spent before him is known now, so the bucket can be due to the moment."""
    rate = turn.rules.limits.rate(shards[0].key)
    if rate is not None:
        _queue_up(turn, shards, min(weight, rate.capacity), rate)


def _queue_up(turn: Turn, shards: list[Bucket], need: float, rate: Rate) -> None:
    """The bucket is due when the tokens for its first in line will be there."""
    bucket = max(shards, key=lambda shard: shard.available)
    due = turn.now + max(1, math.ceil((need - bucket.available) / rate.per_micro))
    bucket.due_at = due if bucket.due_at is None or bucket.due_at <= turn.now else min(bucket.due_at, due)
    bucket.changed = True
    turn.due(bucket.due_at)


async def _save(turn: Turn, buckets: Iterable[Bucket]) -> None:
    rows = [(b.kind, b.key, b.shard, b.capacity, b.available, b.due_at) for b in buckets if b.changed]
    if rows:
        await turn.tx.fetch(sql.save_buckets, rows)


async def release(turn: Turn) -> None:
    """Slots came free: their buckets become due, if anybody waits for them."""
    if not turn.freed:
        return
    keys = sorted(turn.freed)
    held = [row[1] for row in await turn.tx.fetch(sql.hold_buckets, keys=keys)]
    if held:
        await _open(turn, held)


async def _open(turn: Turn, held: list[str]) -> bool:
    waiting = [row[0][5:] for row in await turn.tx.fetch(sql.blocked_keys, [(f"slot:{key}",) for key in held])]
    if waiting:
        await turn.tx.fetch(sql.open_buckets, keys=waiting)
    return bool(waiting)


async def try_slots(turn: Turn, keys: set[str]) -> list[str]:
    """Hold the buckets of these keys, but wait for none: after the claims began nobody may wait."""
    found = await turn.tx.fetch(sql.try_buckets, [("slot", key) for key in sorted(keys)]) if keys else []
    return [row[1] for row in found]


async def give_up(turn: Turn, keys: set[str]) -> None:
    """Slots whose buckets are held (`try_slots`) came free among the claims: promoted by the next turn."""
    if keys and await _open(turn, sorted(keys)):
        turn.due(turn.now)


async def promote(turn: Turn) -> None:
    """Buckets that are due let their first blocked rows back into the line."""
    due: dict[tuple[str, str], list[Bucket]] = {}
    for row in await turn.tx.fetch(sql.due_buckets):
        bucket = Bucket(*row)
        _refill(turn, bucket)
        due.setdefault((bucket.kind, bucket.key), []).append(bucket)
    if not due:
        return
    keys = [key for kind, key in due if kind == "slot"]
    used: dict[str, int] = dict(await turn.tx.fetch(sql.slots_used, keys=keys)) if keys else {}
    room: dict[str, int] = {}
    for (kind, key), shards in due.items():
        if kind == "slot":
            free = turn.rules.limits.size(key) - used.get(key, 0)
        else:
            # One shard is due, and the others have filled up beside it.
            free = max(1, int(sum(b.available for b in shards) / len(shards) * _shards(turn.rules.limits, kind, key)))
        if free > 0:
            room[f"{kind}:{key}"] = min(free, 500)
    left: set[str] = set()
    if room:
        promoted = await turn.tx.fetch(sql.promote, list(room.items()))
        turn.runnable = turn.runnable or bool(promoted)
        for key, *lane in promoted:
            turn.made.add(tuple(lane))
            if f"slot:{key}" in room:
                room[f"slot:{key}"] -= 1
        left = {row[0] for row in await turn.tx.fetch(sql.blocked_keys, [(name,) for name in room])}
    for (kind, key), shards in due.items():
        for bucket in shards:
            bucket.due_at = None
            bucket.changed = True
        if f"{kind}:{key}" in left:
            _look_again(turn, shards[0], room[f"{kind}:{key}"])
    await _save(turn, (bucket for shards in due.values() for bucket in shards))


def _look_again(turn: Turn, bucket: Bucket, room: int) -> None:
    """Somebody is still in line: tokens will come for him, or another transaction held him just now. Also when
    the slots went to others: nobody here may have their code, and a slot nobody takes is his in the end."""
    rate = turn.rules.limits.rate(bucket.key) if bucket.kind == "rate" else None
    if rate is not None:
        bucket.due_at = turn.now + max(_SOON, math.ceil(1 / rate.shards / rate.per_micro))
    else:
        bucket.due_at = turn.now + (_SOON if room else _LATER)
    turn.due(bucket.due_at)
