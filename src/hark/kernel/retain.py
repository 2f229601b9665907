"""Delete what finished longer ago than the retention, a batch at a time (X7).

The ids were read outside the turns; here they are checked again under lock. An instance is kept while an ancestor is
live, and a failed one for longer than others. A `forever` key leaves a tombstone. Consumed signals of live instances
are deleted too; of a signal with a dedup key only the payload is deleted, so that a redelivery is still a duplicate.
Messages that were kept until their time was over are deleted, however long the retention is. Events of live instances
are kept, unless the option `event_retention` limits their age.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Retain, RetainEvents
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_EXPIRED = 60_000_000  # µs that a message whose time is over stays
_NEAR_MISSES = 5000  # the most that are kept, however young they are: enough to explain a wait, in a small table


async def apply(turn: Turn) -> None:
    for request in turn.batch.of(Retain):
        await _retain(turn, request)
    for events in turn.batch.of(RetainEvents):
        deleted = await turn.tx.fetch(sql.forget_old_events, before=events.before, size=events.size)
        events.result = None
        events.more = len(deleted) == events.size


async def _retain(turn: Turn, request: Retain) -> None:
    tx = turn.tx
    ids: list[str] = []
    if request.ids:
        failed = request.before if request.failed_before is None else request.failed_before
        found = await tx.fetch(sql.expired, before=request.before, failed_before=failed, ids=request.ids)
        expired = {id for (id,) in found}
        ids = [id for id in request.ids if id in expired]
    if ids:
        await tx.fetch(sql.insert_tombstones, ids=ids)
        for delete in (
            sql.forget_signals, sql.forget_waits, sql.forget_awakeables, sql.forget_journal, sql.forget_tags,
            sql.forget_events, sql.forget_streams, sql.forget_instances,
        ):  # fmt: skip
            await tx.fetch(delete, ids=ids)
    deleted = await tx.fetch(sql.forget_consumed, before=request.before, size=request.size)
    emptied = await tx.fetch(sql.empty_consumed, before=request.before, size=request.size)
    broadcasts = await tx.fetch(sql.forget_broadcasts, before=request.before, size=request.size)
    idle = await tx.fetch(sql.idle_buckets, before=request.before, size=request.size)
    if idle:
        await tx.fetch(sql.forget_buckets, idle)
    near_misses = await tx.fetch(sql.forget_misses, before=request.before, size=request.size, most=_NEAR_MISSES)
    unreceived = await tx.fetch(sql.forget_expired_messages, grace=_EXPIRED, size=request.size)
    received = await tx.fetch(sql.forget_received_messages, before=request.before, size=request.size)
    request.result = ids
    batches = (deleted, emptied, broadcasts, near_misses, unreceived, received)
    request.more = request.size in [len(batch) for batch in batches]
