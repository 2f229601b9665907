"""Record the definitions of this process, and look up the definition of a start.

The catalog is the clerk's copy of the table `definitions`. It outlives turns and may be behind the store, since other
processes register definitions too. A start by name chooses the newest version that a live worker has and that is not
retired; without a live worker, the newest that is not retired (V9).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hark.kernel.families import Families
from hark.kernel.requests import CodeChange, DefinitionRow, Register, Retire
from hark.model.activation import Claim
from hark.model.decisions import Move, NewInstance
from hark.model.errors import HarkError, InvalidDefinition, NotFound
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
    retired: bool = False


class Catalog(dict[str, dict[int, Registered]]):
    """The registered definitions, by name and version, and what else a process keeps from turn to turn."""

    lanes_here: Collection[str] = ()  # of the worker of this process, whose row in the store may be older
    live_lanes: frozenset[str] = frozenset()  # of all live workers; known while a name has several versions

    def __init__(self) -> None:
        super().__init__()
        self.families = Families()

    def newest(self, name: str, kind: str | None = None) -> int | None:
        """The version that a start by name chooses, of this kind if one is given; None if all are retired."""
        versions = self.get(name, {})
        if len(versions) == 1:  # as of most names
            [(version, one)] = versions.items()
            return version if not one.retired and kind in (None, one.kind) else None
        startable = {
            version: definition
            for version, definition in versions.items()
            if not definition.retired and kind in (None, definition.kind)
        }
        live = [version for version, definition in startable.items() if self._is_live(definition.lane)]
        return max(live or startable, default=None)

    def _is_live(self, lane: str) -> bool:
        return lane in INTERPRETED or lane in self.live_lanes or lane in self.lanes_here


async def record(turn: Turn) -> None:
    # In one statement, in order: two processes that record the same definitions would deadlock in several.
    rows = {(row.name, row.version): row for request in turn.batch.of(Register) for row in request.rows}
    if not rows:
        return
    written = {
        (name, version): earlier if since == turn.now else None
        for name, version, earlier, since in await turn.tx.fetch(sql.record_definitions, list(rows.values()))
    }
    for key, row in rows.items():
        if key in written:
            known = turn.catalog.get(row.name, {}).get(row.version)
            retired = known is not None and known.retired
            _add(turn.catalog, row.name, row.version, row.kind, row.queue, row.initial, row.on_cancel, retired=retired)
    for request in turn.batch.of(Register):
        refused = next((_deployed(row) for row in request.rows if (row.name, row.version) not in written), None)
        request.result = refused or [
            CodeChange(row.name, row.version, row.fingerprint or "", earlier)
            for row in request.rows
            if (earlier := written[row.name, row.version]) is not None
        ]


def _deployed(row: DefinitionRow) -> InvalidDefinition:
    return InvalidDefinition(
        f"{row.name!r} version {row.version} is a definition that was deployed to this store; a {row.kind} cannot have "
        "the same name and version. Give it another name= or version=.",
        problems=[],
    )


async def refresh(turn: Turn) -> None:
    """Read all definitions: another process may have registered one since."""
    catalog = turn.catalog
    for name, version, kind, queue, initial, on_cancel, undeployed_at, retired_at in await turn.tx.fetch(
        sql.definitions
    ):
        undeployed, retired = undeployed_at is not None, retired_at is not None
        _add(catalog, name, version, kind, queue, initial, on_cancel, undeployed=undeployed, retired=retired)
    if any(len(versions) > 1 for versions in catalog.values()):
        rows = await turn.tx.fetch(sql.live_lanes)
        catalog.live_lanes = frozenset(lane for (lanes,) in rows for lane in lanes.split(","))


def plan(turn: Turn) -> None:
    for request in turn.batch.of(Retire):
        turn.locks.reserve(f"definition\0{request.name}")


async def set_retired(turn: Turn) -> None:
    for request in turn.batch.of(Retire):
        await refresh(turn)
        known = turn.catalog.get(request.name, {}).get(request.version)
        if known is None:
            request.result = NotFound(
                f"There is no version {request.version} of {request.name!r}. `hark definition list` shows the versions."
            )
            continue
        turn.catalog[request.name][request.version] = replace(known, retired=request.retired)
        if known.lane in INTERPRETED:
            chosen = turn.catalog.newest(request.name, known.kind)
            if chosen != request.chosen:
                turn.catalog[request.name][request.version] = known
                request.result = False
                continue
            turn.schedules.deployed[request.name] = (tuple(request.starts), chosen or request.version)
        await turn.tx.fetch(sql.set_retired, name=request.name, version=request.version, retired=request.retired)
        request.result = True


def continue_as(turn: Turn, claim: Claim, move: Move) -> tuple[int, str] | HarkError:
    """The version and the lane with which a function continues as new, or the error that refuses it."""
    versions = turn.catalog.get(claim.definition, {})
    version = turn.catalog.newest(claim.definition, claim.kind) if move.version == "newest" else move.version
    if version is None or version == claim.version:
        return claim.version, claim.lane
    if (known := versions.get(version)) is None or known.kind != claim.kind:
        return NotFound(
            f"{claim.definition!r} has no version {version} that is a {claim.kind}: it cannot continue as new with it."
        )
    return version, known.lane


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
    retired: bool = False,
) -> None:
    lane = lane_of(kind, name, version)
    catalog.setdefault(name, {})[version] = Registered(kind, queue, initial, on_cancel, lane, undeployed, retired)


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
    version = catalog.newest(item.definition) if item.version is None else item.version
    return None if version is None or version not in versions else (version, versions[version])
