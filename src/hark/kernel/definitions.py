"""Record the definitions of this process, and look up the definition of a start.

The catalog is the clerk's copy of the table `definitions`. It outlives turns and may be behind the store, since other
processes register definitions too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hark.kernel.requests import DefinitionRow, Register
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidDefinition
from hark.model.lanes import INTERPRETED, lane_of
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Registered(Struct, frozen=True, gc=False):
    """A registered definition, with the columns that a start needs."""

    kind: str
    queue: str
    initial: str
    on_cancel: str | None
    lane: str
    undeployed: bool = False


Catalog = dict[str, dict[int, Registered]]  # by name and version


async def record(turn: Turn) -> None:
    # In one statement, in order: two processes that record the same definitions would deadlock in several.
    rows = {(row.name, row.version): row for request in turn.batch.of(Register) for row in request.rows}
    if not rows:
        return
    written = {(name, version) for name, version in await turn.tx.fetch(sql.record_definitions, list(rows.values()))}
    for key, row in rows.items():
        if key in written:
            _add(turn.catalog, row.name, row.version, row.kind, row.queue, row.initial, row.on_cancel)
    for request in turn.batch.of(Register):
        request.result = next((_deployed(row) for row in request.rows if (row.name, row.version) not in written), None)


def _deployed(row: DefinitionRow) -> InvalidDefinition:
    return InvalidDefinition(
        f"{row.name!r} version {row.version} is a definition that was deployed to this store; a {row.kind} cannot have "
        "the same name and version. Give it another name= or version=.",
        problems=[],
    )


async def refresh(turn: Turn) -> None:
    """Read all definitions: another process may have registered one since."""
    for name, version, kind, queue, initial, on_cancel, undeployed_at in await turn.tx.fetch(sql.definitions):
        _add(turn.catalog, name, version, kind, queue, initial, on_cancel, undeployed=undeployed_at is not None)


def _add(
    catalog: Catalog,
    name: str,
    version: int,
    kind: str,
    queue: str,
    initial: str,
    on_cancel: str | None,
    *,
    undeployed: bool = False,
) -> None:
    lane = lane_of(kind, name, version)
    catalog.setdefault(name, {})[version] = Registered(kind, queue, initial, on_cancel, lane, undeployed)


def may_be_stale(catalog: Catalog, item: NewInstance) -> bool:
    """True when the definition of a start must be read again: the newest version is wanted, it is unknown, or it may
    have been undeployed."""
    if item.lane is not None:
        return False
    found = find(catalog, item) if item.version is not None else None
    return found is None or found[1].lane in INTERPRETED


def find(catalog: Catalog, item: NewInstance) -> tuple[int, Registered] | None:
    """The version and definition to start, or None when the catalog does not have it. An item with its own lane needs
    no definition."""
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
