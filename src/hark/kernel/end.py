"""Ends by another's hand, and the ways back: cancel, reclaim, hand back, retry.

All of them lock first. A cancel takes the whole tree below in one commit: who spawned between the look
and the lock is found by looking again, and the cancel then runs once more with the larger tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hark.kernel.requests import Cancel, RetryInstance
from hark.kernel.rows import Locked
from hark.model.errors import Conflict, Duplicate, NotFound
from hark.store import statements as sql
from hark.store.protocol import Conflicted

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


async def plan(turn: Turn) -> None:
    turn.targets.update(request.target for request in turn.cancels)
    turn.targets.update(request.target for request in turn.revives)
    if turn.revives:
        # A retry takes its key and its messages back, so it meets those who want them where they meet each other.
        ids = sorted((await turn.resolve(request.target for request in turn.revives)).values())
        for row in await turn.tx.fetch(sql.details, ids=ids):
            if row.correlation_key is not None:
                turn.reserve(row.correlation_key)
        for _, name, key, _ in await turn.tx.fetch(sql.closed_messages, ids=ids):
            turn.reserve_message(name, key)
    for handback in turn.handbacks:
        turn.wants.update(claim.id for claim in handback.claims)


async def plan_rows(turn: Turn) -> None:
    """Who else is touched: the trees below a cancel, the parents above an end."""
    roots = sorted({turn.addresses[r.target] for r in turn.cancels if r.target in turn.addresses})
    if roots:
        parents = (row.parent_id for row in await turn.tx.fetch(sql.details, ids=roots))
        turn.wants.update(parent for parent in parents if parent is not None)
        for id, parent in await turn.tx.fetch(sql.descendants, ids=roots):
            turn.wants.update((id, parent))  # a failed parent in between counts them too
    owners = sorted({owner for request in turn.reclaims for owner in request.owners})
    if owners:
        for id, parent in await turn.tx.fetch(sql.abandoned, owners=owners):
            turn.abandoned.append(id)
            turn.wants.add(id)
            if parent is not None:
                turn.wants.add(parent)


async def apply(turn: Turn) -> None:
    await _cancel(turn)
    await _reclaim(turn)
    await _hand_back(turn)
    await _retire(turn)
    await _revive(turn)


async def _details(turn: Turn, ids: list[str]) -> dict[str, sql.Details]:
    return {row.id: row for row in await turn.tx.fetch(sql.details, ids=ids)} if ids else {}


# -- cancel ----------------------------------------------------------------------------------------


async def _cancel(turn: Turn) -> None:
    wanted: dict[str, Cancel] = {}
    for request in turn.cancels:
        if request.sender is not None and request.sender.fenced:
            continue
        row = turn.find(request.target)
        if row is None:
            request.answer = _not_found(request.target)
        elif row.terminal or row.id in wanted:
            status = "cancelled" if row.id in wanted else row.status
            request.answer = Conflict(
                f"{request.target!r} is {status} already: there is nothing to cancel.", status=status
            )
        else:
            wanted[row.id] = request
            request.answer = row.id
    if not wanted:
        return
    below = [row[0] for row in await turn.tx.fetch(sql.descendants, ids=sorted(wanted))]
    if any(id not in turn.rows for id in below):
        if any(request.sender is not None for request in wanted.values()):
            raise Conflicted("a child that is to be cancelled has just spawned")  # it rides an outcome: all again
        turn.again.extend(wanted.values())
        return
    reasons = {id: request.reason or "cancelled" for id, request in wanted.items()}
    for id in below:
        if not turn.rows[id].terminal:
            reasons.setdefault(id, "its parent was cancelled")
    await _end(turn, {id: ("cancelled", reason) for id, reason in reasons.items()})
    turn.cancelled |= set(reasons)


async def _end(turn: Turn, ends: dict[str, tuple[Literal["cancelled", "failed"], str]]) -> None:
    """Status, waits, awakeables, slots, parents: in one commit."""
    ids = sorted(ends)
    for id, row in (await _details(turn, ids)).items():
        # A runnable one may have been promoted: the slot it was to take goes to the next in line.
        if row.concurrency_key is not None and row.status in ("executing", "runnable"):
            turn.freed.add(row.concurrency_key)
        if row.parent_wait is not None and not row.counted:
            turn.ended.append(row.parent_wait)
        turn.rows[id].status = ends[id][0]
        turn.finished[id] = (id, ends[id][0], None, ends[id][1])
        turn.event(id, ends[id][0], row.step, error=ends[id][1])
    await turn.tx.fetch(sql.end, [(id, *ends[id]) for id in ids])
    over = [id for id in ids if ends[id][0] == "cancelled"]
    if over:
        await turn.tx.fetch(sql.drop_waits, ids=over)
    failed = [id for id in ids if ends[id][0] == "failed"]
    if failed:
        await turn.tx.fetch(sql.close_waits, ids=failed)
    await turn.tx.fetch(sql.cancel_awakeables, ids=ids)


# -- lost and returned work ------------------------------------------------------------------------


async def _reclaim(turn: Turn) -> None:
    if not turn.reclaims:
        return
    owners = {owner for request in turn.reclaims for owner in request.owners}
    back: list[str] = []
    ends: dict[str, tuple[Literal["cancelled", "failed"], str]] = {}
    for id, row in (await _details(turn, sorted(turn.abandoned))).items():
        if row.status != "executing" or row.lease_owner not in owners:
            continue
        if row.crashes + 1 >= turn.rules.max_crashes:
            ends[id] = (
                "failed",
                f"quarantined: step {row.step!r} lost its worker {row.crashes + 1} times in a row. "
                "Find out what kills it, then retry the instance.",
            )
            continue
        back.append(id)
        turn.made.add((row.queue, row.definition, row.version))
        turn.rows[id].status = "runnable"
        if row.concurrency_key is not None:
            turn.freed.add(row.concurrency_key)
        turn.event(id, "reclaimed", row.step, worker=row.lease_owner)
    if ends:
        await _end(turn, ends)
    if back:
        await turn.tx.fetch(sql.reclaim, ids=back)
        turn.runnable = True
    if len(turn.abandoned) >= 1000:
        turn.again.extend(turn.reclaims)


async def _hand_back(turn: Turn) -> None:
    rows = []
    for request in turn.handbacks:
        request.answer = None
        for claim in request.claims:
            row = turn.rows.get(claim.id)
            if row is None or row.status != "executing" or row.epoch != claim.epoch:
                continue
            row.status = "runnable"
            rows.append((claim.id, claim.epoch))
            if claim.concurrency_key is not None:
                turn.freed.add(claim.concurrency_key)
            turn.event(claim.id, "handed_back", claim.step)
    if rows:
        await turn.tx.fetch(sql.hand_back, rows)
        turn.runnable = True


async def _retire(turn: Turn) -> None:
    """All who go, in one statement: two workers that bury each other as they leave would deadlock in two."""
    leaving = {request.retire for request in turn.handbacks if request.retire is not None}
    dead = {owner for request in turn.reclaims if request not in turn.again for owner in request.owners}
    if leaving or dead:
        await turn.tx.fetch(sql.retire, ids=sorted(leaving | dead), leaving=sorted(leaving))


# -- retry -----------------------------------------------------------------------------------------


async def _revive(turn: Turn) -> None:
    """All of it or nothing: its key, its waits and its questions must be free to take back."""
    asked: list[tuple[RetryInstance, Locked]] = []
    for request in turn.revives:
        row = turn.find(request.target)
        if row is None:
            request.answer = _not_found(request.target)
        else:
            asked.append((request, row))
    ids = sorted({row.id for _, row in asked if row.status == "failed"})
    details = await _details(turn, ids)
    keys = {row.correlation_key for row in details.values() if row.correlation_key is not None}
    holders = dict(await turn.tx.fetch(sql.taken, names=sorted(keys))) if keys else {}
    messages: dict[str, list[tuple[str, str]]] = {}
    receivers: dict[tuple[str, str], str | None] = {}
    for id, name, key, receiver in await turn.tx.fetch(sql.closed_messages, ids=ids) if ids else ():
        messages.setdefault(id, []).append((name, key))
        receivers[name, key] = receiver
    back = []
    for request, row in asked:
        key = details[row.id].correlation_key if row.status == "failed" else None
        taken = [message for message in messages.get(row.id, ()) if receivers[message] is not None]
        if row.status != "failed":
            request.answer = Conflict(
                f"{request.target!r} is {row.status}, and only what has failed can be retried.", status=row.status
            )
        elif holders.get(key, row.id) != row.id:
            request.answer = Duplicate(
                f"The correlation key {key!r} is held by instance {holders[key]} by now. "
                "Wait until that one has ended, then retry again.",
                holder=holders[key],
            )
        elif taken:
            [name, for_key], receiver = taken[0], receivers[taken[0]]
            request.answer = Conflict(
                f"{request.target!r} waited for message {name!r} with key {for_key!r}, and instance {receiver} does "
                "by now; a message has one receiver. Wait until that one has its message or has ended, then retry "
                "again.",
                status=row.status,
            )
        else:
            holders |= {key: row.id} if key is not None else {}
            receivers |= {message: row.id for message in messages.get(row.id, ())}
            row.status = "runnable"
            found = details[row.id]
            turn.made.add((found.queue, found.definition, found.version))
            request.answer = row.id
            turn.event(row.id, "retried", found.step)
            back.append(row.id)
    if back:
        await turn.tx.fetch(sql.retry_instances, ids=back)
        await turn.tx.fetch(sql.reopen_awakeables, ids=back)
        await turn.tx.fetch(sql.reopen_waits, ids=back)
        turn.runnable = True


def _not_found(target: str) -> NotFound:
    return NotFound(f"There is no instance {target!r}. Check the id or key; finished ones go after retention.")
