"""J9: an instance that has the id of a task, or one like it, is not taken for a task of the job."""

from __future__ import annotations

from typing import Any

from hark import Dag, FunctionContext, workflow
from hark.views import run_events
from tests.promises.support_jobs import Script, handlers, statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


@workflow
async def other(ctx: FunctionContext) -> Any:
    return await ctx.wait_for_signal("go")


async def test_j9_a_task_whose_id_is_taken_fails_and_its_holder_is_left_alone(store: Store) -> None:
    dag = Dag("taken", fail_fast=True)
    dag.task("first", "any")
    dag.task("bad", "any", condition="{{ inputs.missing > 1 }}", after=[dag.sleep("moment", 0)])
    async with harness(store, dag, other) as app:
        handlers(app, any=Script())
        holder = await app.start(other, id="job.0")
        job = await drained(app, app.start(dag, id="job"))
        ended = await job.get()
        assert (ended.status, statuses(ended)["first"]) == ("failed", "failed")
        assert "'job.0' exists already" in str(ended.state["tasks"]["first"]["error"])
        assert "'job.0' exists already" in str(ended.error)
        assert (await holder.get()).status == "awaiting_signal", "it was not cancelled with the rest of the job"


async def test_j9_a_task_whose_id_was_taken_starts_when_the_job_is_retried(store: Store) -> None:
    dag = Dag("taken")
    dag.task("first", "any")
    async with harness(store, dag, other) as app:
        handlers(app, any=Script())
        holder = await app.start(other, correlation_key="job.0")
        job = await drained(app, app.start(dag, id="job"))
        assert (await job.get()).status == "failed"
        await drained(app, app.signal(holder, "go"))
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"first": "first"}


async def test_j9_an_item_whose_id_is_taken_fails_its_map(store: Store) -> None:
    dag = Dag("taken")
    dag.map("each", "any", [1, 2])
    async with harness(store, dag, other) as app:
        handlers(app, any=lambda task: task.input)
        await app.start(other, id="job.0.1")
        job = await drained(app, app.start(dag, id="job"))
        ended = await job.get()
        assert ended.status == "failed"
        assert "Item 1 failed: An instance with the id 'job.0.1' exists already" in str(ended.error)


async def test_j9_the_history_of_a_job_has_no_events_of_instances_with_ids_like_those_of_its_tasks(
    store: Store,
) -> None:
    dag, nested = Dag("plain"), Dag("nested")
    dag.map("each", "any", [1])
    nested.wait_for_event("go", "go")
    async with harness(store, dag, nested, other) as app:
        handlers(app, any=lambda task: task.input)
        await app.start(other, id="job.7")
        await app.start(nested, id="job.5")
        job = await drained(app, app.start(dag, id="job"))
        mine = {"job", "job.0", "job.0.0"}
        assert {event.instance_id for event in await app.events(job, limit=100)} == mine
        runs, _, _ = await app._read(lambda store: run_events.page(store, "job", (0, 0), 100))
        assert {event.instance_id for event in runs} == mine
        scanned, _, _, _ = await app._read(lambda store: run_events.scan(store, ["job"], (0, 0)))
        assert {event.instance_id for event in scanned} == mine
        both, _, _, _ = await app._read(lambda store: run_events.scan(store, ["job", "job.5"], (0, 0)))
        owners = {event.instance_id: run_events.run_of(event, ["job", "job.5"]) for event in both}
        assert owners == {"job.5": "job.5", "job.5.0": "job.5", **dict.fromkeys(mine, "job")}


async def test_j9_what_a_job_waits_for_is_what_its_own_tasks_wait_for(store: Store) -> None:
    dag = Dag("plain")
    dag.map("each", "wait", [1])
    async with harness(store, dag, other) as app:

        @app.handler("wait")
        async def wait(task: Any) -> Any:
            return await task.wait_for_signal("come")

        await app.start(other, id="job.7")
        job = await drained(app, app.start(dag, id="job"))
        assert [one.name for one in (await app.why(job)).waits if one.kind == "signal"] == ["come"]
