"""J9: what a task has done counts, in whatever order ends, failures, cancels and retries come."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Dag
from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.programs.jobs import job_interpreter, job_program
from hark.programs.jobs.job_services import JobServices
from tests.promises.support_jobs import Script, ran, started, statuses
from tests.support.harness import drained
from tests.support.stores import Store


def failing_fast() -> Dag:
    """A job that fails fast because of its task `bad`, which runs after a second."""
    dag = Dag("failing", fail_fast=True)
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    return dag


async def asks(task: Any) -> Any:
    return await (await task.awakeable(title="How much?"))


@pytest.mark.parametrize(
    ("handler", "gate", "output"),
    [("any", "user_approval", "work"), ("asks", None, {"action": "approve"})],
    ids=["a gate", "a handler"],
)
async def test_j9_a_task_asks_again_after_fail_fast_has_cancelled_it(
    store: Store, handler: str, gate: str | None, output: Any
) -> None:
    dag = failing_fast()
    dag.task("work", handler, gate=gate)
    async with ran(store, dag, any=Script(bad=1), asks=asks) as (app, job):
        await drained(app, app.advance(1))
        assert statuses(await job.get())["work"] == "cancelled"
        await drained(app, app.retry(job))
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(asked.id, {"action": "approve"}))
        assert (await job.get()).result["work"] == output


async def test_j9_a_map_that_failed_fast_runs_again(store: Store) -> None:
    dag = Dag("mapping", fail_fast=True)
    dag.map("each", "each", [0, 1, 2, 3], concurrency=3)
    failures = [1]

    async def each(task: Any) -> int:
        if task.input == 0 and failures:
            failures.clear()
            raise ValueError("not now")
        if failures:
            await task.wait_for_signal("go", timeout=60)
        return int(task.input)

    async with ran(store, dag, each=each) as (app, job):
        ended = await job.get()
        assert (ended.status, ended.error) == ("failed", "Task 'each' failed: Item 0 failed: ValueError: not now")
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"each": [0, 1, 2, 3]}


async def test_j9_a_task_that_completed_before_a_cancel_is_undone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = Dag("late-cancel")
    dag.task("pay", "any", undo="refund")
    dag.sleep("long", 3600, after=["pay"])
    refunded: list[Any] = []
    async with started(store, dag, any=Script(), refund=lambda task: refunded.append(task.input)) as (app, job):
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
    script = Script()
    async with ran(None, dag, any=script) as (_, job):
        ended = await job.get()
        assert (ended.status, statuses(ended)) == ("failed", {"bad": "failed", "beside": "cancelled"})
        assert script.ran == []


async def test_j9_tasks_outlive_an_activation_of_their_job_that_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = Dag("broken")
    dag.task("first", "any", after=[dag.sleep("moment", 1)])
    dag.task("ask", "asks")
    dag.task("listen", "listen")
    run = job_interpreter.run_job

    async def broken(claim: Claim, services: JobServices) -> Decision:
        if claim.inbox:
            raise RuntimeError("this worker cannot run it")
        return await run(claim, services)

    async with ran(store, dag, any=Script(), asks=asks, listen=lambda task: task.wait_for_signal("go")) as (app, job):
        with monkeypatch.context() as patch:
            patch.setattr(job_program, "run_job", broken)
            await drained(app, app.advance(1))
        assert (await job.get()).status == "failed"
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.retry(job))
        await app.resolve(asked.id, 7)
        await drained(app, app.signal(job, "go", 8))
        assert (await job.get()).result == {"moment": None, "first": "first", "ask": 7, "listen": 8}


async def test_j9_a_retried_task_gets_the_outputs_of_what_was_undone_and_ran_again(store: Store) -> None:
    dag = Dag("stale")
    dag.task("reserve", "reserve", undo="release")
    dag.task("pay", "pay", after=["reserve"])
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

    async with ran(store, dag, reserve=reserve, pay=pay, release=lambda task: None) as (app, job):
        assert (await job.get()).status == "failed"
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"reserve": 2, "pay": "paid"}
        assert paid == [1, 2]


@pytest.mark.parametrize("type", ["task", "map"])
async def test_j9_a_task_that_was_cancelled_has_all_its_attempts_when_the_job_is_retried(type: str) -> None:
    dag, retry = failing_fast(), {"limit": 2, "delay": 0}
    dag.map("work", "work", [0], retry=retry) if type == "map" else dag.task("work", "work", retry=retry)
    attempts: list[int] = []

    async def work(task: Any) -> str:
        attempts.append(task.attempt)
        if len(attempts) == 2:
            await task.wait_for_signal("never")
        if len(attempts) in (1, 3):
            raise ValueError("not yet")
        return "worked"

    async with ran(None, dag, any=Script(bad=1), work=work) as (app, job):
        await drained(app, app.advance(1))
        assert statuses(await job.get())["work"] == "cancelled"
        await drained(app, app.retry(job))
        assert ((await job.get()).status, attempts) == ("done", [1, 2, 1, 2])


async def test_j9_a_loop_that_was_cancelled_long_ago_has_all_its_time_when_the_job_is_retried() -> None:
    dag = failing_fast()
    dag.loop("loop", "loop", max_duration=10)
    begun: list[int] = []

    async def loop(task: Any) -> Any:
        begun.append(task.iteration)
        if len(begun) == 1:
            return task.continue_()
        return task.complete() if len(begun) > 2 else await task.wait_for_signal("never")

    async with ran(None, dag, any=Script(bad=1), loop=loop) as (app, job):
        await drained(app, app.advance(1))
        await app.advance(3600)
        await drained(app, app.retry(job))
        assert ((await job.get()).status, begun) == ("done", [0, 1, 1])
