"""The report of a job: its tasks, what they wait for and how to answer it. A constant number of reads, and two more for
each level of instances below the tasks (job_descendants.py)."""

from __future__ import annotations

import shlex
from collections.abc import Container, Iterable, Sequence
from typing import Any

from hark.kernel.wait_kinds import WAIT_KINDS, WaitContext
from hark.model import json
from hark.model.activation import KINDS, WaitRow
from hark.model.errors import InvalidInput, NotFound, no_instance
from hark.model.job_report import JobReport, TaskReport, TaskWait
from hark.model.lanes import JOB
from hark.model.names import from_micros
from hark.model.schema import example_answer
from hark.model.values import TERMINAL, Instance
from hark.programs.jobs.job_graph import JobGraph, job_graph
from hark.programs.jobs.job_spec import JobSpec, TaskSpec
from hark.programs.jobs.job_state import START, load_job_state
from hark.programs.jobs.new_tasks import lane_of
from hark.programs.jobs.states import WITH_ROW
from hark.programs.jobs.tasks.task_outcomes import gate_place
from hark.programs.jobs.tasks.task_state import load_task_state
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store
from hark.store.reads import InstanceRow, OpenWait
from hark.store.statements import AwakeableRow
from hark.views import instance_views
from hark.views.job_descendants import Below, LiveWorkers, live_workers, read_below

_MOST_WAITS = 20  # shown of one task: a map may have thousands
_APPROVE = '{"action": "approve"}'


async def report(store: Store, target: str, here: Container[str]) -> JobReport:
    """The report of the job with this id or key. `here`: the lanes that a worker of this process can run.

    Raises:
        NotFound: There is no such instance.
        InvalidInput: It is not a job.
    """
    job = await instance_views.get(store, target)
    if job.kind != "job":
        raise InvalidInput(f"{target!r} is a {job.kind}, not a job. See `hark instance show {shlex.quote(target)}`.")
    rows = await store.read(reads.read_instances, ids=[job.id])
    sources = await store.read(reads.sources_of, [(job.definition, job.version)])
    if not rows:
        raise no_instance(target)  # removed by retention since it was read
    if not sources or sources[0].source is None:
        return JobReport(job, ())
    return JobReport(job, await _tasks(store, job, rows[0], job_graph(sources[0].source), here))


async def spec_of(store: Store, name: str, version: int | None = None) -> JobSpec:
    """The spec of a version of a deployed job; by default of the newest one.

    Raises:
        NotFound: There is no deployed job of this name and version.
    """
    if version is None:
        found = await store.read(sql.newest_definitions, names=[name])
        version = found[0][1] if found else 0
    sources = await store.read(reads.sources_of, [(name, version)])
    if not sources or sources[0].source is None or sources[0].kind != JOB:
        raise NotFound(f"There is no deployed job {name!r}. `hark job list` and `GET /definitions` list names.")
    return job_graph(sources[0].source).spec


async def _tasks(
    store: Store, job: Instance, row: InstanceRow, graph: JobGraph, here: Container[str]
) -> tuple[TaskReport, ...]:
    shown: dict[str, Any] = job.state["tasks"]
    if row.step == START:
        return tuple(
            TaskReport(task.name, task.type, shown[task.name]["status"], gate=task.gate) for task in graph.tasks
        )
    state = load_job_state(row.state)
    ids = {number: state.row_id(job.id, number) for number, letter in enumerate(state.tasks) if letter in WITH_ROW}
    found_rows = await store.read(reads.read_instances, ids=list(ids.values())) if ids else ()
    rows = {one.id: one for one in found_rows if one.kind == "task"}  # another instance may have such an id
    unfinished = [id for id, one in rows.items() if one.status not in TERMINAL]
    waits: dict[str, list[OpenWait]] = {}
    for wait in await store.read(reads.open_waits_of, ids=unfinished) if unfinished else ():
        if rows[wait.instance_id].status != "runnable" or wait.kind not in ("signal", "broadcast"):  # it may have come
            waits.setdefault(wait.instance_id, []).append(wait)
    workers = await live_workers(store, here) if unfinished else LiveWorkers((), here)
    below = await read_below(store, waits, workers)
    questions = await _questions(store, [*waits.values(), *(one.waits for one in below.values())])
    now = await store.time() if questions else 0
    ready = [id for id in unfinished if rows[id].status == "runnable"]
    read = await store.read(reads.delays_of, ids=ready) if ready else ()
    delays = {id: (due, since) for id, due, since in read if due is not None}
    found = []
    for number, task in enumerate(graph.tasks):
        entry, own = shown.get(task.name, {}), rows.get(ids.get(number, ""))
        if own is None:
            found.append(
                TaskReport(
                    task.name, task.type, entry.get("status", "pending"), gate=task.gate, error=entry.get("error")
                )
            )
            continue
        progress = load_task_state(own.state)
        under = below.get(own.id, Below())
        answers = [_wait(one, questions, now) for one in (*waits.get(own.id, ()), *under.waits)]
        if own.id in delays:  # a retry policy, a pause or a loop
            due, since = map(from_micros, delays[own.id])
            answers.append(TaskWait("timer", None, None, due, since, None))
        kept = tuple({(one.kind, one.name, one.wake): one for one in answers if one is not None}.values())
        found.append(
            TaskReport(
                task.name, task.type, entry.get("status", "running"), own.id, entry.get("attempt", 0), task.gate,
                progress.phase == "gate" and own.status not in TERMINAL, entry.get("output"),
                entry.get("error"), from_micros(own.created_at),
                None if own.finished_at is None else from_micros(own.finished_at),
                kept[:_MOST_WAITS], _note(job, task, own, progress.phase, workers, under), _only_waits(under),
                own.status == "held",
            )
        )  # fmt: skip
    return tuple(found)


async def _questions(store: Store, waits: Iterable[Sequence[OpenWait]]) -> dict[str, AwakeableRow]:
    """The open awakeables that these waits are for, by id."""
    ids = sorted({wait.name for some in waits for wait in some if wait.kind == "awakeable" and wait.name is not None})
    found = await store.read(reads.read_awakeables, ids=ids) if ids else ()
    return {one.id: one for one in found if one.status == "PENDING"}


def _note(
    job: Instance, task: TaskSpec, row: InstanceRow, phase: str, workers: LiveWorkers, below: Below
) -> str | None:
    """The reason why a task that could run does not, or something below it: no worker has what it needs."""
    if below.missing:
        one, reason = below.missing[0]
        return reason if one.id.startswith(f"{job.id}.") else f"{one.definition} {one.id}: {reason}"
    if row.status == "held":
        return f"It is held: {row.error} To try the same code again: {command_text('instance', 'retry', row.id)}"
    if row.status != "runnable":
        return None
    if phase == "gate" and task.gate is not None:
        lane, _ = gate_place(task.gate, row.queue)
    else:
        lane = lane_of(task) if task.type in ("task", "loop") else JOB
    return workers.missing(lane, row.queue)


def _only_waits(below: Below) -> bool:
    waits_outside = any(KINDS[wait.kind].from_outside for wait in below.waits)
    return not below.goes_on and (waits_outside or bool(below.missing))


def _wait(wait: OpenWait, questions: dict[str, AwakeableRow], now: int) -> TaskWait | None:
    question = questions.get(wait.name) if wait.kind == "awakeable" and wait.name is not None else None
    if wait.kind == "awakeable" and question is None:
        return None  # it is answered, and the task has not run since
    is_late = question is not None and wait.deadline is not None and wait.deadline <= now  # an answer would be refused
    return TaskWait(
        wait.kind, wait.name, None if question is None else question.title,
        None if wait.deadline is None else from_micros(wait.deadline), from_micros(wait.since),
        None if is_late else _wake(wait, question),
    )  # fmt: skip


def _wake(wait: OpenWait, question: AwakeableRow | None) -> str | None:
    schema = None if question is None else question.schema
    example = _APPROVE if schema is None else example_answer(json.load(schema))
    words = WAIT_KINDS[wait.kind].wake_command(armed_wait(wait), WaitContext(wait.instance_id, example=example))
    return None if words is None else command_text(*words)


def armed_wait(wait: OpenWait) -> WaitRow:
    each = wait.remaining == 0  # a wait that counts its children is answered when none is left
    return WaitRow(
        wait.id, wait.place, wait.kind, wait.name, wait.key, wait.deadline, wait.remaining, None, answers_each=each
    )


def command_text(*words: str) -> str:
    return " ".join(["hark", *map(shlex.quote, words)])
