"""J9: what a task has done counts, in whatever order ends, failures, cancels and retries come."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Dag
from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.programs.jobs import job_interpreter, job_program
from hark.programs.jobs.job_services import JobServices
from hark.testing import Harness
from tests.promises.support_jobs import Script, handlers, statuses
from tests.promises.support_machines import harness
from tests.support.stores import Store


async def test_j9_a_gate_is_asked_again_after_fail_fast_has_cancelled_its_task(store: Store) -> None:
    dag = Dag("gated", fail_fast=True)
    dag.task("work", "any", gate="user_approval")
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    async with harness(store, dag) as app:
        handlers(app, any=Script(bad=1))
        job = await app.start(dag)
        await app.drain()
        await app.advance(1)
        await app.drain()
        assert statuses(await job.get())["work"] == "cancelled"
        await app.retry(job)
        await app.drain()
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await app.resolve(asked.id, {"action": "approve"})
        await app.drain()
        assert (await job.get()).status == "done"


async def test_j9_a_handler_asks_again_after_fail_fast_has_cancelled_its_task(store: Store) -> None:
    dag = Dag("asking", fail_fast=True)
    dag.task("ask", "ask")
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    async with harness(store, dag) as app:
        handlers(app, any=Script(bad=1))

        @app.handler("ask")
        async def ask(task: Any) -> Any:
            question = await task.awakeable(title="How much?")
            return await question

        job = await app.start(dag)
        await app.drain()
        await app.advance(1)
        await app.drain()
        assert statuses(await job.get())["ask"] == "cancelled"
        await app.retry(job)
        await app.drain()
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await app.resolve(asked.id, 7)
        await app.drain()
        assert (await job.get()).result["ask"] == 7


async def test_j9_a_map_that_failed_fast_runs_again(store: Store) -> None:
    dag = Dag("mapping", fail_fast=True)
    dag.map("each", "each", [0, 1, 2, 3], concurrency=3)
    async with harness(store, dag) as app:
        failures = [1]

        @app.handler("each")
        async def each(task: Any) -> int:
            if task.input == 0 and failures:
                failures.clear()
                raise ValueError("not now")
            if failures:
                await task.wait_for_signal("go", timeout=60)
            return int(task.input)

        job = await app.start(dag)
        await app.drain()
        ended = await job.get()
        assert (ended.status, ended.error) == ("failed", "Task 'each' failed: Item 0 failed: ValueError: not now")
        await app.retry(job)
        await app.drain()
        assert (await job.get()).result == {"each": [0, 1, 2, 3]}


async def test_j9_a_task_that_completed_before_a_cancel_is_undone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = Dag("late-cancel")
    dag.task("pay", "any", undo="refund")
    dag.sleep("long", 3600, after=["pay"])
    async with harness(store, dag) as app:
        refunded: list[Any] = []
        handlers(app, any=Script(), refund=lambda task: refunded.append(task.input))
        job = await app.start(dag)
        run = job_interpreter.run_job

        async def cancelled_meanwhile(claim: Claim, services: JobServices) -> Decision:
            if any(row.name == f"{job.id}.0" for row in claim.inbox):
                await app.cancel(job, reason="not today")
            return await run(claim, services)

        monkeypatch.setattr(job_program, "run_job", cancelled_meanwhile)
        await app.drain()
        ended = await job.get()
        assert (ended.status, ended.error) == ("cancelled", "not today")
        assert refunded == ["pay"]
        assert statuses(ended) == {"pay": "completed", "long": "cancelled"}


async def test_j9_a_task_that_cannot_start_fails_fast_what_would_start_beside_it() -> None:
    dag = Dag("refused", fail_fast=True, inputs={"size": 1})
    dag.task("bad", "any", condition="{{ inputs.size.width > 3 }}")
    dag.task("beside", "any")
    async with Harness(dag) as app:
        script = Script()
        handlers(app, any=script)
        job = await app.start(dag)
        await app.drain()
        ended = await job.get()
        assert (ended.status, statuses(ended)) == ("failed", {"bad": "failed", "beside": "cancelled"})
        assert script.ran == []


async def test_j9_tasks_outlive_an_activation_of_their_job_that_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = Dag("broken")
    dag.task("first", "any", after=[dag.sleep("moment", 1)])
    dag.task("ask", "ask")
    dag.task("listen", "listen")
    async with harness(store, dag) as app:
        handlers(app, any=Script())

        @app.handler("ask")
        async def ask(task: Any) -> Any:
            return await (await task.awakeable(title="How much?"))

        @app.handler("listen")
        async def listen(task: Any) -> Any:
            return await task.wait_for_signal("go")

        run = job_interpreter.run_job

        async def broken(claim: Claim, services: JobServices) -> Decision:
            if claim.inbox:
                raise RuntimeError("this worker cannot run it")
            return await run(claim, services)

        job = await app.start(dag)
        await app.drain()
        with monkeypatch.context() as patch:
            patch.setattr(job_program, "run_job", broken)
            await app.advance(1)
            await app.drain()
        assert (await job.get()).status == "failed"
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await app.retry(job)
        await app.drain()
        await app.resolve(asked.id, 7)
        await app.signal(job, "go", 8)
        await app.drain()
        assert (await job.get()).result == {"moment": None, "first": "first", "ask": 7, "listen": 8}


async def test_j9_a_retried_task_gets_the_outputs_of_what_was_undone_and_ran_again(store: Store) -> None:
    dag = Dag("stale")
    dag.task("reserve", "reserve", undo="release")
    dag.task("pay", "pay", after=["reserve"])
    async with harness(store, dag) as app:
        reserved: list[int] = []
        paid: list[int] = []

        def reserve(task: Any) -> int:
            reserved.append(len(reserved) + 1)
            return len(reserved)

        def pay(task: Any) -> str:
            paid.append(task.input)
            if len(paid) == 1:
                raise ValueError("no funds")
            return "paid"

        handlers(app, reserve=reserve, pay=pay, release=lambda task: None)
        job = await app.start(dag)
        await app.drain()
        assert (await job.get()).status == "failed"
        await app.retry(job)
        await app.drain()
        assert (await job.get()).result == {"reserve": 2, "pay": "paid"}
        assert paid == [1, 2]


@pytest.mark.parametrize("type", ["task", "map"])
async def test_j9_a_task_that_was_cancelled_has_all_its_attempts_when_the_job_is_retried(type: str) -> None:
    dag = Dag("again", fail_fast=True)
    retry = {"limit": 2, "delay": 0}
    dag.map("work", "work", [0], retry=retry) if type == "map" else dag.task("work", "work", retry=retry)
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    async with Harness(dag) as app:
        handlers(app, any=Script(bad=1))
        attempts: list[int] = []

        @app.handler("work")
        async def work(task: Any) -> str:
            attempts.append(task.attempt)
            if len(attempts) == 2:
                await task.wait_for_signal("never")
            if len(attempts) in (1, 3):
                raise ValueError("not yet")
            return "worked"

        job = await app.start(dag)
        await app.drain()
        await app.advance(1)
        await app.drain()
        assert statuses(await job.get())["work"] == "cancelled"
        await app.retry(job)
        await app.drain()
        assert ((await job.get()).status, attempts) == ("done", [1, 2, 1, 2])


async def test_j9_a_loop_that_was_cancelled_long_ago_has_all_its_time_when_the_job_is_retried() -> None:
    dag = Dag("again", fail_fast=True)
    dag.loop("loop", "loop", max_duration=10)
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    async with Harness(dag) as app:
        handlers(app, any=Script(bad=1))
        ran: list[int] = []

        @app.handler("loop")
        async def loop(task: Any) -> Any:
            ran.append(task.iteration)
            if len(ran) == 1:
                return task.continue_()
            return task.complete() if len(ran) > 2 else await task.wait_for_signal("never")

        job = await app.start(dag)
        await app.drain()
        await app.advance(1)
        await app.drain()
        await app.advance(3600)
        await app.retry(job)
        await app.drain()
        assert ((await job.get()).status, ran) == ("done", [0, 1, 1])
