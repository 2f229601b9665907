"""J9: what a task reads of the others after regressions, retries and undos, and of those that never started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hark import Dag, load_job
from hark.testing import Harness
from tests.promises.support_jobs import Script, handlers, ran, statuses
from tests.support.harness import drained


async def test_j9_expressions_know_how_tasks_ended_that_never_started() -> None:
    report = {"bad": "{{ tasks.bad.status }}", "why": "{{ tasks.bad.error }}", "after": "{{ tasks.after.status }}"}
    job = load_job({
        "name": "reporting",
        "inputs": {"size": 1},
        "tasks": [
            {"name": "bad", "handler": "any", "if": "{{ inputs.size.width > 3 }}"},
            {"name": "after", "handler": "any", "needs": ["bad"]},
        ],
        "finally": [
            {"name": "report", "handler": "show", "input": report},
            {"name": "alarm", "handler": "any", "if": "{{ tasks.bad.status == 'failed' }}"},
        ],
    })  # fmt: skip
    async with ran(None, job, any=Script(), show=lambda task: task.input) as (_, started):
        ended = await started.get()
        assert statuses(ended) == {"bad": "failed", "after": "skipped", "report": "completed", "alarm": "completed"}
        output = ended.state["tasks"]["report"]["output"]
        assert (output["bad"], output["after"]) == ("failed", "skipped")
        assert output["why"] == ended.state["tasks"]["bad"]["error"]


async def test_j9_a_finally_task_knows_what_a_cancel_did_not_let_start() -> None:
    job = load_job({
        "name": "cancelled",
        "tasks": [{"name": "long", "type": "sleep", "seconds": 60}, {"name": "b", "handler": "any", "needs": ["long"]}],
        "finally": [{"name": "show", "handler": "show", "input": "{{ tasks.long.status }} {{ tasks.b.status }}"}],
    })  # fmt: skip
    async with ran(None, job, any=Script(), show=lambda task: task.input) as (app, started):
        await drained(app, app.cancel(started))
        assert (await started.get()).state["tasks"]["show"]["output"] == "cancelled cancelled"


async def test_j9_a_retried_finally_task_reads_what_ran_again() -> None:
    job = load_job({
        "name": "again",
        "tasks": [{"name": "work", "handler": "work", "undo": "undo"}],
        "finally": [{"name": "show", "handler": "show", "input": "{{ tasks.work.output }}"}],
    })  # fmt: skip
    shown: list[Any] = []

    def show(task: Any) -> None:
        shown.append(task.input)
        if len(shown) == 1:
            raise ValueError("not yet")

    worked: list[int] = []
    async with ran(None, job, work=lambda task: worked.append(1) or len(worked), show=show, undo=lambda task: None) as (
        app,
        started,
    ):
        await drained(app, app.retry(started))
        assert ((await started.get()).status, shown) == ("done", [1, 2])


async def test_j9_an_undo_reads_what_its_task_has_read(tmp_path: Path) -> None:
    undone = tmp_path / "undone"
    dag = Dag("undoing")
    dag.task("build", "build")
    undo = f"echo {{{{ tasks.build.output }}}} {{{{ output }}}} >> {undone}"
    dag.task("deploy", run="echo deployed {{ tasks.build.output }}", after=["build"], undo=undo)
    dag.task("check", "check", after=["deploy"], on_fail={"regress_to": "build", "limit": 1})
    built: list[int] = []
    async with ran(None, dag, build=lambda task: built.append(1) or len(built), check=Script(check=2)) as (_, job):
        assert (await job.get()).status == "failed"
        assert undone.read_text().splitlines() == ["2 deployed 2", "1 deployed 1"]


async def test_j9_a_loop_that_reached_its_longest_duration_runs_again_when_its_job_is_retried() -> None:
    dag = Dag("looping")
    dag.loop("loop", "loop", max_duration=10)
    async with Harness(dag) as app:
        ran: list[Any] = []

        @app.handler("loop")
        async def loop(task: Any) -> Any:
            ran.append(task.iteration)
            if len(ran) > 1:
                return task.complete("late")
            await app.advance(20)
            return task.continue_()

        job = await drained(app, app.start(dag))
        assert "reached max_duration" in str((await job.get()).error)
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"loop": "late"}


async def test_j9_a_cancel_does_not_undo_what_a_regression_has_cancelled() -> None:
    dag = Dag("regressing")
    dag.task("build", "any")
    dag.task("deploy", "deploy", after=["build"], undo="undo")
    dag.task("check", "any", after=["build"], on_fail={"regress_to": "build", "limit": 1})
    async with Harness(dag) as app:
        undone: list[Any] = []
        handlers(app, any=Script(check=1), undo=lambda task: undone.append(task.input))

        @app.handler("deploy")
        async def deploy(task: Any) -> Any:
            return await task.wait_for_signal("go", timeout=600)

        job = await app.start(dag)
        await app.drain()
        assert [e.step for e in await app.events(job, limit=100) if e.type == "regressed"] == ["check"]
        await app.cancel(job)
        await app.drain()
        assert ((await job.get()).status, undone) == ("cancelled", [])
