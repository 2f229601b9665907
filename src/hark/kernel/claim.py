"""Claim work for free slots, and let what is running run on.

Run-ahead: a step that returned `Next` keeps its claim and runs on after this commit, unless a claimable
row of its queue is more urgent, or as urgent and waiting longer while no slot is free. Such a row takes
its place and it goes to the end of the line. Work under a concurrency key runs on: it holds a slot that
nobody in line could use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hark.kernel import limits
from hark.kernel.limits import Candidate
from hark.kernel.requests import Appetite, Commit
from hark.kernel.rows import wait_row
from hark.model.activation import Claim, InboxRow
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_ROUNDS = 3  # refused rows make room for others, a bounded number of times


async def apply(turn: Turn, appetite: Appetite | None) -> None:
    stay = {request.claim.id: request for request in turn.nexts}
    if appetite is None:
        turn.unclaimed = turn.runnable
    else:
        await _claim(turn, appetite, stay)
    pushed = [request for request in turn.nexts if request.claim.id not in stay]
    if pushed:
        await turn.tx.fetch(sql.conclude, [_yield(request) for request in pushed])
        turn.unclaimed = True
    if stay:
        rows = [(r.claim.id, r.claim.epoch, r.decision.step, r.decision.state) for r in stay.values()]
        await turn.tx.fetch(sql.advance, rows)
    for request in stay.values():
        request.answer = _run_on(turn, request)
    turn.claims.extend(request.answer for request in stay.values())
    await _load(turn, set(stay))


async def _claim(turn: Turn, appetite: Appetite, stay: dict[str, Commit]) -> None:
    free = dict(appetite.free)
    for _ in range(_ROUNDS):
        lanes: list[tuple[str, str, int, int]] = []
        pushable: dict[str, list[Commit]] = {}
        for request in stay.values():
            if request.claim.concurrency_key is None:
                pushable.setdefault(request.claim.queue, []).append(request)
        for queue, room in free.items():
            size = room + len(pushable.get(queue, ()))
            lanes.extend((queue, definition, version, size) for definition, version in appetite.definitions if size)
        if not lanes:  # no seat, or no code: who has none must not ask again and again
            turn.unclaimed = turn.runnable or bool(appetite.definitions)
            return
        most = max(lane[3] for lane in lanes)
        found = [Candidate(*row) for row in await turn.tx.fetch(sql.claimable, lanes, most=most)]
        turn.unclaimed = turn.unclaimed or len(found) >= most
        chosen = _choose(found, free, pushable)
        granted, undecided = await limits.admit(turn, chosen)
        pushed = _seat(granted, free, pushable)
        for request in pushed:
            del stay[request.claim.id]
        if granted:
            await _take(turn, appetite.owner, granted)
        turn.more = turn.more or undecided > 0
        if len(granted) + undecided == len(chosen):
            return
    turn.more = True


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
        claim.counted, claim.mail = bool(claim.counted), bool(claim.mail)
        turn.claims.append(claim)


def _run_on(turn: Turn, request: Commit) -> Claim:
    before, decision = request.claim, request.decision
    return Claim(
        before.id, before.definition, before.version, before.kind, before.queue, before.priority, decision.step,
        decision.state, 0, before.epoch + 1, before.correlation_key, before.concurrency_key, before.parent_id,
        before.parent_wait, before.counted, turn.rows[before.id].mail, before.visit, 0, None, 1.0,
    )  # fmt: skip


def _yield(request: Commit) -> tuple[Any, ...]:
    claim, decision = request.claim, request.decision
    return (
        claim.id, claim.epoch, "runnable", decision.step, decision.state, None, None, 0, None, None, None, 1.0, False,
    )  # fmt: skip


async def _load(turn: Turn, ran_on: set[str]) -> None:
    """What a step may look at: inbox, waits, children. Only for those who can have any."""
    claims = {claim.id: claim for claim in turn.claims}
    mail = sorted(id for id, claim in claims.items() if claim.mail)
    for id in mail:
        claims[id].inbox = turn.first_mail.get(id, [])
    unread = [id for id in mail if id not in turn.first_mail]
    if unread:
        for seq, id, kind, name, wait_id, payload, at in await turn.tx.fetch(sql.inbox, ids=unread):
            claims[id].inbox.append(InboxRow(seq, kind, name, wait_id, payload, at))
    # Who has waits was woken, and who was woken has mail. Who runs on has left its waits behind.
    woken = [id for id in mail if id not in ran_on]
    unseen = []
    for id in woken:
        row = turn.rows.get(id)
        if row is not None and row.looked:
            claims[id].waits = row.waits
        else:
            unseen.append(id)
    if unseen:
        for found in await turn.tx.fetch(sql.waits_of, ids=unseen):
            claims[found[1]].waits.append(wait_row(found))
    joins = {wait.id: claim for claim in claims.values() for wait in claim.waits if wait.kind == "children"}
    if joins:
        for wait_id, *child in await turn.tx.fetch(sql.children_of, waits=sorted(joins)):
            joins[wait_id].children.append(tuple(child))
    for claim in claims.values():
        claim.now = turn.now
