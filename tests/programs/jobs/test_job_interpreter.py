"""The interpreter of jobs without a store: what becomes of an activation that could not be carried out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec import Raw

from hark.model.activation import Claim, InboxRow, WaitRow
from hark.model.decisions import Finish, NewTask, Redo
from hark.model.errors import NotFound, StoreUnavailable
from hark.programs.interpreted import recover
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_interpreter import run_job
from hark.programs.jobs.job_migration import migrate_job
from hark.programs.jobs.job_services import TaskOutput
from hark.programs.jobs.job_spec import JobSpec, RegressSpec, TaskSpec
from hark.programs.jobs.job_state import JobState, dump_job_state, load_job_state
from hark.programs.jobs.task_ids import item_id, parse_task_id, task_id, undo_id
from tests.support.claims import a_claim
from tests.support.job_specs import regressing


def claim(**options: Any) -> Claim:
    return a_claim(**{"id": "j", "step": "run", **options})


def test_a_store_that_did_not_answer_a_read_repeats_the_activation() -> None:
    decision = recover(claim(), StoreUnavailable("down"), keeps_undo=True)
    assert isinstance(decision.move, Redo)
    assert decision.consume == (), "the ends of tasks are still in the inbox"


def test_any_other_error_fails_the_job_which_can_be_retried_from_there() -> None:
    decision = recover(claim(), NotFound("no source"), keeps_undo=True)
    assert isinstance(decision.move, Finish)
    assert (decision.move.status, decision.move.keeps_undo, decision.state) == ("failed", True, "{}")


@pytest.mark.parametrize("job", ["j", "a.b", "a.0", "a.1-2"])
def test_the_id_of_a_task_is_read_back(job: str) -> None:
    assert [parse_task_id(job, task_id(job, 7, generation)) for generation in (0, 3)] == [(7, 0), (7, 3)]
    task = task_id(job, 7)
    for other in (undo_id(task), item_id(task, 2), job, f"{job}.x", f"other.{job}.7"):
        assert parse_task_id(job, other) is None


class _Services:
    """What an activation reads, without a store."""

    def __init__(self, graph: JobGraph, *rows: TaskOutput) -> None:
        self._graph = graph
        self._rows = {row.id: row for row in rows}

    async def job_graph(self, definition: str, version: int) -> JobGraph:
        return self._graph

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        return {id: self._rows[id] for id in ids if id in self._rows}


def _running(spec: JobSpec, tasks: str, **options: Any) -> Claim:
    state = dump_job_state(JobState(Raw(b"{}"), tasks, **options.pop("state", {})))
    waits = [WaitRow("w", "", "children", None, None, None, 0, None, 0, True)]
    return claim(state=state, waits=waits, definition=spec.name, version=1, **options)


def _end(seq: int, task: str, status: str) -> InboxRow:
    return InboxRow(seq, "children", task, "w", f'{{"status": "{status}"}}', 0)


async def test_what_completed_while_a_regression_cancelled_it_is_undone_although_a_cancel_follows() -> None:
    """The cancel has removed the end of the older generation before the job could take it."""
    spec = regressing(TaskSpec("pay", needs=("build",), handler="any", undo="refund"))
    paid = TaskOutput("j.2", "done", '{"task": 2, "run": "j"}', "7", None)
    services: Any = _Services(JobGraph(spec), paid)
    cancelled = _running(spec, "rpp", state={"generations": {0: 1, 1: 1, 2: 1}}, cancel_reason="not today")
    decision = await run_job(cancelled, services)
    [undo] = [effect.item.id for effect in decision.effects if isinstance(effect, NewTask)]
    assert undo == "j.2.undo"


async def test_a_regression_of_many_tasks_starts_each_with_what_it_may_read() -> None:
    many = 500
    tasks = [TaskSpec("root", handler="any")]
    tasks += [TaskSpec(f"t{n}", needs=("root",), handler="any") for n in range(many)]
    tasks.append(TaskSpec("check", needs=("root",), handler="any", on_fail=RegressSpec("root", 1)))
    spec = JobSpec("wide", tuple(tasks))
    services: Any = _Services(JobGraph(spec))
    regressed = await run_job(
        _running(spec, "c" * (many + 1) + "r", inbox=[_end(1, f"j.{many + 1}", "failed")]), services
    )
    assert [effect.item.id for effect in regressed.effects if isinstance(effect, NewTask)] == ["j.0-1"]
    again = claim(state=regressed.state, waits=_running(spec, "").waits, inbox=[_end(2, "j.0-1", "done")])
    started = [e.item for e in (await run_job(again, services)).effects if isinstance(e, NewTask)]
    assert len(started) == many + 1
    assert max(len(str(item.state)) for item in started) < 200


async def test_v4_ends_that_came_before_a_migration_count_for_the_tasks_that_have_the_rows() -> None:
    """`x` takes the number that `a` had. `b` was removed when it had ended, and its end is of no task any more."""
    a, c = TaskSpec("a", handler="any"), TaskSpec("c", needs=("a",), handler="any")
    old = JobGraph(JobSpec("j", (a, TaskSpec("b", handler="any"), c)))
    new = JobGraph(JobSpec("j", (TaskSpec("x", handler="any"), a, c)))
    waiting = _running(old.spec, "rcp")
    waiting.state = migrate_job(old, new, waiting).state
    waiting.inbox = [_end(1, "j.0", "done"), _end(2, "j.1", "done"), InboxRow(3, "control", "migrated", "w", "null", 0)]
    services: Any = _Services(new)
    decision = await run_job(waiting, services)
    state = load_job_state(decision.state)
    assert (state.tasks, state.migrated, decision.consume) == ("rcr", False, (1, 2, 3))
    started = [effect.item for effect in decision.effects if isinstance(effect, NewTask)]
    assert [(item.id, item.step) for item in started] == [("j.3", "x"), ("j.2", "c")]
    assert '"row_numbers":{"1":0}' in started[1].state
    again = await run_job(waiting, services)  # the worker was lost before its commit
    assert again.state == decision.state
