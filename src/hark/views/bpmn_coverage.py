"""Path coverage: counts the sequence flows of a process that its instances took, from the events `moved` in the feed.

`Harness.coverage` and `pytest --hark-coverage` show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hark.model.errors import NotFound
from hark.model.lanes import BPMN
from hark.programs.bpmn.bpmn_spec import BpmnSpec, decode_bpmn
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.views import instance_views

_PAGE = 5000


@dataclass(frozen=True, slots=True)
class CoveredFlow:
    """A sequence flow of a process, and how often it was taken.

    Attributes:
        id: Its id.
        text: Its source and its target, by name or else by id, and its own name if it has one.
        count: How often it was taken.
    """

    id: str
    text: str
    count: int


@dataclass(frozen=True, slots=True)
class PathCoverage:
    """The sequence flows of a process, and how often each was taken. `str()` lists those that were not.

    Attributes:
        process: The id of the process.
        version: Its version.
        flows: Its sequence flows, in the order of the file, each with `.id`, `.text` and `.count`.
    """

    process: str
    version: int
    flows: tuple[CoveredFlow, ...]

    @property
    def taken(self) -> list[str]:
        """The ids of the flows that were taken, in the order of the file."""
        return [flow.id for flow in self.flows if flow.count]

    @property
    def missed(self) -> list[str]:
        """The ids of the flows that were not taken, in the order of the file."""
        return [flow.id for flow in self.flows if not flow.count]

    @property
    def ratio(self) -> float:
        """The part of the flows that were taken, from 0 to 1; 1 for a process without flows."""
        return len(self.taken) / len(self.flows) if self.flows else 1.0

    def __str__(self) -> str:
        taken, all = len(self.taken), len(self.flows)
        percent = 100 * taken // all if all else 100  # rounded down: 100 % means all of them
        head = f"{self.process} version {self.version}: {taken} of {all} sequence flows taken ({percent} %)"
        return "\n".join([head, *(f"  missed {flow.id}: {flow.text}" for flow in self.flows if not flow.count)])


def covered(process: BpmnSpec, version: int, counts: Mapping[str, int]) -> PathCoverage:
    """The coverage of a process by these counts of its flows."""
    names = [node.name or node.id for node in process.nodes]
    flows = []
    for flow in process.flows:
        text = f"{names[flow.source]} → {names[flow.target]}"
        text = text if flow.name is None else f"{text} ({flow.name})"
        flows.append(CoveredFlow(flow.id, " ".join(text.split()), counts.get(flow.id, 0)))
    return PathCoverage(process.id, version, tuple(flows))


def added(coverages: Iterable[PathCoverage]) -> list[PathCoverage]:
    """The sums of the coverages of each process, by its id. A text that has other flows is counted by itself."""
    sums: dict[tuple[Any, ...], PathCoverage] = {}
    for one in coverages:
        key = (one.process, *((flow.id, flow.text) for flow in one.flows))
        other = sums.get(key)
        if other is not None:
            pairs = zip(one.flows, other.flows, strict=True)
            flows = tuple(CoveredFlow(flow.id, flow.text, flow.count + more.count) for flow, more in pairs)
            one = PathCoverage(one.process, max(one.version, other.version), flows)
        sums[key] = one
    return sorted(sums.values(), key=lambda one: (one.process, one.version))


class MovedFeed:
    """Counts the flows that instances take, from all events that were not read before."""

    def __init__(self) -> None:
        self._cursor = (0, 0)
        self._versions: dict[str, tuple[str, int]] = {}  # by instance
        self._counts: dict[tuple[str, int], Counter[str]] = {}  # by process and version

    async def read(self, store: Store) -> None:
        """Count what happened since the last time."""
        while True:
            events = await instance_views.events_after(store, self._cursor, _PAGE)
            for event in events:
                self._cursor = event.cursor
                if event.type == "started":
                    self._versions[event.instance_id] = event.data["definition"], event.data["version"]
                elif event.type == "migrated" and event.instance_id in self._versions:
                    self._versions[event.instance_id] = self._versions[event.instance_id][0], event.data["version"]
                elif event.type == "moved" and event.instance_id in self._versions:
                    version = self._versions[event.instance_id]
                    self._counts.setdefault(version, Counter()).update(event.data["flows"])
            if events.next is None:
                return

    async def coverage(self, store: Store, process: str, version: int | None) -> PathCoverage:
        """The coverage of a version of a process; by default of the newest."""
        await self.read(store)
        versions = [number for name, number in await _versions(store) if name == process]
        if not versions or version not in (None, *versions):
            which = "" if version is None else f" version {version}"
            raise NotFound(f"There is no process {process!r}{which} in this store. Deploy it first.")
        return await self._covered(store, process, max(versions) if version is None else version)

    async def all(self, store: Store) -> list[PathCoverage]:
        """The coverage of the newest version of every process, and of older versions that have had instances."""
        await self.read(store)
        newest = dict(sorted(await _versions(store)))
        return [await self._covered(store, *one) for one in sorted({*newest.items(), *self._counts})]

    async def _covered(self, store: Store, process: str, version: int) -> PathCoverage:
        [row] = await store.read(reads.sources_of, [(process, version)])
        assert row.source is not None
        return covered(decode_bpmn(row.source).process, version, self._counts.get((process, version), {}))


async def _versions(store: Store) -> list[tuple[str, int]]:
    """The processes in the store, each with all its versions."""
    rows = await store.read(sql.definitions)
    return [(name, version) for name, version, kind, *_ in rows if kind == BPMN]
