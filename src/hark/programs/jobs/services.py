"""What the interpreter of jobs and the programs of tasks need from outside. The worker implements it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol

from hark.model.decisions import NewInstance
from hark.programs.jobs.graph import JobGraph
from hark.programs.services import FunctionServices


class TaskOutput(NamedTuple):
    """The row of a task: its status as stored, its state, its output and error. JSON as text."""

    id: str
    status: str
    state: str
    result: str | None
    error: str | None


class JobServices(FunctionServices, Protocol):
    """What the worker provides to the lane `job`, in addition to FunctionServices."""

    def graph(self, definition: str, version: int) -> Awaitable[JobGraph]:
        """The spec of a job, with its indexes: from the store on first use, then from memory."""
        ...

    def outputs(self, ids: Iterable[str]) -> Awaitable[dict[str, TaskOutput]]:
        """The rows of these tasks, in one read. A task that never started has none."""
        ...

    def inputs(self, job: str) -> Awaitable[str]:
        """The inputs of a job as JSON text, with the defaults of the spec."""
        ...

    def unknown_gates(self, names: Iterable[str]) -> Awaitable[list[str]]:
        """Those of these gates that neither this process nor a worker on this store has registered."""
        ...

    def note(self, request: Any) -> Awaitable[Any]:
        """Submit a note of an executing task (kernel/notes.py), and wait for its result after the commit."""
        ...


class TaskServices(JobServices, Protocol):
    """What the worker provides to the handler of a task, in addition to JobServices."""

    @property
    def linger(self) -> float:
        """Seconds that a handler may wait for a signal in its slot, before its task parks."""
        ...

    @property
    def max_signal_wait(self) -> float:
        """The longest timeout of `wait_for_signal`, in seconds."""
        ...

    @property
    def new(self) -> Callable[[Any, Any, dict[str, Any]], NewInstance]: ...
