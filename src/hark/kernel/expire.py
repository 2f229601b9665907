"""Expire: what is due. Delays that are over become claimable, deadlines that have come wake (invariant 10).

Runs after the deliveries of the same turn, so a signal wins over its deadline. Only parked instances
time out: a step that is running was already woken by something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.kernel import settle
from hark.kernel.rows import Locked
from hark.model.activation import WaitRow
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_BATCH = 2000


async def apply(turn: Turn) -> None:
    found = await turn.tx.fetch(sql.due, size=_BATCH)
    if not found:
        return
    turn.more = turn.more or len(found) == _BATCH
    ready = {row[0]: row for row in found if row[1] == "runnable"}
    if ready:
        await turn.tx.fetch(sql.make_ready, ids=list(ready))
        turn.runnable = True
        turn.made.update(tuple(row[4:7]) for row in ready.values())
    # Who was woken in this turn has its answer: a signal wins over its deadline.
    parked = {
        row[0]: Locked(row[0], row[1], row[2], bool(row[3]))
        for row in found
        if row[1] != "runnable" and row[0] not in turn.woken
    }
    if parked:
        await _time_out(turn, parked)


async def _time_out(turn: Turn, parked: dict[str, Locked]) -> None:
    await turn.look(parked.values())
    turn.rows.update(parked)
    await fire(turn, parked.values())


async def fire(turn: Turn, rows: Iterable[Locked]) -> None:
    """Settle every wait of these whose deadline has come."""
    fired: list[str] = []
    timed_out: list[tuple[str, None, str, None, None, None]] = []
    for row in rows:
        places: set[str] = set()
        for wait in row.waits:
            if wait.deadline is None or wait.deadline > turn.now or wait.fired_at is not None:
                continue
            wait.fired_at = turn.now
            fired.append(wait.id)
            if wait.kind == "awakeable":
                assert wait.name is not None
                timed_out.append((wait.name, None, "TIMEOUT", None, None, None))
                settle.tell(turn, row, wait.name, "TIMEOUT")
            elif wait.place not in places:
                places.add(wait.place)
                _fire(turn, row, wait)
    if timed_out:
        await turn.tx.fetch(sql.settle, timed_out)
    if fired:
        await turn.tx.fetch(sql.fire_waits, ids=fired)
    await turn.flush()


def _fire(turn: Turn, row: Locked, wait: WaitRow) -> None:
    """One answer per place, however many names share the deadline."""
    turn.post(row, "timer", wait.place, "null", wait_id=wait.id)
    turn.event(row.id, "timeout", None)
