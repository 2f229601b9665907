"""J9: an instance that has the id of a task, or one like it, is not taken for a task of the job."""

from __future__ import annotations

from typing import Any

from hark import Dag, FunctionContext, workflow
from tests.promises.support_jobs import Script, handlers, statuses
from tests.promises.support_machines import harness
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
        job = await app.start(dag, id="job")
        await app.drain()
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
        job = await app.start(dag, id="job")
        await app.drain()
        assert (await job.get()).status == "failed"
        await app.signal(holder, "go")
        await app.drain()
        await app.retry(job)
        await app.drain()
        assert (await job.get()).result == {"first": "first"}


async def test_j9_an_item_whose_id_is_taken_fails_its_map(store: Store) -> None:
    dag = Dag("taken")
    dag.map("each", "any", [1, 2])
    async with harness(store, dag, other) as app:
        handlers(app, any=lambda task: task.input)
        await app.start(other, id="job.0.1")
        job = await app.start(dag, id="job")
        await app.drain()
        ended = await job.get()
        assert ended.status == "failed"
        assert "Item 1 failed: An instance with the id 'job.0.1' exists already" in str(ended.error)
