"""Find the gates, handlers and agents that a job needs from a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from hark.programs.jobs.job_graph import is_registered_gate
from hark.programs.jobs.job_spec import JobSpec, TaskSpec


class JobNeed(NamedTuple):
    """Something that a worker has to have for a task."""

    task: str
    what: Literal["gate", "handler", "agent"]
    name: str

    @property
    def listed(self) -> str:
        """The name of it among the `handlers` of a worker (model/values.py:WorkerInfo)."""
        return self.name if self.what == "handler" else f"{self.what}:{self.name}"

    def __str__(self) -> str:
        return f"the {self.what} {self.name!r}"


def needs_of(spec: JobSpec) -> list[JobNeed]:
    """The needs of the tasks of a job, in their order."""
    return [need for task in spec.tasks for need in _needs(task)]


def _needs(task: TaskSpec) -> Iterator[JobNeed]:
    if task.gate is not None and is_registered_gate(task.gate):
        yield JobNeed(task.name, "gate", task.gate)
    if task.agent is not None:
        yield JobNeed(task.name, "agent", task.agent.type)
    if task.handler is not None:
        yield JobNeed(task.name, "handler", task.handler)
        if task.undo is not None:
            yield JobNeed(task.name, "handler", task.undo)
