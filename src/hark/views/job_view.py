"""The state of a job as people see it: one entry per task, from the letters of the job and the rows of its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hark.model import json
from hark.model.errors import InvalidInput
from hark.programs.jobs.job_graph import JobGraph, job_graph
from hark.programs.jobs.job_inputs import checked_inputs
from hark.programs.jobs.job_state import START, JobState, load_job_state
from hark.programs.jobs.states import NOT_STARTED, PENDING, SHOWN, STARTED, WITH_ROW
from hark.programs.jobs.tasks.task_state import load_task_state
from hark.store import reads
from hark.store.protocol import Store
from hark.store.reads import InstanceRow, TaskRow

_OF_ROW = {
    "done": "completed", "failed": "failed", "cancelled": "cancelled", "runnable": SHOWN[PENDING],
    "awaiting_signal": "suspended", "held": "suspended",
}  # fmt: skip
"""The status that people see of a task that its job has started, by that of its row; any other is `running`."""


async def job_states(store: Store, rows: Sequence[InstanceRow]) -> dict[str, Any]:
    """The `state` of these jobs, by id: their `inputs`, and per task its status, attempt, output and error."""
    versions = sorted({(row.definition, row.version) for row in rows})
    sources = {(row.name, row.version): row.source for row in await store.read(reads.sources_of, versions)}
    jobs: dict[str, tuple[JobGraph, JobState]] = {}
    wanted: list[str] = []
    found: dict[str, Any] = {}
    for row in rows:
        source = sources.get((row.definition, row.version))
        if source is None:  # a child that could not start has no source
            found[row.id] = json.load(row.state)
            continue
        graph = job_graph(source)
        if row.step == START:
            found[row.id] = _not_begun(graph, json.load(row.state), row.status)
            continue
        state = load_job_state(row.state)
        if row.status == "cancelled":  # at once, without an activation that would have changed the letters
            state.tasks = state.tasks.replace(PENDING, NOT_STARTED)
        jobs[row.id] = (graph, state)
        wanted += [state.row_id(row.id, number) for number, letter in enumerate(state.tasks) if letter in WITH_ROW]
    tasks = {task.id: task for task in await store.read(reads.read_tasks, ids=wanted)} if wanted else {}
    return found | {id: _state(id, graph, state, tasks) for id, (graph, state) in jobs.items()}


def _not_begun(graph: JobGraph, given: Any, status: str) -> dict[str, Any]:
    try:
        inputs = checked_inputs(graph.spec, given)
    except InvalidInput:  # the job will fail, and say so
        inputs = given
    shown = SHOWN[NOT_STARTED if status == "cancelled" else PENDING]
    return {"inputs": inputs, "tasks": {task.name: _entry(shown) for task in graph.tasks}}


def _state(job: str, graph: JobGraph, state: JobState, rows: dict[str, TaskRow]) -> dict[str, Any]:
    tasks = {}
    for number, (task, letter) in enumerate(zip(graph.tasks, state.tasks, strict=True)):
        row = rows.get(state.row_id(job, number)) if letter in WITH_ROW else None
        if row is None:
            tasks[task.name] = _entry(SHOWN[letter], error=state.errors.get(number))
        else:
            tasks[task.name] = _entry(
                _status(letter, row.status),
                load_task_state(row.state).attempt,
                None if row.result is None else json.load(row.result),
                row.error,
            )
    return {"inputs": json.load(bytes(state.inputs).decode()), "tasks": tasks}


def _entry(status: str, attempt: int = 0, output: Any = None, error: str | None = None) -> dict[str, Any]:
    return {"status": status, "attempt": attempt, "output": output, "error": error}


def _status(letter: str, status: str) -> str:
    """The job has the last word about a task that has ended; while it runs, its row says more."""
    if letter != STARTED:
        return SHOWN[letter]
    return _OF_ROW.get(status, SHOWN[STARTED])
