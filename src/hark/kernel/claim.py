"""Claim work for free slots, and let running instances run ahead.

A step that returned `Next` keeps its claim and runs ahead after this commit, unless a claimable row of its queue is
more urgent, or equally urgent and waiting longer while no slot is free. Then that row gets the slot, and the step is
queued behind all others; the slot of its concurrency key comes free too.

`store/schema/functions.sql` repeats the claim and what it reads for the call turn; tests/kernel/test_call_turns.py
compares both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hark.kernel import buckets, commit, journal
from hark.kernel.buckets import MAX_ROUNDS, PAST_REFUSED, Candidate
from hark.kernel.inbox import NO_SIGNALS, load_inboxes, read_before, read_waits
from hark.kernel.requests import Capacity, Commit
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model import epochs
from hark.model.activation import ChildRow, Claim, WaitRow
from hark.model.lanes import ENGINE_QUEUE, INTERPRETED
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Running = dict[str, list[Commit]]  # outcomes that run ahead and may give up their slot, by queue


async def apply(turn: Turn, capacity: Capacity | None, running: list[Commit]) -> None:
    """Claim work for this capacity. `running` are the outcomes that may run ahead."""
    pending = turn.result.pending
    stay = {request.claim.id: request for request in running}
    woken: list[Candidate] = []
    free = {} if capacity is None else dict(capacity.free)
    claimed_all = capacity is not None and await _claim_all_woken(turn, capacity, free)
    if turn.inbox.woken and not claimed_all:
        woken = await _claimable_woken(turn, capacity)
    if capacity is None:
        pending.left_claimable = pending.left_claimable or pending.made_claimable
    else:
        if not claimed_all or pending.left_claimable or capacity.try_held:
            await _claim(turn, capacity, free, stay, woken)
        pending.for_other_workers = any(
            not capacity.free.get(queue) or lane not in capacity.lanes for queue, lane in pending.lanes
        )
    if woken:
        await _wake(turn, [candidate.id for candidate in woken])
    displaced = [request for request in running if request.claim.id not in stay]
    if displaced:
        await commit.requeue(turn, displaced)
        for request in displaced:
            turn.history.outcome(request.claim, request.decision)
        pending.left_claimable = True
        keys = {request.claim.concurrency_key for request in displaced}
        await buckets.release_late(turn, {key for key in keys if key is not None})
    if stay:
        if any(request.decision.failed_attempts or request.decision.events for request in stay.values()):
            await turn.history.write(turn.tx)  # before the events of their outcomes, which `advance` writes itself
        rows = [(r.claim.id, r.claim.epoch, r.decision.step, r.decision.state) for r in stay.values()]
        await turn.tx.fetch(sql.advance, rows, tx=turn.tx.xid)
    for request in stay.values():
        request.result = True
    turn.result.ran_ahead = list(stay.values())
    await _load(turn, {} if capacity is None else capacity.in_memory)


async def _claim_all_woken(turn: Turn, capacity: Capacity, free: dict[str, int]) -> bool:
    """Handle the frequent case: a slot is free for every instance woken in this turn, and no other row may need it.

    Claims those that this worker can run without a bucket, in one statement, and takes their slots from `free`. Returns
    False in any other case."""
    pending, woken = turn.result.pending, turn.inbox.woken
    if not woken or capacity.backlog or pending.made_claimable or pending.left_claimable or not all(free.values()):
        return False
    queues = [queue for queue, slots in free.items() if slots >= len(woken)]
    if not queues or not capacity.lanes:
        return False
    ids, lanes, nonce = sorted(woken), list(capacity.lanes), epochs.new_nonce()
    rows = await turn.tx.fetch(sql.claim_woken, owner=capacity.owner, nonce=nonce, ids=ids, queues=queues, lanes=lanes)
    claims = [_new_claim(row, capacity, nonce) for row in rows]
    claims.sort(key=lambda claim: claim.priority)
    turn.result.claims += claims
    for claim in claims:
        free[claim.queue] -= 1
    if len(claims) < len(woken):
        await _wake(turn, woken.difference([claim.id for claim in claims]))
    return True


async def _claimable_woken(turn: Turn, capacity: Capacity | None) -> list[Candidate]:
    """Find the woken instances that can be claimed directly from their park, which saves a write. The others
    are made runnable."""
    direct = []
    if capacity is not None and any(capacity.free.values()):
        found = await turn.tx.fetch(sql.woken, ids=sorted(turn.inbox.woken))
        for id, queue, priority, key, rate, weight, lane in found:
            here = queue in capacity.free and lane in capacity.lanes
            if here and key is None and rate is None:
                direct.append(Candidate(id, queue, priority, turn.tx.position, None, None, weight))
    await _wake(turn, turn.inbox.woken.difference(candidate.id for candidate in direct))
    return direct


async def _wake(turn: Turn, ids: Iterable[str]) -> None:
    if ids := sorted(ids):
        await turn.tx.fetch(sql.wake, ids=ids)
        turn.result.pending.left_claimable = True


async def _claim(
    turn: Turn, capacity: Capacity, free: dict[str, int], stay: dict[str, Commit], woken: list[Candidate]
) -> None:
    """Fill the free slots, in rounds: each round replaces the candidates that a bucket refused in the one before.

    Removes from `stay` the outcomes that lose their slot, and from `woken` what was claimed."""
    pending = turn.result.pending
    tried: dict[str, str] = {}  # the codes that did not fit, by the id of a held instance
    held = await _find_held(turn, capacity, free, tried) if capacity.try_held else []
    read_backlog = capacity.backlog or pending.made_claimable or pending.left_claimable
    for _ in range(MAX_ROUNDS):
        may_yield = _by_queue(stay.values())
        sizes = {queue: slots + len(may_yield.get(queue, ())) for queue, slots in free.items()}
        lanes: list[tuple[str, str, int]] = []
        for queue, size in sizes.items():
            reach = max(size, PAST_REFUSED) if turn.buckets.refused else size
            if size:
                interpreted = queue == ENGINE_QUEUE
                lanes += [(queue, lane, reach) for lane in capacity.lanes if (lane in INTERPRETED) is interpreted]
        if not lanes:  # no slot, or no code: a worker without code must not claim again and again
            pending.left_claimable = pending.backlog = pending.made_claimable or bool(capacity.lanes)
            return
        most = max(reach for *_, reach in lanes)
        rows = await turn.tx.fetch(sql.claimable, lanes, most=most) if read_backlog else []
        found = [Candidate(*row) for row in rows]
        read = len(found)
        found = await buckets.block_refused(turn, found) if turn.buckets.refused else found
        waiting = Counter(candidate.queue for candidate in found)
        pending.left_claimable = pending.left_claimable or any(
            waiting[queue] >= size > 0 for queue, size in sizes.items()
        )
        pending.backlog = any(waiting[queue] >= size for queue, size in sizes.items())
        if any(waiting[queue] > free[queue] for queue in waiting):
            await _keep_locked_keys(turn, may_yield)
        chosen = _choose(sorted(found + woken + held, key=_urgency) if woken or held else found, free, may_yield)
        granted, undecided = await buckets.admit(turn, chosen)
        for request in _assign(granted, free, may_yield):
            del stay[request.claim.id]
        if granted:
            claimed = {candidate.id for candidate in granted}
            await _release(turn, [candidate.id for candidate in held if candidate.id in claimed])
            await _take(turn, capacity, granted)
            for claim in turn.result.claims if tried else ():
                claim.held_by = tried.get(claim.id)
            woken[:] = [candidate for candidate in woken if candidate.id not in claimed]
            held = [candidate for candidate in held if candidate.id not in claimed]
            pending.left_claimable = pending.left_claimable or bool(held)
        pending.more = pending.more or undecided > 0
        if len(granted) + undecided == len(chosen) and len(found) == read:
            return
    pending.more = True


async def _find_held(turn: Turn, capacity: Capacity, free: dict[str, int], tried: dict[str, str]) -> list[Candidate]:
    """Find held instances that the code of this worker has not been tried on, as many as it has free slots (V3).

    They are released in the turn that claims them, with the codes that have been tried on them, which are added to
    `tried`. If they were released for a later turn, these would be forgotten, and two workers whose code does not fit
    could try the same instance in turns for as long as their queue is busy. Those that need a bucket are released at
    once."""
    pending = turn.result.pending
    most = sum(free.values())
    if not most:
        pending.left_held = True
        return []
    groups = [
        (lane, held_by)
        for lane, held_by in await turn.tx.fetch(sql.held_groups)
        if (code := capacity.codes.get(lane)) is not None and code not in held_by.split(",")
    ]
    if not groups:
        return []
    queues = sorted(queue for queue, slots in free.items() if slots)
    full = sorted(free.keys() - queues)
    rows = await turn.tx.fetch(sql.claimable_held, groups, queues=queues, most=most)
    found = [Candidate(*row) for _, *row in rows[:most]]
    tried.update((id, held_by) for held_by, id, *_ in rows[:most])
    needs_bucket = [one.id for one in found if one.concurrency_key is not None or one.rate_limit is not None]
    if needs_bucket:
        await _release(turn, needs_bucket)
        pending.made_claimable = True
    # Others may be chosen before them, there may be more of them, or their queue has no slot now.
    waits = rows or (full and await turn.tx.fetch(sql.claimable_held, groups, queues=full, most=1))
    pending.left_held = bool(waits)
    return [one for one in found if one.concurrency_key is None and one.rate_limit is None]


async def _release(turn: Turn, ids: list[str]) -> None:
    if ids:
        await turn.tx.fetch(sql.release, ids=sorted(ids))


def _by_queue(requests: Iterable[Commit]) -> _Running:
    """The outcomes that may give up their slot, by queue."""
    may_yield: _Running = {}
    for request in requests:
        if not request.decision.move.keep_slot:
            may_yield.setdefault(request.claim.queue, []).append(request)
    return may_yield


async def _keep_locked_keys(turn: Turn, may_yield: _Running) -> None:
    """Drop from `may_yield` the outcomes under a concurrency key whose bucket cannot be locked: when such an instance
    gives up its slot, the next row that is blocked on the key must be promoted."""
    keys = {r.claim.concurrency_key for requests in may_yield.values() for r in requests}
    locked = {None, *await buckets.try_slots(turn, {key for key in keys if key is not None})}
    for queue, requests in may_yield.items():
        may_yield[queue] = [request for request in requests if request.claim.concurrency_key in locked]


def _urgency(candidate: Candidate) -> tuple[int, int]:
    return candidate.priority, candidate.since


def _choose(found: list[Candidate], free: dict[str, int], may_yield: _Running) -> list[Candidate]:
    """The candidates that get a slot: a free one or, if none is free, that of a running outcome that is as urgent or
    less urgent. An equally urgent one yields too, because the candidate has waited longer.

    Args:
        found: The candidates, sorted by `_urgency`: the first ones get the slots.
        free: The free slots by queue; not changed.
        may_yield: The outcomes that want to run ahead and may lose their slot, by queue; not changed."""
    chosen = []
    slots = dict(free)
    least_urgent = {
        queue: sorted((r.claim.priority for r in requests), reverse=True) for queue, requests in may_yield.items()
    }
    for candidate in found:
        if slots.get(candidate.queue, 0) > 0:
            slots[candidate.queue] -= 1
            chosen.append(candidate)
        elif (running := least_urgent.get(candidate.queue)) and running[0] >= candidate.priority:
            running.pop(0)
            chosen.append(candidate)
    return chosen


def _assign(granted: list[Candidate], free: dict[str, int], may_yield: _Running) -> list[Commit]:
    """Give each candidate a free slot, or that of the least urgent running outcome. Returns the outcomes that lose
    theirs."""
    displaced = []
    for requests in may_yield.values():
        requests.sort(key=lambda request: request.claim.priority)
    for candidate in granted:
        if free[candidate.queue] > 0:
            free[candidate.queue] -= 1
        else:
            displaced.append(may_yield[candidate.queue].pop())
    return displaced


async def _take(turn: Turn, capacity: Capacity, granted: list[Candidate]) -> None:
    ids, nonce = [candidate.id for candidate in granted], epochs.new_nonce()
    rows = await turn.tx.fetch(sql.claim, owner=capacity.owner, nonce=nonce, ids=ids)
    claims = {row[0]: _new_claim(row, capacity, nonce) for row in rows}
    turn.result.claims += [claims[candidate.id] for candidate in granted]


def _new_claim(row: Any, capacity: Capacity, nonce: int) -> Claim:
    claim = Claim(*row)
    claim.epoch_before = epochs.epoch_before(claim.epoch, nonce)
    claim.counted, claim.has_inbox_rows = bool(claim.counted), bool(claim.has_inbox_rows)
    claim.traits = capacity.lanes[claim.lane]
    return claim


async def _load(turn: Turn, in_memory: Mapping[str, int]) -> None:
    """Read what a step may use: inbox, waits, children, journal. Only for claims that can have any."""
    result = turn.result
    # Only instances with inbox rows can have waits to load, except those that wait while they execute.
    claims = {
        claim.id: claim
        for claim in result.claims
        if claim.has_inbox_rows or (claim.traits.waits_while_executing and claim.has_run)
    }
    readers = {
        id: NO_SIGNALS if claim.kind in INTERPRETED else 0 for id, claim in claims.items() if claim.has_inbox_rows
    }
    for request in result.ran_ahead:
        if turn.rows[request.claim.id].has_inbox_rows:
            readers[request.claim.id] = read_before(request.claim, request.decision)
    result.inboxes = await load_inboxes(turn.tx, readers, turn.inbox.complete)
    unread = []
    for id, claim in claims.items():
        claim.give(result.inboxes.get(id, []))
        row = turn.rows.get(id)
        if row is not None and row.waits_are_current:
            claim.waits = row.waits
        else:
            unread.append(id)
    if unread:
        for id, wait in await read_waits(turn.tx, unread):
            claims[id].waits.append(wait)
    children: dict[str, list[ChildRow]] = {}  # by the wait of the parent
    for claim in claims.values():
        children |= {wait.id: claim.children for wait in claim.waits if _needs_children(wait)}
    for waits, kept in result.kept.values():
        children |= {wait.id: kept for wait in waits if _needs_children(wait)}
    if children:
        for row in await turn.tx.fetch(sql.children_of, waits=sorted(children)):
            child = ChildRow(*row)
            children[child.wait_id].append(child)
    for claim in result.claims:
        claim.now = turn.now
    await journal.load(turn.tx, result.claims, in_memory)


def _needs_children(wait: WaitRow) -> bool:
    """False if each end is an answer: a claim then gets the new ends, and not all children again and again."""
    return WAIT_KINDS[wait.kind].has_children and not wait.answers_each
