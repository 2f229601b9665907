"""JobGraph: the spec of a job with its indexes, built once per version and shared by all its instances."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache

from hark.programs.jobs.job_spec import JobSpec, TaskSpec, decode_job

APPROVAL_GATE = "user_approval"


class JobGraph:
    """The tasks of a job by number, and the tasks that each needs.

    Attributes:
        spec: The spec.
        tasks: Its tasks; the index of a task is its number.
        numbers: The number of each task, by name.
        needs: The numbers that each task needs, by number.
        dependents: The numbers that need each task directly, by number.
        normal: How many tasks are not `finally` tasks; those come after them.
        read_by: What `tasks_read_by` has found, by number.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.tasks: tuple[TaskSpec, ...] = spec.tasks
        self.numbers = {task.name: number for number, task in enumerate(spec.tasks)}
        self.needs = [tuple(self.numbers[name] for name in task.needs) for task in spec.tasks]
        self.dependents: list[list[int]] = [[] for _ in spec.tasks]
        for number, needs in enumerate(self.needs):
            for need in dict.fromkeys(needs):
                self.dependents[need].append(number)
        self.normal = sum(not task.is_finally for task in spec.tasks)
        self._downstream: dict[int, frozenset[int]] = {}
        self.read_by: dict[int, frozenset[int]] = {}  # see job_variables.py

    @property
    def finals(self) -> range:
        """The numbers of the `finally` tasks."""
        return range(self.normal, len(self.tasks))

    def downstream(self, number: int) -> frozenset[int]:
        """The task and all that need it, directly or not."""
        known = self._downstream.get(number)
        if known is None:
            known = self._downstream[number] = frozenset(self.reached([number]))
        return known

    def reached(self, numbers: Iterable[int]) -> set[int]:
        """The tasks and all that need one of them, directly or not."""
        found = set(numbers)
        left = list(found)
        while left:
            for dependent in self.dependents[left.pop()]:
                if dependent not in found:
                    found.add(dependent)
                    left.append(dependent)
        return found

    @cached_property
    def gates(self) -> tuple[str, ...]:
        """The names of its gates that have to be registered."""
        gates = (task.gate for task in self.tasks)
        return tuple(dict.fromkeys(gate for gate in gates if gate is not None and is_registered_gate(gate)))


def is_registered_gate(gate: str) -> bool:
    """Return True if this is the name of a gate that an app registers, and not an expression or `user_approval`."""
    return gate != APPROVAL_GATE and "{{" not in gate


@lru_cache(256)
def job_graph(source: str) -> JobGraph:
    """The job of a stored source, with its indexes. All instances of a version share it."""
    return JobGraph(decode_job(source))
