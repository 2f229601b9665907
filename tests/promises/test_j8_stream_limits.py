"""J8: what a task and a run stream is bounded: what is above the limit is not stored, and a mark says so."""

import asyncio
from typing import Any

from hark import Dag, TaskContext
from hark.model.names import from_micros
from tests.promises.support_jobs import handlers
from tests.promises.support_machines import harness
from tests.promises.test_j11_task_workers import outside, thumbnails
from tests.support.harness import drained
from tests.support.inspect import query
from tests.support.stores import Store


def chunks(events: Any) -> list[Any]:
    return [event.data["chunk"] for event in events if event.type == "stream"]


def is_mark(chunk: Any) -> bool:
    return isinstance(chunk, str) and chunk.startswith("[The stream of ")


async def test_j8_the_stream_of_a_task_ends_with_a_mark_at_its_limit(store: Store) -> None:
    async def work(task: TaskContext) -> str:
        for n in range(50):
            await task.put_stream(f"{n:0100}")
        return "done"

    dag = Dag("loud")
    dag.task("work", "work")
    dag.task("other", "other")
    async with harness(store, dag, max_stream=2000) as app:

        async def other(task: TaskContext) -> None:
            await task.put_stream("heard")

        handlers(app, work=work, other=other)
        job = await drained(app, app.start("loud"))
        assert await job.result(timeout=10) == {"work": "done", "other": None}, "a full stream does not fail its task"
        loud = chunks(await app.events(f"{job.id}.0", limit=1000))
        assert loud[:-1] == [f"{n:0100}" for n in range(len(loud) - 1)]
        assert 10 <= len(loud) < 20
        assert "task 'work' has reached its limit of 2000 bytes" in loud[-1]
        assert "raise Hark(max_stream=…)" in loud[-1]
        assert chunks(await app.events(f"{job.id}.1")) == ["heard"]


async def test_j8_the_limit_of_a_run_counts_all_its_tasks_and_all_their_attempts(store: Store) -> None:
    async def work(task: TaskContext) -> None:
        for _ in range(5):
            await task.put_stream("x" * 100)
            await task.heartbeat({"at": "y" * 50})
        if task.attempt == 1:
            raise ValueError("again")

    dag = Dag("loud")
    for n in range(6):
        dag.task(f"t{n}", "work", retry={"limit": 2, "delay": 0})
    async with harness(store, dag, max_run_stream=3000) as app:
        handlers(app, work=work)
        job = await drained(app, app.start("loud"))
        await job.result(timeout=10)
        found = [event for n in range(6) for event in await app.events(f"{job.id}.{n}", limit=1000)]
        assert sum(map(is_mark, chunks(found))) == 1, "one mark, in the stream that shows all of them"
        [mark] = filter(is_mark, chunks(found))
        assert f"all tasks of {job.id} has reached its limit of 3000 bytes" in mark
        stored = await query(store, "SELECT sum(length(data)) FROM events WHERE type IN ('stream', 'heartbeat')")
        assert stored[0][0] < 3000 + 400
        assert (await app.get(f"{job.id}.5")).progress == {"at": "y" * 50}, "progress is not a part of the stream"


async def test_j8_retention_removes_what_was_counted(store: Store) -> None:
    async def work(task: TaskContext) -> None:
        await task.put_stream("x")

    dag = Dag("loud")
    dag.task("work", "work")
    async with harness(store, dag) as app:
        handlers(app, work=work)
        job = await drained(app, app.start("loud"))
        await job.result(timeout=10)
        assert len(await query(store, "SELECT 1 FROM streams")) == 2
        await app.advance(60)
        await app.forget(before=from_micros(app.clock.now))
        assert await query(store, "SELECT 1 FROM streams") == []


async def test_j11_a_worker_outside_whose_stream_is_full_is_told_and_keeps_its_task(store: Store) -> None:
    async with outside(store, max_stream=1000) as (app, worker):
        job = await app.start(thumbnails())
        task = await worker.fetch_one()
        assert (await worker.report(task, "heartbeat", stream="x" * 800)).status_code == 200
        full = await worker.report(task, "heartbeat", stream="x" * 800, checkpoint={"page": 3}, details={"percent": 50})
        assert full.status_code == 413
        assert full.json()["type"] == "PayloadTooLarge"
        assert "raise Hark(max_stream=…)" in full.json()["error"]
        assert (await worker.report(task, "heartbeat", stream="y" * 800)).status_code == 413
        beat = await worker.report(task, "heartbeat")
        assert (beat.status_code, beat.json()["cancelled"]) == (200, False)
        assert (await app.get(task["id"])).progress == {"percent": 50}
        events = await app.events(task["id"])
        assert [is_mark(chunk) for chunk in chunks(events)] == [False, True]
        assert [event.type for event in events].count("checkpoint") == 1
        assert (await worker.report(task, "complete", output=1)).status_code == 200
        await job.result(timeout=30)


async def test_j11_details_of_a_heartbeat_are_as_small_as_those_of_a_handler(store: Store) -> None:
    async with outside(store) as (app, worker):
        await app.start(thumbnails())
        task = await worker.fetch_one()
        assert (await worker.report(task, "heartbeat", details="x" * 20_000)).status_code == 413


async def test_j8_two_processes_share_the_limit_of_a_run(store: Store) -> None:
    dag = Dag("loud")
    dag.task("a", "a")
    dag.task("b", "b")
    async with harness(store, dag, max_run_stream=1000) as app:

        async def work(task: TaskContext) -> None:
            for _ in range(10):
                await task.put_stream("x" * 100)
                await asyncio.sleep(0)

        handlers(app, a=work)
        job = await drained(app, app.start("loud"))
        async with harness(store, dag, max_run_stream=1000) as other:
            handlers(other, b=work)
            await other.drain()
        found = chunks([*await app.events(f"{job.id}.0"), *await app.events(f"{job.id}.1")])
        assert sum(map(is_mark, found)) == 1
        assert len(found) < 10
