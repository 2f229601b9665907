"""Fire what is due: delays that are over, and deadlines of parked instances (invariant 10).

The sweep runs after the deliveries of the same turn, so a signal wins over its deadline. Only parked instances time
out: an executing one was woken by something else already. Those of a held instance pass too, and do not wake it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel.inbox import load_waits
from hark.kernel.rows import LockedRow
from hark.kernel.wait_kinds import WAIT_KINDS
from hark.model.activation import WaitRow
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_BATCH = 2000  # rows of one sweep, so that no turn grows without bound; the next turn continues


async def sweep(turn: Turn) -> None:
    pending = turn.result.pending
    found = await turn.tx.fetch(sql.due, size=_BATCH)
    if not found:
        return
    pending.more = pending.more or len(found) == _BATCH
    ready: list[str] = []
    parked: dict[str, LockedRow] = {}
    for id, status, epoch, has_inbox_rows, queue, lane in found:
        if status == "runnable":
            ready.append(id)
            pending.lanes.add((queue, lane))
        elif id not in turn.inbox.woken:  # woken in this turn, it has its answer: a signal wins over its deadline
            parked[id] = LockedRow(id, status, epoch, bool(has_inbox_rows))
    if ready:
        await turn.tx.fetch(sql.make_ready, ids=ready)
        pending.made_claimable = True
    if parked:
        await load_waits(turn.tx, parked.values())
        turn.rows.update(parked)
        await fire_deadlines(turn, parked.values())
        held = [(row.id, next_deadline(row.waits)) for row in parked.values() if row.status == "held"]
        if held:
            await turn.tx.fetch(sql.set_due, held)
        for _, due in held:
            if due is not None:
                pending.due(due)


async def fire_deadlines(turn: Turn, rows: Iterable[LockedRow]) -> None:
    """Fire every wait of these instances whose deadline has passed, the earliest first."""
    fired: list[str] = []
    timed_out: list[tuple[str, str, None, None, None]] = []
    for row in rows:
        late: dict[tuple[str, str | None], list[WaitRow]] = {}  # those that one answer is enough for
        for wait in row.waits:
            if wait.deadline is None or wait.deadline > turn.now or wait.fired_at is not None:
                continue
            wait.fired_at = turn.now
            fired.append(wait.id)
            alone = None if WAIT_KINDS[wait.kind].shares_deadline else wait.id
            late.setdefault((wait.place, alone), []).append(wait)
        for waits in sorted(late.values(), key=_earliest):
            settled = WAIT_KINDS[waits[0].kind].on_deadline(turn, row, waits)
            if settled is not None:
                timed_out.append((settled.awakeable, settled.status, None, None, None))
    if timed_out:
        turn.result.counts.happened["timeout"] += len(timed_out)  # their events are of type "awakeable"
        await turn.tx.fetch(sql.settle, timed_out)
    if fired:
        await turn.tx.fetch(sql.fire_waits, ids=fired)
    await turn.inbox.flush()


def next_deadline(waits: Iterable[WaitRow]) -> int | None:
    """The earliest deadline of these waits that has not passed; None if there is none."""
    return min((wait.deadline for wait in waits if wait.deadline is not None and wait.fired_at is None), default=None)


def _earliest(waits: list[WaitRow]) -> int:
    return min(wait.deadline for wait in waits if wait.deadline is not None)
