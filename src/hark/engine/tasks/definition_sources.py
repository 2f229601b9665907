"""DefinitionSources: reads the definitions and rows that interpreters and task programs need from the store."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply
from hark.engine.worker.registry import Registry
from hark.model import json
from hark.model.epochs import count_of
from hark.model.errors import NotFound
from hark.model.lanes import BPMN, gate_lane
from hark.store import reads
from hark.store.protocol import Store

if TYPE_CHECKING:
    from hark.programs.bpmn.interpreter.bpmn_graph import BpmnGraph
    from hark.programs.jobs.job_graph import JobGraph
    from hark.programs.jobs.job_services import TaskOutput

T = TypeVar("T")
_MAX_KEPT: Final = 64  # processes whose variables are kept for their tasks


class DefinitionSources:
    """The jobs and processes of one app. Sources are read once and kept: the source of a version never changes.

    The code of jobs and of processes is imported where it is used: an app without them never loads it.
    """

    def __init__(self, clerk: Clerk, registry: Registry) -> None:
        self._clerk = clerk
        self._registry = registry
        self.forget()

    def forget(self) -> None:
        """Forget everything: the app may be opened on another store, which has versions and instances of its own."""
        self._jobs: dict[tuple[str, int], JobGraph] = {}
        self._bpmn_graphs: dict[tuple[str, int], BpmnGraph] = {}
        self._variables: OrderedDict[str, _KeptVariables] = OrderedDict()

    async def job_graph(self, definition: str, version: int) -> JobGraph:
        """The job of one version of a definition; of a process, what the program of its tasks sees."""
        known = self._jobs.get((definition, version))
        if known is None:
            kind, source = await self._source(definition, version)
            if kind == BPMN:
                from hark.programs.bpmn.interpreter.bpmn_graph import bpmn_graph
                from hark.programs.bpmn.interpreter.service_tasks import task_graph

                known = task_graph(bpmn_graph(source).spec)
            else:
                from hark.programs.jobs.job_graph import job_graph

                known = job_graph(source)
            self._jobs[definition, version] = known
        return known

    async def bpmn_graph(self, definition: str, version: int) -> BpmnGraph:
        """The process of one version of a definition."""
        known = self._bpmn_graphs.get((definition, version))
        if known is None:
            from hark.programs.bpmn.interpreter.bpmn_graph import bpmn_graph

            _, source = await self._source(definition, version)
            known = self._bpmn_graphs[definition, version] = bpmn_graph(source)
        return known

    async def _source(self, definition: str, version: int) -> tuple[str, str]:
        """The kind and the source of a version of a deployed definition."""
        for row in await self._read(lambda store: store.read(reads.sources_of, [(definition, version)])):
            if row.source is not None:
                return row.kind, row.source
        raise NotFound(f"The source of {definition!r} version {version} is not in the store. Deploy it again.")

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        """The rows of these tasks and called processes: current, because they are read after the caller's last
        commit."""
        from hark.programs.jobs.job_services import TaskOutput

        wanted = list(ids)
        rows = await self._read(lambda store: store.read(reads.read_tasks, ids=wanted)) if wanted else ()
        return {row.id: TaskOutput(row.id, row.status, row.state, row.result, row.error) for row in rows}

    async def inputs(self, job: str) -> str:
        from hark.programs.jobs.job_inputs import checked_inputs
        from hark.programs.jobs.job_state import START, load_job_state

        found = await self._read(lambda store: store.read(reads.job_of, id=job))
        if not found:
            raise NotFound(f"The job {job!r} is not in the store any more.")
        definition, version, step, state = found[0]
        if step == START:
            graph = await self.job_graph(definition, version)
            return json.dump(checked_inputs(graph.spec, json.load(state)))
        return bytes(load_job_state(state).inputs).decode()

    async def unknown_gates(self, names: Iterable[str]) -> list[str]:
        unknown = [name for name in names if gate_lane(name) not in self._registry.lanes()]
        workers = await self._read(lambda store: store.read(reads.all_workers)) if unknown else ()
        elsewhere = {lane for row in workers for lane in row.definitions.split(",")}
        return [name for name in unknown if gate_lane(name) not in elsewhere]

    async def variables(self, process: str, count: int, since: int) -> Mapping[str, Any]:
        """The variables that a process has once its epoch has this count; it had not yet at `since`, µs. Its tasks
        share them. A read before `since` may be of an earlier instance with the same id."""
        kept = self._variables.get(process)
        if kept is None:
            kept = self._variables[process] = _KeptVariables(process)
            if len(self._variables) > _MAX_KEPT:
                with contextlib.suppress(KeyError):  # another thread was faster
                    self._variables.popitem(last=False)
        if kept.last.is_current(count, since):
            return kept.last.variables
        return await self._read(lambda store: kept.read(store, count, since, self._clerk.now))

    async def _read(self, read: Callable[[Store], Awaitable[T]]) -> T:
        reply: Reply[T] = Reply()
        self._clerk.read(read, reply)
        return await reply


class _ReadVariables(NamedTuple):
    """Variables, with the transitions of the process so far and the time when they were read."""

    variables: dict[str, Any]
    transitions: int
    at: int

    def is_current(self, count: int, since: int) -> bool:
        return self.transitions >= count and self.at >= since


class _KeptVariables:
    """The variables of one process, as they were last read.

    Attributes:
        last: What was read.
    """

    def __init__(self, process: str) -> None:
        self.last = _ReadVariables({}, -1, 0)
        self._process = process
        self._beginning = ""  # of the text of the state, up to the end of the variables; empty: not known
        self._lock = asyncio.Lock()

    async def read(self, store: Store, count: int, since: int, now: Callable[[], int]) -> Mapping[str, Any]:
        """The variables once the epoch has this count. On the clerk's loop. Of many that ask together, one reads."""
        async with self._lock:
            if not self.last.is_current(count, since):
                at = now()
                rows = await store.read(reads.process_state, id=self._process)
                if not rows:
                    raise NotFound(f"The process {self._process!r} is not in the store any more.")
                [(found, text)] = rows
                self.last = _ReadVariables(self._decoded(text), count_of(found), max(at, since))
            return self.last.variables

    def _decoded(self, text: str) -> dict[str, Any]:
        """The variables in a state: those that were read before, if they are equal. Each end of a task changes the
        state of its process, and few change the variables."""
        if self._beginning and text.startswith(self._beginning):
            return self.last.variables
        raw = _decode(text).variables
        beginning = _FIRST_KEY + bytes(raw).decode()
        self._beginning = beginning if text.startswith(beginning) else ""
        found: dict[str, Any] = json.load(bytes(raw))
        return found


class _StoredVariables(msgspec.Struct):
    """The part of the state of a process that is read (programs/bpmn/interpreter/instance_state.py)."""

    variables: msgspec.Raw = msgspec.Raw(b"{}")


_FIRST_KEY: Final = '{"variables":'
_decode = msgspec.json.Decoder(_StoredVariables).decode
