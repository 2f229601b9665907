"""Explain where a process is: the elements of its tokens, its incidents, and service tasks that no worker can run."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hark.kernel.wait_kinds import UnfinishedChild
from hark.model.errors import no_instance
from hark.model.values import TERMINAL, Blocker, Waiting
from hark.programs.bpmn.bpmn_spec import decode_bpmn
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import WhyInstance
from hark.views.bpmn_view import bpmn_states
from hark.views.job_descendants import live_workers

_MAX_SHOWN = 20  # elements, incidents and tasks that are shown


@dataclass(frozen=True)
class BpmnPosition:
    """The position of a process.

    Attributes:
        names: The names of its elements, by id; those without a name are left out.
        tokens: The elements where its tokens rest.
        incidents: Its incidents, as `Instance.state` has them.
    """

    names: dict[str, str]
    tokens: list[str]
    incidents: list[dict[str, Any]]

    def label(self, element: str) -> str:
        """An element as people know it: its name and its id."""
        name = self.names.get(element)
        return repr(element) if name is None or name == element else f"{name!r} ({element})"

    def text(self) -> str:
        """The elements where its tokens are, as a sentence; empty if there are none."""
        counts = Counter(self.tokens)
        shown = [
            self.label(element) if count == 1 else f"{self.label(element)} ({count} times)"
            for element, count in list(counts.items())[:_MAX_SHOWN]
        ]
        if len(counts) > _MAX_SHOWN:
            shown.append(f"{len(counts) - _MAX_SHOWN} more elements")
        if not shown:
            return ""
        listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
        return f"{'A token rests' if len(self.tokens) == 1 else 'Tokens rest'} at {listed}."

    def located(self, waiting: Waiting) -> Waiting:
        """The explanation of a wait, with the element that it belongs to."""
        element = waiting.place.partition("#")[0]
        if not element:
            return waiting
        place = f"at {self.label(element)}"
        return replace(waiting, note=place if waiting.note is None else f"{place}: {waiting.note}")


async def read_position(store: Store, row: WhyInstance) -> BpmnPosition:
    """Read the position of a process from its row and its definition."""
    rows = await store.read(reads.read_instances, ids=[row.id])
    if not rows:
        raise no_instance(row.id)  # removed by retention since its id was read
    sources = await store.read(reads.sources_of, [(row.definition, row.version)])
    names = {}
    if sources and sources[0].source is not None:
        names = {node.id: node.name for node in decode_bpmn(sources[0].source).process.nodes if node.name}
    state = bpmn_states(rows)[row.id]
    return BpmnPosition(names, state["tokens"], state["incidents"])


def incident_blockers(row: WhyInstance, position: BpmnPosition) -> list[Blocker]:
    """The incidents of a process, and how to go on."""
    again = (
        "" if row.status in TERMINAL else f" Correct the cause, then run `hark instance retry {shlex.quote(row.id)}`."
    )
    return [
        Blocker(
            "incident",
            f"Incident at {position.label(incident['element'])}: {str(incident['error']).rstrip('.')}.{again}",
        )
        for incident in position.incidents[:_MAX_SHOWN]
    ]


async def handler_blockers(
    store: Store, position: BpmnPosition, children: Sequence[UnfinishedChild], here: Container[str]
) -> list[Blocker]:
    """The service tasks and called processes that could run and do not, because no worker has what they need."""
    runnable = [child for child in children if child.status == "runnable"]
    if not runnable or not store.durable:
        return []
    workers = await live_workers(store, here)
    missing = [(child, workers.missing(child.lane, child.queue)) for child in runnable]
    return [
        Blocker("no_worker", f"{position.label(child.step)}, {child.id}: {reason}")
        for child, reason in missing
        if reason is not None
    ]
