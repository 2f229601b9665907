"""Retain: forget what finished long ago, a batch at a time (X7).

Who is old enough was looked for beside the turns; here it is looked at once more, under lock. None goes while an
ancestor is live. A `forever` key leaves a tombstone. Consumed signals of long-lived
instances go too; of those with a dedup key only the payload goes, so a redelivery stays a duplicate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Retain
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_MISSES = 5000


async def apply(turn: Turn, request: Retain) -> None:
    tx = turn.tx
    ids: list[str] = []
    if request.ids:
        found = {row[0] for row in await tx.fetch(sql.expired, before=request.before, ids=request.ids)}
        ids = [id for id in request.ids if id in found]
    if ids:
        await tx.fetch(sql.insert_tombstones, ids=ids)
        for forget in (
            sql.forget_signals, sql.forget_waits, sql.forget_awakeables, sql.forget_journal, sql.forget_events,
            sql.forget_instances,
        ):  # fmt: skip
            await tx.fetch(forget, ids=ids)
    gone = await tx.fetch(sql.forget_consumed, before=request.before, size=request.size)
    emptied = await tx.fetch(sql.empty_consumed, before=request.before, size=request.size)
    await tx.fetch(sql.forget_broadcasts, before=request.before)
    idle = await tx.fetch(sql.idle_buckets, before=request.before, size=request.size)
    if idle:
        await tx.fetch(sql.forget_buckets, idle)
    missed = await tx.fetch(sql.forget_misses, before=request.before, size=request.size, most=_MISSES)
    request.answer = ids
    request.more = request.size in (len(gone), len(emptied), len(missed))
