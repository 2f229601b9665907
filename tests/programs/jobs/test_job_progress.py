"""The progress of a job, compared with a small model that computes everything from scratch."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_spec import JobSpec, RegressSpec, TaskSpec
from hark.programs.jobs.job_state import JobState, dump_job_state, load_job_state
from hark.programs.jobs.progress import JobProgress
from hark.programs.jobs.states import SHOWN
from tests.support.job_model import JobModel
from tests.support.job_specs import job_specs, regressing

_SHOWN = {"unreached": "skipped"}


class _Job:
    """A job whose activations keep nothing but its stored state."""

    def __init__(self, spec: JobSpec, holds: dict[str, bool]) -> None:
        self.graph = JobGraph(spec)
        self._holds = holds
        self._text = dump_job_state(JobState(Raw(b"{}"), "p" * len(spec.tasks)))
        self.started: set[tuple[str, int]] = set()
        self.looked_at = 0
        progress = self._load()
        progress.begin()
        self.last = self._advance(progress)

    def _load(self) -> JobProgress:
        return JobProgress(self.graph, load_job_state(self._text))

    def end(self, name: str, status: str) -> JobProgress:
        progress = self._load()
        number = self.graph.numbers[name]
        progress.ended(number, progress.generation(number), status)
        self.last = self._advance(progress)
        for cancelled, generation in progress.cancels:
            later = self._load()
            later.ended(cancelled, generation, "cancelled")
            self.last = self._advance(later)
        return progress

    def retry(self) -> None:
        progress = self._load()
        progress.retry()
        self.last = self._advance(progress)

    def _advance(self, progress: JobProgress) -> JobProgress:
        while ready := progress.ready():
            for number in ready:
                self.looked_at += 1
                task = self.graph.tasks[number]
                progress.start(number) if task.condition is None or self._holds[task.name] else progress.skip(number)
        for number in progress.starts:
            row = (self.graph.tasks[number].name, progress.generation(number))
            assert progress.take_row(number) == (row in self.started), "a row is started once, then retried"
            self.started.add(row)
        self._text = dump_job_state(progress.save())
        return progress

    def statuses(self) -> dict[str, str]:
        letters = load_job_state(self._text).tasks
        return {task.name: SHOWN[letter] for task, letter in zip(self.graph.tasks, letters, strict=True)}


def _expected(model: JobModel) -> dict[str, str]:
    return {name: _SHOWN.get(status, status) for name, status in model.status.items()}


@settings(max_examples=300, deadline=None)
@given(job_specs(), st.data())
def test_j1_after_each_end_the_tasks_are_as_in_the_model(spec: JobSpec, data: st.DataObject) -> None:
    holds = {task.name: data.draw(st.booleans()) for task in spec.tasks}
    model, job = JobModel(spec, holds), _Job(spec, holds)
    while running := model.running():
        assert job.statuses() == _expected(model)
        name, success = data.draw(st.sampled_from(running)), data.draw(st.booleans())
        model.end(name, success)
        progress = job.end(name, "done" if success else "failed")
        assert {t.name: progress.generation(n) for n, t in enumerate(spec.tasks)} == model.generation
    assert job.statuses() == _expected(model)
    assert job.last.finished
    assert job.last.failed == (model.job() == "failed")


@settings(max_examples=100, deadline=None)
@given(job_specs(), st.data())
def test_a_retried_job_runs_to_its_end_again(spec: JobSpec, data: st.DataObject) -> None:
    holds = {task.name: True for task in spec.tasks}
    model, job = JobModel(spec, holds), _Job(spec, holds)
    while running := model.running():
        model.end(running[0], success := data.draw(st.booleans()))
        job.end(running[0], "done" if success else "failed")
    if model.job() == "done":
        return
    job.retry()
    for _ in range(100):
        running = [name for name, status in job.statuses().items() if status == "running"]
        if not running:
            break
        job.end(data.draw(st.sampled_from(running)), "done")
    assert job.last.finished
    assert not job.last.failed, "every task that failed, or that a failure skipped, has run and completed"


def test_a_chain_looks_at_each_task_once() -> None:
    tasks = tuple(TaskSpec(f"t{n}", needs=(f"t{n - 1}",) if n else (), handler="any") for n in range(500))
    job = _Job(JobSpec("chain", tasks), {})
    for task in tasks:
        job.end(task.name, "done")
    assert job.looked_at == 500


def test_the_end_of_an_older_generation_changes_nothing() -> None:
    job = _Job(regressing(TaskSpec("other", needs=("build",), handler="any")), {})
    job.end("build", "done")
    progress = job.end("check", "failed")
    assert progress.cancels == [(2, 0)]
    assert job.statuses() == {"build": "running", "check": "pending", "other": "pending"}
    late = job._load()
    late.ended(2, 0, "cancelled")
    late.ended(0, 0, "failed")
    assert not late.ready()
    assert late.save().tasks == "rpp"


def test_a_task_that_completes_while_the_job_fails_fast_is_undone() -> None:
    tasks = (
        TaskSpec("bad", handler="any"),
        TaskSpec("pay", handler="any", undo="refund"),
        TaskSpec("slow", handler="any", on_fail=RegressSpec("slow", 3)),
    )
    spec = JobSpec("fast", tasks, fail_fast=True)
    progress = _Job(spec, {})._load()
    progress.ended(0, 0, "failed")
    assert not progress.finished, "what is cancelled has not ended yet"
    progress.ended(1, 0, "done")
    progress.ended(2, 0, "failed")
    assert progress.finished
    assert progress.save().tasks == "fcf"
    assert progress.state.undo == [(1, 0)]


def test_a_task_that_completes_while_the_job_regresses_is_undone() -> None:
    job = _Job(regressing(TaskSpec("pay", needs=("build",), handler="any", undo="refund")), {})
    job.end("build", "done")
    progress = job._load()
    progress.ended(1, 0, "failed")
    progress.ended(2, 0, "done")
    assert progress.state.undo == [(2, 0)]
    assert progress.save().tasks == "ppp"
