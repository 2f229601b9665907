"""Claim work for free slots, and let what is running run on.

Run-ahead: a step that returned `Next` keeps its claim and runs on after this commit, unless a claimable
row of its queue is more urgent, or as urgent and waiting longer while no slot is free. Such a row takes
its place and it goes to the end of the line; the slot of its concurrency key is free then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel import commit, journal, limits
from hark.kernel.limits import Candidate
from hark.kernel.requests import Capacity, Commit
from hark.kernel.rows import wait_row
from hark.model.activation import Claim, InboxRow
from hark.model.decisions import Proceed
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_ROUNDS = 3  # refused rows make room for others, a bounded number of times
_FAR = 1000  # how far to look past a backlog of those who are refused: it must not hold up who comes behind


async def apply(turn: Turn, capacity: Capacity | None) -> None:
    stay = {request.claim.id: request for request in turn.nexts}
    woken = await _woken(turn, capacity) if turn.woken else []
    if capacity is None:
        turn.unclaimed = turn.unclaimed or turn.runnable
    else:
        await _claim(turn, capacity, stay, woken)
        turn.elsewhere = any(
            not capacity.free.get(queue) or (name, version) not in capacity.definitions
            for queue, name, version in turn.made
        )
    if woken:
        await _wake(turn, [candidate.id for candidate in woken])
    pushed = [request for request in turn.nexts if request.claim.id not in stay]
    if pushed:
        await commit.requeue(turn, pushed)
        turn.events.extend((r.claim.id, r.decision.label, r.decision.step, r.decision.data) for r in pushed)
        turn.unclaimed = True
        await limits.give_up(turn, {r.claim.concurrency_key for r in pushed if r.claim.concurrency_key is not None})
    if stay:
        rows = [(r.claim.id, r.claim.epoch, r.decision.step, r.decision.state) for r in stay.values()]
        await turn.tx.fetch(sql.advance, rows, tx=turn.tx.xid)
    for request in stay.values():
        request.answer = True
    turn.ran_on = list(stay.values())
    await _load(turn)


async def _woken(turn: Turn, capacity: Capacity | None) -> list[Candidate]:
    """Those just woken that may be claimed straight from their park, one write less; the others are woken."""
    direct = []
    if capacity is not None and any(capacity.free.values()):
        for row in await turn.tx.fetch(sql.woken, ids=sorted(turn.woken)):
            id, queue, priority, key, rate, weight, definition, version = row
            here = queue in capacity.free and (definition, version) in capacity.definitions
            if here and key is None and rate is None:
                direct.append(Candidate(id, queue, priority, turn.tx.position, None, None, weight))
    await _wake(turn, turn.woken.difference(candidate.id for candidate in direct))
    return direct


async def _wake(turn: Turn, ids: Iterable[str]) -> None:
    if ids := sorted(ids):
        await turn.tx.fetch(sql.wake, ids=ids)
        turn.unclaimed = True


async def _claim(turn: Turn, capacity: Capacity, stay: dict[str, Commit], woken: list[Candidate]) -> None:
    free = dict(capacity.free)
    line = capacity.backlog or turn.runnable or turn.unclaimed
    for _ in range(_ROUNDS):
        lanes: list[tuple[str, str, int, int]] = []
        pushable: dict[str, list[Commit]] = {}
        for request in stay.values():
            if not _holds(request):
                pushable.setdefault(request.claim.queue, []).append(request)
        sizes = {queue: room + len(pushable.get(queue, ())) for queue, room in free.items()}
        for queue, size in sizes.items():
            reach = max(size, _FAR) if turn.shut else size
            lanes.extend((queue, definition, version, reach) for definition, version in capacity.definitions if size)
        if not lanes:  # no seat, or no code: who has none must not ask again and again
            turn.unclaimed = turn.crowded = turn.runnable or bool(capacity.definitions)
            return
        most = max(lane[3] for lane in lanes)
        rows = await turn.tx.fetch(sql.claimable, lanes, most=most) if line else []
        found = [Candidate(*row) for row in rows]
        seen = len(found)
        found = await limits.turn_away(turn, found) if turn.shut else found
        waiting = Counter(candidate.queue for candidate in found)
        turn.unclaimed = turn.unclaimed or any(waiting[queue] >= size > 0 for queue, size in sizes.items())
        turn.crowded = any(waiting[queue] >= size for queue, size in sizes.items())
        if any(waiting[queue] > free[queue] for queue in waiting):
            await _keep_keys(turn, pushable)
        chosen = _choose(sorted(found + woken, key=_place) if woken else found, free, pushable)
        granted, undecided = await limits.admit(turn, chosen)
        pushed = _seat(granted, free, pushable)
        for request in pushed:
            del stay[request.claim.id]
        if granted:
            await _take(turn, capacity.owner, granted)
            seated = {candidate.id for candidate in granted}
            woken[:] = [candidate for candidate in woken if candidate.id not in seated]
        turn.more = turn.more or undecided > 0
        if len(granted) + undecided == len(chosen) and len(found) == seen:
            return
    turn.more = True


async def _keep_keys(turn: Turn, pushable: dict[str, list[Commit]]) -> None:
    """Who runs under a key makes room only if its bucket can be had: the next in line for the key must hear of it."""
    keys = {r.claim.concurrency_key for requests in pushable.values() for r in requests}
    held = {None, *await limits.try_slots(turn, {key for key in keys if key is not None})}
    for queue, requests in pushable.items():
        pushable[queue] = [request for request in requests if request.claim.concurrency_key in held]


def _holds(request: Commit) -> bool:
    move = request.decision.move
    return isinstance(move, Proceed) and move.keep_slot


def _place(candidate: Candidate) -> tuple[int, int]:
    return candidate.priority, candidate.since


def _choose(found: list[Candidate], free: dict[str, int], pushable: dict[str, list[Commit]]) -> list[Candidate]:
    """The most urgent first, as many as have a seat, or may take one from less urgent work."""
    chosen = []
    seats = dict(free)
    worst = {q: sorted((r.claim.priority for r in requests), reverse=True) for q, requests in pushable.items()}
    for candidate in found:
        if seats.get(candidate.queue, 0) > 0:
            seats[candidate.queue] -= 1
            chosen.append(candidate)
        elif (line := worst.get(candidate.queue)) and line[0] >= candidate.priority:
            line.pop(0)
            chosen.append(candidate)
    return chosen


def _seat(granted: list[Candidate], free: dict[str, int], pushable: dict[str, list[Commit]]) -> list[Commit]:
    pushed = []
    for requests in pushable.values():
        requests.sort(key=lambda request: request.claim.priority)
    for candidate in granted:
        if free[candidate.queue] > 0:
            free[candidate.queue] -= 1
        else:
            pushed.append(pushable[candidate.queue].pop())
    return pushed


async def _take(turn: Turn, owner: str, granted: list[Candidate]) -> None:
    rows = await turn.tx.fetch(sql.claim, owner=owner, ids=[candidate.id for candidate in granted])
    by_id = {row[0]: Claim(*row) for row in rows}
    for candidate in granted:
        claim = by_id[candidate.id]
        claim.counted, claim.has_signals = bool(claim.counted), bool(claim.has_signals)
        turn.claims.append(claim)


async def _load(turn: Turn) -> None:
    """What a step may look at: inbox, waits, children, journal. Only for those who can have any."""
    # Who has waits was woken, and who was woken has mail; but a function may have been at work with waits armed.
    claims = {
        claim.id: claim for claim in turn.claims if claim.has_signals or (claim.kind != "machine" and claim.epoch > 1)
    }
    readers = [id for id, claim in claims.items() if claim.has_signals]
    readers += [r.claim.id for r in turn.ran_on if turn.rows[r.claim.id].has_signals]
    await load_inboxes(turn, readers)
    unseen = []
    for id, claim in claims.items():
        claim.inbox = turn.inboxes.get(id, [])
        row = turn.rows.get(id)
        if row is not None and row.looked:
            claim.waits = row.waits
        else:
            unseen.append(id)
    if unseen:
        for found in await turn.tx.fetch(sql.waits_of, ids=sorted(unseen)):
            claims[found[1]].waits.append(wait_row(found))
    joins = {wait.id: claim.children for claim in claims.values() for wait in claim.waits if wait.kind == "children"}
    for waits, children in turn.kept.values():
        joins |= {wait.id: children for wait in waits if wait.kind == "children"}
    if joins:
        for child in await turn.tx.fetch(sql.children_of, waits=sorted(joins)):
            joins[child[0]].append(tuple(child))
    await journal.load(turn, [claim for claim in claims.values() if claim.kind == "workflow"])
    for claim in turn.claims:
        claim.now = turn.now


async def load_inboxes(turn: Turn, ids: list[str]) -> None:
    turn.inboxes = {id: turn.first_mail.get(id, []) for id in ids}
    unread = sorted(id for id in ids if id not in turn.first_mail)
    if unread:
        for seq, id, kind, name, wait_id, payload, at in await turn.tx.fetch(sql.inbox, ids=unread):
            turn.inboxes[id].append(InboxRow(seq, kind, name, wait_id, payload, at))
