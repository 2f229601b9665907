"""Cancel instances, each with its whole tree of descendants, in one commit.

An instance that has something to undo (`on_cancel`) does not end here. It loses its waits, its awakeables and its claim
like any other, and continues with its undo, whose outcome ends it (finish.py). A forced cancel ends it, and all of its
descendants, at once.

A descendant that was started between the plan and the lock is found by reading the tree again under lock; the cancel
then runs once more, with the larger tree.

A cancel that is an effect (`CancelChild`) is applied before the second fence, so its sender may still be dropped by a
cancel in the same turn. That is safe: a function cancels its own children only, and the cancel of the function cancels
them anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import finish
from hark.kernel.effects import request_for
from hark.kernel.requests import Cancel, Commit
from hark.model.decisions import CancelChild
from hark.model.errors import Conflict, no_instance
from hark.store import statements as sql
from hark.store.protocol import Conflicted

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_Rows = dict[str, sql.Details]


@request_for(CancelChild)
def _request(effect: CancelChild, sender: Commit) -> Cancel:
    return Cancel(target=effect.id, reason=effect.reason, sender=sender)


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Cancel):
        turn.locks.add_target(request.target)


async def plan_tree(turn: Turn) -> None:
    """Lock the descendants of each target, and the parents, which count the end of a child."""
    addresses = (turn.locks.address(request.target) for request in turn.batch.of(Cancel))
    roots = sorted({id for id in addresses if id is not None})
    if not roots:
        return
    parents = (row.parent_id for row in await turn.tx.fetch(sql.details, ids=roots))
    turn.locks.ids.update(parent for parent in parents if parent is not None)
    for id, parent, _ in await turn.tx.fetch(sql.descendants, ids=roots):
        turn.locks.ids.update((id, parent))  # a failed parent in between counts its children too


async def apply(turn: Turn) -> None:
    asked = _live_targets(turn)
    if not asked:
        return
    rows = {row.id: row for row in await turn.tx.fetch(sql.details, ids=sorted({id for _, id in asked}))}
    asked = _own_children(asked, rows)
    wanted = _choose(asked, rows)
    if not wanted:
        return
    tree = await turn.tx.fetch(sql.descendants, ids=sorted(wanted))
    if any(id not in turn.rows for id, _, _ in tree):
        if any(request.sender is not None for request in wanted.values()):
            # An outcome and its effects commit together, so this cancel cannot be left to a later turn: repeat the
            # whole turn.
            raise Conflicted("an instance to cancel has just started a child")
        turn.result.again.extend(request for request, _ in asked if request.sender is None)
        return
    force = any(request.force for request in wanted.values())
    reasons = {id: request.reason or rows[id].cancel_reason or "cancelled" for id, request in wanted.items()}
    # The descendants of an instance whose undo runs already are cancelled only by force.
    below = {id for id, _, undoing in tree if force or not undoing} - wanted.keys()
    if below:
        rows |= {row.id: row for row in await turn.tx.fetch(sql.details, ids=sorted(below))}
    reasons |= dict.fromkeys(below, "its parent was cancelled")
    undone = set() if force else {id for id in reasons if rows[id].on_cancel is not None}
    if ended := sorted(reasons.keys() - undone):
        ends: dict[str, finish.EndReason] = {id: ("cancelled", reasons[id]) for id in ended}
        await finish.end(turn, [rows[id] for id in ended], ends)
    if undone:
        await _begin_undo(turn, [(rows[id], reasons[id]) for id in sorted(undone)])
    turn.result.cancelled |= reasons.keys()


def _live_targets(turn: Turn) -> list[tuple[Cancel, str]]:
    """The cancels whose targets have not ended, with the ids of the targets. The others get their result here."""
    asked: list[tuple[Cancel, str]] = []
    for request in turn.batch.of(Cancel):
        if request.sender is not None and request.sender.fenced:
            continue
        row = turn.locks.find(request.target)
        if row is None:
            request.result = no_instance(request.target)
        elif row.terminal:
            request.result = _ended(request.target, row.status)
        else:
            asked.append((request, row.id))
    forced = [request for request, _ in asked if request.force]
    if forced and len(forced) < len(asked):  # a tree is cancelled in one way: the forced ones follow in the next turn
        turn.result.again.extend(forced)
        return [(request, id) for request, id in asked if not request.force]
    return asked


def _own_children(asked: list[tuple[Cancel, str]], rows: _Rows) -> list[tuple[Cancel, str]]:
    """Leave out the effects whose target is not a child of the sender: the child could not start, because another
    instance has its id."""
    own: list[tuple[Cancel, str]] = []
    for request, id in asked:
        if request.sender is None or rows[id].parent_id == request.sender.claim.id:
            own.append((request, id))
        else:
            request.result = no_instance(request.target)
    return own


def _choose(asked: list[tuple[Cancel, str]], rows: _Rows) -> dict[str, Cancel]:
    """The cancels to carry out, by id. A cancel of an instance whose undo runs changes nothing, unless it is forced."""
    wanted: dict[str, Cancel] = {}
    for request, id in asked:
        if id in wanted and (request.force or rows[id].on_cancel is None):
            request.result = _ended(request.target, "cancelled")
            continue
        request.result = id
        if id not in wanted and (request.force or rows[id].cancel_reason is None):
            wanted[id] = request
    return wanted


async def _begin_undo(turn: Turn, undone: list[tuple[sql.Details, str]]) -> None:
    ids = [row.id for row, _ in undone]
    for row, reason in undone:
        if row.status in ("executing", "runnable"):
            turn.buckets.remove(row.concurrency_key, row.blocked_on)
        turn.rows[row.id].status, turn.rows[row.id].waits = "runnable", []
        turn.result.pending.lanes.add((row.queue, row.lane))
        turn.history.event(row.id, "cancelling", row.step, error=reason)
    await turn.tx.fetch(sql.begin_undo, [(row.id, row.on_cancel, reason) for row, reason in undone])
    await turn.tx.fetch(sql.drop_waits, ids=ids)
    turn.history.withdrawn(await turn.tx.fetch(sql.cancel_awakeables, ids=ids))
    await turn.tx.fetch(sql.consume_directed, ids=ids)
    turn.result.pending.made_claimable = True


def _ended(target: str, status: str) -> Conflict:
    return Conflict(f"{target!r} is {status} already: there is nothing to cancel.", status=status)
