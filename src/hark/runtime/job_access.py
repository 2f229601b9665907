"""JobAccess: what the interpreter of jobs and the programs of tasks read of the store.

A task may belong to a process (process_access.py): for its program, that is a job too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hark.model import json
from hark.model.errors import NotFound
from hark.model.lanes import BPMN, gate_lane
from hark.runtime.clerk import Clerk
from hark.runtime.process_access import ProcessAccess, read_source
from hark.runtime.registry import Registry
from hark.runtime.reply import Reply
from hark.store import reads
from hark.store.protocol import Store

if TYPE_CHECKING:
    from hark.programs.jobs.graph import JobGraph
    from hark.programs.jobs.services import TaskOutput


class JobAccess:
    """The jobs of one app. Sources are read once and kept: the source of a version never changes.

    The code of jobs is imported where it is used: a process without jobs never loads it.
    """

    def __init__(self, clerk: Clerk, registry: Registry, processes: ProcessAccess) -> None:
        self._clerk = clerk
        self._registry = registry
        self._processes = processes
        self._graphs: dict[tuple[str, int], JobGraph] = {}

    def forget_sources(self) -> None:
        """The app may be opened on another store, which has versions of its own."""
        self._graphs = {}
        self._processes.forget()

    async def graph(self, definition: str, version: int) -> JobGraph:
        """The job of one version of a definition; of a process, what the program of its tasks sees."""
        known = self._graphs.get((definition, version))
        if known is None:
            kind, source = await read_source(self._clerk, definition, version)
            if kind == BPMN:
                from hark.programs.processes.graph import process_graph
                from hark.programs.processes.tasks import task_graph

                known = task_graph(process_graph(source).spec)
            else:
                from hark.programs.jobs.graph import job_graph

                known = job_graph(source)
            self._graphs[definition, version] = known
        return known

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        """The rows of these tasks and called processes. They are current: this reads them after the commit that let the
        caller run."""
        from hark.programs.jobs.services import TaskOutput

        wanted = list(ids)
        if not wanted:
            return {}

        async def read(store: Store) -> dict[str, TaskOutput]:
            rows = await store.read(reads.read_tasks, ids=wanted)
            return {row.id: TaskOutput(row.id, row.status, row.state, row.result, row.error) for row in rows}

        reply: Reply[dict[str, TaskOutput]] = Reply()
        self._clerk.read(read, reply)
        return await reply

    async def inputs(self, job: str) -> str:
        """The inputs of a job as JSON text, with their defaults."""
        from hark.programs.jobs.inputs import checked_inputs
        from hark.programs.jobs.job_state import START, load_job_state

        async def read(store: Store) -> str:
            found = await store.read(reads.job_of, id=job)
            if not found:
                raise NotFound(f"The job {job!r} is not in the store any more.")
            definition, version, step, state = found[0]
            if step == START:
                graph = await self.graph(definition, version)
                return json.dump(checked_inputs(graph.spec, json.load(state)))
            return bytes(load_job_state(state).inputs).decode()

        reply: Reply[str] = Reply()
        self._clerk.read(read, reply)
        return await reply

    async def unknown_gates(self, names: Iterable[str]) -> list[str]:
        """Those of these gates that neither this process nor a worker on this store has registered."""
        unknown = [name for name in names if gate_lane(name) not in self._registry.lanes()]
        if not unknown:
            return []

        async def read(store: Store) -> set[str]:
            return {lane for row in await store.read(reads.all_workers) for lane in row.definitions.split(",")}

        reply: Reply[set[str]] = Reply()
        self._clerk.read(read, reply)
        elsewhere = await reply
        return [name for name in unknown if gate_lane(name) not in elsewhere]
