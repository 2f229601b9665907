"""Rows of events as the values that callers get."""

from __future__ import annotations

from collections.abc import Sequence

from hark.model import json
from hark.model.names import from_micros
from hark.model.values import Event
from hark.store.reads import EventRow
from hark.views import listing


def event(row: EventRow) -> Event:
    data = None if row.data is None else json.load(row.data)
    return Event(row.seq, row.instance_id, row.type, row.step, data, from_micros(row.at), (row.tx, row.seq))


def is_cut(rows: Sequence[EventRow]) -> bool:
    """Return True if the page ended because its events are large."""
    return sum(len(row.data.encode()) for row in rows if row.data is not None) >= listing.MAX_BYTES
