"""Run children again at the request of their parent: in their own rows, without what they waited for.

A child that waited for children of its own (a map) still does: their ends count as before.

This verb comes after the cancels of the same turn: a child that was cancelled in it stays cancelled, as if the cancel
had come directly after this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.children import ChildEnd
from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, RunChildAgain
from hark.kernel.runs import run_awakeables, run_signals
from hark.model.decisions import RetryChild
from hark.model.errors import no_instance
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


@request_for(RetryChild)
def _request(effect: RetryChild, sender: Commit) -> RunChildAgain:
    return RunChildAgain(child=effect, sender=sender)


def plan(turn: Turn) -> None:
    turn.locks.ids.update(request.child.id for request in turn.batch.of(RunChildAgain))


async def apply(turn: Turn) -> None:
    asked = {}
    for request in turn.batch.of(RunChildAgain):
        sender = turn.rows.get(request.sender.claim.id)
        if request.sender.fenced or sender is None or sender.status != "executing":
            continue  # fenced, or cancelled in this turn
        if request.child.id not in turn.result.cancelled:
            asked[request.child.id] = request
    if not asked:
        return
    found = {row.id: row for row in await turn.tx.fetch(sql.details, ids=sorted(asked))}
    again: list[RetryChild] = []
    for id, request in asked.items():
        child, parent = request.child, request.sender.claim.id
        row = found.get(id)
        if row is None or row.parent_id != parent:
            request.result = no_instance(id)
            if child.parent_wait is not None:
                turn.children.ended.append(ChildEnd(child.parent_wait, id, "refused", str(request.result)))
            continue
        if row.status in ("executing", "runnable"):
            turn.buckets.remove(row.concurrency_key, row.blocked_on)
        if row.status == "executing":
            turn.result.cancelled.add(id)  # its worker stops the attempt that runs
        turn.rows[id].status, turn.rows[id].waits = "runnable", []
        turn.result.pending.lanes.add((child.queue or row.queue, child.lane or row.lane))
        turn.history.event(id, "retried", child.step or row.step)
        request.result = id
        again.append(child)
    if again:
        ids = [child.id for child in again]
        await turn.tx.fetch(sql.drop_all_but_children, ids=ids)
        await turn.tx.fetch(sql.reopen_waits, ids=ids)
        turn.history.withdrawn(await turn.tx.fetch(sql.cancel_awakeables, ids=ids))
        await run_awakeables.ask_anew(turn, ids)
        await turn.tx.fetch(sql.consume_answers, ids=ids)
        for id in ids:
            run_signals.drop_waits(turn, turn.rows[id])
        rows = [
            (child.id, child.step, child.state, child.lane, child.queue, child.version, child.parent_wait)
            for child in again
        ]
        await turn.tx.fetch(sql.run_children_again, rows)
        turn.result.pending.made_claimable = True
