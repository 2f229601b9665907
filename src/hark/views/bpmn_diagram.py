"""Draw the diagram of a process from its file, and the tokens, waits, incidents and history of an instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hark.model import json
from hark.model.errors import NotFound
from hark.model.values import Instance, Wait
from hark.programs.bpmn.bpmn_spec import decode_bpmn
from hark.programs.bpmn.diagram_marks import Marks
from hark.store import reads
from hark.store.protocol import Store
from hark.views import listing

_PAGE = 5000  # events in one read
_MOST_EVENTS = 50_000  # the latest ones, of one instance


async def xml_of(store: Store, name: str, version: int) -> str:
    """The BPMN file of a version of a process.

    Raises:
        NotFound: The store does not have it.
    """
    sources = await store.read(reads.sources_of, [(name, version)])
    if not sources or sources[0].source is None:
        raise NotFound(f"There is no deployed process {name!r} of version {version}. `GET /definitions` lists names.")
    return decode_bpmn(sources[0].source).xml


async def marks_of(store: Store, instance: Instance) -> Marks:
    """The marks of a process instance on its diagram: where it is and was."""
    visited, taken = await _history(store, instance.id)
    return Marks(
        tokens=Counter(instance.state["tokens"]),
        waits=_elements_of(instance.waits),
        incidents={incident["element"]: incident["error"] for incident in instance.state["incidents"]},
        visited=visited,
        taken=taken,
    )


def _elements_of(waits: Iterable[Wait]) -> set[str]:
    """The elements that have these waits: the place of a wait is `element#token`; of a further event of an element,
    there is a number between them."""
    return {wait.place.partition("#")[0] for wait in waits if "#" in wait.place}


async def _history(store: Store, id: str) -> tuple[Counter[str], Counter[str]]:
    """The number of times each element was entered, and each flow taken, according to the events that are kept."""
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
