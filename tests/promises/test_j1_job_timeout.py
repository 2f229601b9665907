"""J1: `timeout_sec:` of a job ends it as failed: its tasks are cancelled, what follows a failure still runs."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hark import Dag, InvalidDefinition, load_job
from tests.promises.support_jobs import Script, handlers, ran, statuses
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.stores import Store

OVER = "The job did not end within timeout_sec (60 s)"


def slow(**options: Any) -> Dag:
    """`quick` ends at once, `long` waits for an hour, `then` comes after it, `clean` is a finally task."""
    dag = Dag("slow", timeout_sec=60, **options)
    dag.task("quick", "any", undo="undo")
    dag.task("then", "any", after=[dag.sleep("long", 3600)])
    dag.finally_("clean", "any")
    return dag


async def test_j1_a_job_ends_as_failed_when_its_time_is_over(store: Store) -> None:
    script, undone = Script(), Script()
    async with ran(store, slow(), any=script, undo=undone) as (app, job):
        await app.advance(59)
        assert (await job.get()).status == "awaiting_children"
        await drained(app, app.advance(1))
        ended = await job.get()
        assert (ended.status, ended.error) == (
            "failed", f"{OVER}; Task 'long' was cancelled: the job has timed out",
        )  # fmt: skip
        assert statuses(ended) == {
            "quick": "completed", "long": "cancelled", "then": "cancelled", "clean": "completed",
        }  # fmt: skip
        assert script.ran == ["quick", "clean"]
        assert undone.ran == ["quick"], "the undo of a failing job"
        assert [event.type for event in await app.events(job, limit=100) if event.step is None].count("timeout") == 1
        assert await app.waits() == []
        await app.advance(10_000)
        assert await app.drain() == {"steps": 0}


async def test_j1_a_job_that_ends_in_time_does_not_time_out(store: Store) -> None:
    dag = Dag("quick", timeout_sec=timedelta(minutes=1))
    dag.task("work", "any", after=[dag.sleep("nap", 59)])
    async with ran(store, dag, any=Script()) as (app, job):
        await drained(app, app.advance(59))
        assert (await job.get()).status == "done"
        assert await app.waits() == []
        await app.advance(60)
        assert await app.drain() == {"steps": 0}


async def test_j1_finally_tasks_and_undos_are_not_cut_off_by_the_time_of_the_job(store: Store) -> None:
    job = load_job({
        "name": "tidy", "timeout_sec": 60,
        "tasks": [{"name": "bad", "handler": "any"}],
        "finally": [
            {"name": "nap", "type": "sleep", "seconds": 600},
            {"name": "clean", "handler": "any", "needs": ["nap"]},
        ],
    })  # fmt: skip
    async with ran(store, job, any=Script(bad=1)) as (app, started):
        await drained(app, app.advance(60))
        assert (await started.get()).status == "awaiting_children"
        await drained(app, app.advance(600))
        ended = await started.get()
        assert (ended.status, ended.error) == ("failed", "Task 'bad' failed: ValueError: bad does not work")
        assert statuses(ended)["clean"] == "completed"


async def test_j1_a_failure_before_the_end_of_the_time_is_named_too(store: Store) -> None:
    dag = Dag("slow", timeout_sec=60)
    dag.task("bad", "any")
    dag.sleep("long", 3600)
    async with ran(store, dag, any=Script(bad=1)) as (app, job):
        await drained(app, app.advance(60))
        assert (await job.get()).error == f"{OVER}; Task 'bad' failed: ValueError: bad does not work"


async def test_j1_a_task_that_fails_because_the_time_is_over_does_not_regress_the_job(store: Store) -> None:
    dag = Dag("slow", timeout_sec=60)
    dag.task("work", "any")
    dag.task("gated", "any", after=["work"], gate="user_approval", on_fail={"regress_to": "work"}, retry={"limit": 3})
    script = Script()
    async with ran(store, dag, any=script) as (app, job):
        await drained(app, app.advance(60))
        ended = await job.get()
        assert (ended.status, statuses(ended)) == ("failed", {"work": "completed", "gated": "cancelled"})
        assert script.ran == ["work", "gated"]
        assert [asked.status for asked in await app.awakeables(job=job.id)] == ["CANCELLED"]


async def test_j1_a_handler_that_runs_when_the_time_is_over_is_cancelled(store: Store) -> None:
    dag = Dag("slow", timeout_sec=60)
    dag.task("work", "stuck")
    began, ended = asyncio.Event(), asyncio.Event()
    async with harness(store, dag) as app, neighbour(app, store) as other:

        @app.handler("stuck")
        async def stuck(task: Any) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with app.worker():
            job = await app.start(dag)
            await asyncio.wait_for(began.wait(), 60)
            await other.advance(60)
            with pytest.raises(Exception, match="timeout_sec"):
                await job.result(timeout=60)
            await asyncio.wait_for(ended.wait(), 60)


async def test_j1_a_retry_of_a_job_that_has_timed_out_gives_it_a_new_period(store: Store) -> None:
    async with ran(store, slow(), any=Script(), undo=Script()) as (app, job):
        await drained(app, app.advance(60))
        assert (await job.get()).status == "failed"
        await app.advance(100)
        await drained(app, app.retry(job))
        assert (await job.get()).status == "awaiting_children"
        await drained(app, app.advance(59))
        assert (await job.get()).status == "awaiting_children"
        await drained(app, app.advance(1))
        ended = await job.get()
        assert (ended.status, statuses(ended)["long"]) == ("failed", "cancelled")
        assert OVER in (ended.error or "")


async def test_j1_a_retry_of_a_job_that_failed_in_time_begins_a_new_period_too(store: Store) -> None:
    dag = Dag("slow", timeout_sec=60)
    dag.task("bad", "any", after=[dag.sleep("nap", 50)])
    dag.sleep("long", 55, after=["bad"])
    async with ran(store, dag, any=Script(bad=1)) as (app, job):
        await drained(app, app.advance(50))
        assert (await job.get()).status == "failed"
        await drained(app, app.retry(job))
        await drained(app, app.advance(55))
        assert (await job.get()).status == "done", "the deadline of the first period was 45 seconds ago"
        assert await app.waits() == []


async def test_j1_a_retried_job_that_ends_in_its_new_period_is_done(store: Store) -> None:
    dag = Dag("slow", timeout_sec=60)
    dag.approval("ask", "Ok?")
    async with ran(store, dag) as (app, job):
        await drained(app, app.advance(60))
        await drained(app, app.retry(job))
        [asked] = await app.awakeables(job=job.id, status="PENDING")
        await drained(app, app.resolve(asked.id, {"action": "approve"}))
        assert (await job.get()).status == "done"


async def test_j1_the_deadline_of_a_job_is_in_the_store(store: Store) -> None:
    async with harness(store, slow()) as app:
        handlers(app, any=Script())
        job = await drained(app, app.start(slow(), id="s-1"))
        [deadline] = [wait.deadline for wait in (await app.why(job)).waits if wait.place == "timeout"]
        assert deadline == (await job.get()).created_at + timedelta(seconds=60)
    async with harness(store) as app:  # another process
        handlers(app, any=Script(), undo=Script())
        await app.advance(7200)
        await app.drain()
        assert OVER in ((await app.get("s-1")).error or "")


async def test_j1_a_job_that_no_worker_has_begun_does_not_time_out(store: Store) -> None:
    async with harness(store, slow()) as app:
        handlers(app, any=Script())
        job = await app.start(slow())
        await app.advance(7200)
        await app.drain()
        assert (await job.get()).status == "awaiting_children"


async def test_j1_a_cancel_wins_over_the_time_of_the_job(store: Store) -> None:
    job = load_job({
        "name": "tidy", "timeout_sec": 60,
        "tasks": [{"name": "long", "type": "sleep", "seconds": 3600}],
        "finally": [{"name": "nap", "type": "sleep", "seconds": 600}],
    })  # fmt: skip
    async with ran(store, job) as (app, started):
        await drained(app, app.cancel(started, "not today"))
        await drained(app, app.advance(60))
        await drained(app, app.advance(600))
        ended = await started.get()
        assert (ended.status, ended.error) == ("cancelled", "not today")


async def test_j1_a_job_that_another_job_started_has_its_own_time(store: Store) -> None:
    outer = Dag("outer")
    outer.workflow("inner", "slow", {})
    async with ran(store, outer, any=Script(), undo=Script()) as (app, job):
        assert "slow" in (await job.get()).state["tasks"]["inner"]["error"]
        app.register(slow())
        again = await drained(app, app.start(outer))
        await drained(app, app.advance(60))
        assert OVER in (await again.get()).state["tasks"]["inner"]["error"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "The timeout_sec is zero; give a duration above zero, in seconds."),
        ("soon", "timeout_sec must be a number of seconds, not the text 'soon'."),
        ("-1", "timeout_sec"),
    ],
)
def test_j1_a_wrong_time_is_refused_with_its_line(value: str, message: str) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        load_job(f"name: j\ntimeout_sec: {value}\ntasks:\n  - {{name: a, run: x}}\n")
    [problem] = refused.value.problems
    assert problem.line == 2
    assert message in problem.message
