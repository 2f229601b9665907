"""Cancel instances, each with its whole tree of descendants, in one commit.

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
    for id, parent in await turn.tx.fetch(sql.descendants, ids=roots):
        turn.locks.ids.update((id, parent))  # a failed parent in between counts its children too


async def apply(turn: Turn) -> None:
    wanted: dict[str, Cancel] = {}
    for request in turn.batch.of(Cancel):
        if request.sender is not None and request.sender.fenced:
            continue
        row = turn.locks.find(request.target)
        if row is None:
            request.result = no_instance(request.target)
        elif row.terminal or row.id in wanted:
            status = "cancelled" if row.id in wanted else row.status
            request.result = Conflict(
                f"{request.target!r} is {status} already: there is nothing to cancel.", status=status
            )
        else:
            wanted[row.id] = request
            request.result = row.id
    if not wanted:
        return
    below = [id for id, _ in await turn.tx.fetch(sql.descendants, ids=sorted(wanted))]
    if any(id not in turn.rows for id in below):
        if any(request.sender is not None for request in wanted.values()):
            # An outcome and its effects commit together, so this cancel cannot be left to a later turn: repeat the
            # whole turn.
            raise Conflicted("an instance to cancel has just started a child")
        turn.result.again.extend(wanted.values())
        return
    reasons = {id: request.reason or "cancelled" for id, request in wanted.items()}
    for id in below:
        if not turn.rows[id].terminal:
            reasons.setdefault(id, "its parent was cancelled")
    await finish.end(turn, {id: ("cancelled", reason) for id, reason in reasons.items()})
    turn.result.cancelled |= set(reasons)
