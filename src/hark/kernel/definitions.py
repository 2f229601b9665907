"""Record the definitions of this process, and look up the definition of a start.

The catalog is the clerk's copy of the table `definitions`. It outlives turns and may be behind the store, since other
processes register definitions too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hark.kernel.requests import Register
from hark.model.decisions import NewInstance
from hark.model.lanes import lane_of
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Registered(Struct, frozen=True, gc=False):
    """What a start needs of a registered definition."""

    kind: str
    queue: str
    initial: str
    on_cancel: str | None
    lane: str


Catalog = dict[str, dict[int, Registered]]  # by name and version


async def record(turn: Turn) -> None:
    # In one statement, in order: two processes that record the same definitions would deadlock in several.
    rows = {(row.name, row.version): row for request in turn.batch.of(Register) for row in request.rows}
    if rows:
        await turn.tx.fetch(sql.record_definitions, list(rows.values()))
    for row in rows.values():
        _add(turn.catalog, row.name, row.version, row.kind, row.queue, row.initial, row.on_cancel)


async def refresh(turn: Turn) -> None:
    """Read all definitions: another process may have registered one since."""
    for name, version, kind, queue, initial, on_cancel in await turn.tx.fetch(sql.definitions):
        _add(turn.catalog, name, version, kind, queue, initial, on_cancel)


def _add(catalog: Catalog, name: str, version: int, kind: str, queue: str, initial: str, on_cancel: str | None) -> None:
    lane = lane_of(kind, name, version)
    catalog.setdefault(name, {})[version] = Registered(kind, queue, initial, on_cancel, lane)


def find(catalog: Catalog, item: NewInstance) -> tuple[int, Registered] | None:
    """The version and definition to start, or None when the catalog does not have it. An item with a lane of its own
    says everything itself."""
    if item.lane is not None:
        assert item.kind is not None
        assert item.version is not None
        queue = item.queue or "default"
        return item.version, Registered(item.kind, queue, item.step or "", item.on_cancel, item.lane)
    versions = catalog.get(item.definition)
    if not versions:
        return None
    version = max(versions) if item.version is None else item.version
    return (version, versions[version]) if version in versions else None
