"""Diagrams of processes: of a definition, and of an instance with its tokens, waits, incidents and history on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module

from hark.model import json
from hark.model.errors import NotFound
from hark.model.process import decode_process
from hark.model.process_marks import Marks
from hark.model.values import Instance, Wait
from hark.runtime import listing
from hark.store import reads
from hark.store.protocol import Store

_PAGE = 5000  # events in one read
_MOST_EVENTS = 50_000  # the latest ones, of one instance


async def draw_definition(store: Store, name: str, version: int) -> Callable[[], str]:
    """What draws a version of a process as SVG.

    Raises:
        NotFound: The store does not have it.
    """
    return partial(import_module("hark.dialects.bpmn.drawing").draw, await _xml(store, name, version), name)


async def draw_instance(store: Store, instance: Instance) -> Callable[[], str]:
    """What draws a process instance as SVG: its diagram, and where it is and was."""
    xml = await _xml(store, instance.definition, instance.version)
    return partial(
        import_module("hark.dialects.bpmn.drawing").draw, xml, instance.definition, await _marks(store, instance)
    )


async def _xml(store: Store, name: str, version: int) -> str:
    sources = await store.read(reads.sources_of, [(name, version)])
    if not sources or sources[0].source is None:
        raise NotFound(f"There is no deployed process {name!r} of version {version}. `GET /definitions` lists names.")
    return decode_process(sources[0].source).xml


async def _marks(store: Store, instance: Instance) -> Marks:
    visited, taken = await _history(store, instance.id)
    return Marks(
        tokens=Counter(instance.state["tokens"]),
        waits=elements_of(instance.waits),
        incidents={incident["element"]: incident["error"] for incident in instance.state["incidents"]},
        visited=visited,
        taken=taken,
    )


def elements_of(waits: Iterable[Wait]) -> set[str]:
    """The elements that have these waits: the place of a wait is `element#token`."""
    return {wait.place.rpartition("#")[0] for wait in waits if "#" in wait.place}


async def _history(store: Store, id: str) -> tuple[Counter[str], Counter[str]]:
    """How often each element was entered, and each sequence flow taken, according to the events that are kept."""
    visited: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    seq, left = 2**63 - 1, _MOST_EVENTS
    while left > 0:
        rows = await store.read(reads.events_of, id=id, size=_PAGE, seq=seq, bytes=listing.MAX_BYTES)
        if not rows:
            break
        for row in rows:
            if row.type == "moved" and row.data is not None:
                moved = json.load(row.data)
                visited.update(moved["elements"])
                taken.update(moved["flows"])
        seq, left = rows[-1].seq, left - len(rows)
    return visited, taken
