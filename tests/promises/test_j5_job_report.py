"""J5: the report of a job shows what keeps it: answers, signals and workers that are missing, also below its tasks."""

from typing import Any, cast

from hark import Dag, Hark, workflow
from hark.app.door_access import DoorAccess
from hark.model.job_report import JobReport
from hark.store.reads import WorkerRow
from hark.views.job_descendants import live_workers
from tests.promises.support_jobs import ran
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


async def report(app: Hark, job: str) -> JobReport:
    return await DoorAccess(app).job_report(job)


@workflow
async def asks(ctx: Any, input: Any = None) -> Any:
    return (await ctx.wait_for_signal("answer")).payload


def calls(name: str, definition: str) -> Dag:
    dag = Dag(name)
    dag.workflow("sub", definition)
    return dag


async def test_j5_a_workflow_task_whose_definition_no_worker_has_says_so(store: Store) -> None:
    async with harness(store, asks):
        pass
    async with ran(store, calls("job", "asks")) as (app, job):
        found = await report(app, job.id)
        [task] = found.tasks
        assert "No worker has the code of asks version 1." in (task.note or "")
        assert found.only_waits
        why = await app.why(job.id)
        assert "no_worker" in [blocker.reason for blocker in why.blockers]
        assert "Task 'sub': asks" in why.text
        app.register(asks)
        await app.drain()
        assert (await report(app, job.id)).tasks[0].note is None


async def test_j5_what_an_instance_below_a_task_waits_for_is_shown_with_the_task(store: Store) -> None:
    inner = calls("inner", "asks")
    async with harness(store, asks, inner) as app:
        job = await drained(app, app.start(calls("outer", "inner")))
        found = await report(app, job.id)
        [wait] = [wait for wait in found.tasks[0].waits if wait.kind == "signal"]
        assert found.only_waits
        [child] = await app.list(definition="asks")
        assert wait.wake == f"hark signal {child.id} answer"
        await drained(app, app.signal(child.id, "answer", 1))
        assert await job.result(timeout=10) == {"sub": {"sub": 1}}


async def test_j5_what_the_items_of_a_map_wait_for_is_shown_once(store: Store) -> None:
    async with harness(store) as app:

        @app.handler("wait")
        async def wait(task: Any) -> Any:
            return await task.wait_for_signal("go", timeout=600)

        dag = Dag("mapped")
        dag.map("each", "wait", over=[1, 2, 3])
        job = await drained(app, app.start(dag))
        found = await report(app, job.id)
        shown = [(wait.name, wait.wake) for wait in found.tasks[0].waits if wait.kind == "signal"]
        assert shown == [("go", f"hark signal {job.id} go")]
        assert found.only_waits


async def test_j5_a_queue_that_no_worker_serves_is_named(store: Store) -> None:
    dag = Dag("job")
    dag.task("work", "work", queue="far")
    app = Hark(store.url, **store.options)
    app.handler("work")(lambda task: None)
    async with app, app.worker({"default": 1}):
        job = await app.start(dag)
        await job.wait_for("awaiting_children")
        async with Hark(store.url, **store.options) as other:
            [task] = (await report(other, job.id)).tasks
            assert task.note == "No worker that has the handler 'work' serves the queue 'far'."


async def test_j5_a_worker_whose_lease_is_over_does_not_count() -> None:
    class Database:
        async def time(self) -> int:
            return 100

        async def read(self, *_: Any) -> list[WorkerRow]:
            return [WorkerRow("dead", 99, ",task:old,", "{}", 1), WorkerRow("live", 100, ",task:new,", "{}", 1)]

    workers = await live_workers(cast("Any", Database()), {"task:here"})
    assert workers.missing("task:old", "default") == (
        "No worker has the handler 'old'. Start one with `hark worker --app module:app`."
    )
    assert workers.missing("task:agent:opencode", "default") == (
        "No worker has the agent 'opencode'. Start one with `hark worker --agent opencode='COMMAND …'`."
    )
    assert workers.missing("task:shell", "default") == ("No Hark worker is running. Start one with `hark worker`.")
    assert workers.missing("task:new", "default") is workers.missing("task:here", "default") is None


async def test_j5_the_tasks_of_a_job_that_was_cancelled_before_it_began_are_cancelled(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        dag = Dag("job")
        dag.task("work", "work")
        job = await app.start(dag)
        await app.cancel(job.id)
        assert [task.status for task in (await report(app, job.id)).tasks] == ["cancelled"]
