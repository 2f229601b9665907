"""Schedules as the API shows them."""

from __future__ import annotations

from typing import cast

from hark.model import json
from hark.model.errors import NotFound
from hark.model.names import from_micros
from hark.model.page import Page
from hark.model.trigger import Overlap
from hark.model.values import Schedule
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store


def schedule(row: sql.TriggerRow) -> Schedule:
    return Schedule(
        name=row.name,
        definition=row.definition,
        cron=row.cron,
        every=None if row.every is None else row.every / 1_000_000,
        timezone=row.timezone,
        overlap=cast("Overlap", row.overlap),
        catch_up=row.catch_up,
        correlation_key=row.correlation_key,
        next_at=None if row.next_at is None or row.paused else from_micros(row.next_at),
        last_at=None if row.last_at is None else from_micros(row.last_at),
        last_id=row.last_id,
        paused=bool(row.paused),
        missed=row.missed,
        skipped=row.skipped,
        waiting=0 if row.waiting is None else len(json.load(row.waiting)),
        error=row.error,
        created_at=from_micros(row.created_at),
    )


async def page(store: Store, limit: int, after: str | None) -> Page[Schedule]:
    """Schedules by name, after the one with the name `after`."""
    rows = await store.read(reads.list_schedules, after=after or "", size=limit)
    return Page(map(schedule, rows), rows[-1].name if len(rows) == limit else None)


async def find(store: Store, name: str) -> Schedule:
    for row in await store.read(reads.read_schedules, ids=[f"schedule:{name}"]):
        return schedule(row)
    raise NotFound(f"There is no schedule {name!r}. `hark schedule list` shows those there are.")
