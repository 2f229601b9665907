"""Give the expressions of a job their variables: `inputs`, `tasks.NAME.output|status|error`, and those of the place.

Only the tasks that an expression names are read. Texts are compiled once per process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from hark.model import json
from hark.programs.expressions import CompiledCondition, Template, compile_condition, compile_template, names
from hark.programs.expressions.budget import Meter
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_services import JobServices, TaskOutput
from hark.programs.jobs.task_ids import task_id

_STATUS = {"done": "completed", "failed": "failed", "cancelled": "cancelled"}

condition_of: Callable[[str], CompiledCondition] = lru_cache(4096)(compile_condition)
template_of: Callable[[str], Template] = lru_cache(4096)(compile_template)
Compiled: TypeAlias = CompiledCondition | Template
Ending: TypeAlias = tuple[str, str | None]  # the status and the error of a task


def _was_skipped(number: int) -> Ending | None:
    return None


class Scope(Struct):
    """The variables of the expressions of a job.

    Attributes:
        graph: The job's tasks.
        job: The id of the job.
        inputs: The inputs of the job.
        generations: The generations of its tasks, by number; 0 is left out.
        rows: Rows of tasks that are read already, by id.
        row_numbers: The numbers in the ids of the rows of its tasks, where they differ from their own.
        absent: How a task without a row ended: its status and its error; None: it was skipped.
    """

    graph: JobGraph
    job: str
    inputs: Any
    generations: Mapping[int, int]
    rows: dict[str, TaskOutput] = {}
    row_numbers: Mapping[int, int] = {}
    absent: Callable[[int], Ending | None] = _was_skipped

    async def read(self, services: JobServices, compiled: Iterable[Compiled]) -> None:
        """Read the rows of all tasks that these expressions name, in one read."""
        ids = {self._id(number) for one in compiled for number in self._numbers(one)}
        missing = sorted(ids - self.rows.keys())
        if missing:
            self.rows = {**self.rows, **await services.outputs(missing)}

    def variables(self, *compiled: Compiled, **more: Any) -> dict[str, Any]:
        """The variables for these expressions, whose tasks have been read; `more` are those of the place."""
        numbers = {number for one in compiled for number in self._numbers(one)}
        return {"inputs": self.inputs, "tasks": {self.graph.tasks[n].name: self._task(n) for n in numbers}, **more}

    def _numbers(self, compiled: Compiled) -> set[int]:
        return _named_by(compiled, self.graph)

    def _id(self, number: int) -> str:
        return task_id(self.job, self.row_numbers.get(number, number), self.generations.get(number, 0))

    def _task(self, number: int) -> dict[str, Any]:
        row = self.rows.get(self._id(number))
        if row is None:
            status, error = self.absent(number) or ("skipped", None)
            return {"output": None, "status": status, "error": error}
        output = None if row.result is None else json.load(row.result)
        return {"output": output, "status": _STATUS.get(row.status, "running"), "error": row.error}


def _named_by(compiled: Compiled, graph: JobGraph) -> set[int]:
    """The tasks that an expression names; all of them if it computes the name."""
    found: set[int] = set()
    for root, path in names(compiled):
        if root == "tasks":
            if not path:
                return set(range(len(graph.tasks)))
            number = graph.numbers.get(path[0])
            if number is not None:
                found.add(number)
    return found


def tasks_read_by(graph: JobGraph, number: int) -> frozenset[int]:
    """The tasks that a task may read when it runs or is undone: those that it needs and those that its texts name."""
    known = graph.read_by.get(number)
    if known is None:
        task = graph.tasks[number]
        texts = (
            task.run, task.input, task.over, task.event, task.seconds, task.title, task.definition, task.assignees,
            task.concurrency_key, task.rate_limit,
            task.undo if task.handler is None else None, task.description if task.type == "approval" else None,
        )  # fmt: skip
        question = task.question
        asked = () if question is None else (question.title, question.description)
        compiled: list[Compiled] = [*templates_in((texts, asked))]
        if task.match is not None:
            compiled.append(condition_of(task.match))
        if task.gate is not None and "{{" in task.gate:
            compiled.append(condition_of(task.gate))
        found = set(graph.needs[number]).union(*(_named_by(one, graph) for one in compiled))
        known = graph.read_by[number] = frozenset(found)
    return known


def templates_in(value: object) -> list[Template]:
    """The templates in the texts of a JSON value."""
    found: list[Template] = []
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            if "{{" in one:
                found.append(template_of(one))
        elif isinstance(one, Mapping):
            left.extend(one.values())
        elif isinstance(one, list | tuple):
            left.extend(one)
    return found


def render(value: Any, variables: Mapping[str, Any], meter: Meter | None = None) -> Any:
    """A JSON value with the templates in its texts replaced. `meter` counts the work."""
    if isinstance(value, str):
        return template_of(value).render(variables, meter) if "{{" in value else value
    if isinstance(value, Mapping):
        return {name: render(one, variables, meter) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [render(one, variables, meter) for one in value]
    return value
