"""A3, A4: awakeables of task handlers. They belong to the run, and a handler that runs again gets the same ones."""

from dataclasses import dataclass
from typing import Any

import pytest

from hark import AwakeableRejected, AwakeableTimedOut, Dag, NotFound
from hark.model.names import awakeable_id
from hark.testing import Harness
from tests.promises.support_jobs import ran
from tests.promises.support_machines import LEASE, harness, neighbour
from tests.promises.test_j7_waiting import lingering
from tests.support.harness import drained
from tests.support.inspect import query, until
from tests.support.stores import Store


@dataclass
class Verdict:
    approved: bool


def jobs_of(*names: str, **options: Any) -> Dag:
    dag = Dag("job")
    for name in names:
        dag.task(name, "work", **options)
    return dag


async def test_a3_an_awakeable_of_a_task_belongs_to_the_run(store: Store) -> None:
    async def work(task: Any) -> Any:
        asked = await task.awakeable(title=f"{task.name}?", schema=Verdict, assignees=["ann"])
        verdict = await asked
        return [asked.id, verdict.approved, asked.url.startswith("/a/")]

    async with ran(store, jobs_of("one", "two"), id="run", work=work) as (app, job):
        asked = {one.task: one for one in await app.awakeables(job=job.id)}
        assert {one.entry_index for one in asked.values()} == {0, 1}, "entry_index counts per job"
        for name, one in asked.items():
            assert one.id == awakeable_id("run", one.entry_index)
            assert (one.instance_id, one.title, one.assignees) == ("run", f"{name}?", ("ann",))
        assert (await app.get("run.0")).status == "awaiting_signal"
        for one in asked.values():
            await app.resolve(one.id, {"approved": one.task == "one"}, by="ann")
        await app.drain()
        assert await job.result(timeout=10) == {
            "one": [asked["one"].id, True, True], "two": [asked["two"].id, False, True],
        }  # fmt: skip


async def test_a3_an_awakeable_may_be_settled_before_it_is_awaited_and_awaited_twice(store: Store) -> None:
    async def work(task: Any) -> Any:
        ids = await task.load_checkpoint()
        if ids is None:
            ids = [(await task.awakeable()).id, (await task.awakeable()).id]
            await task.wait_for_signal("go", timeout=60)
            await task.checkpoint(ids)  # what is asked from here on is new
        new = (await task.awakeable()).id
        answers = [await task.await_awakeable(id) for id in ids]
        await task.checkpoint(ids)
        return [new in ids, answers, [await task.await_awakeable(id) for id in ids]]

    async with ran(store, jobs_of("work"), work=work) as (app, job):
        first, second = sorted(one.id for one in await app.awakeables(job=job.id))
        await app.resolve(second, 2)
        await drained(app, job.signal("go"))
        assert len(await app.awakeables(job=job.id)) == 3
        await drained(app, app.resolve(first, 1))
        assert await job.result(timeout=10) == {"work": [False, [1, 2], [1, 2]]}
        assert [one.status for one in await app.awakeables(job=job.id)].count("CANCELLED") == 1, "the end cancels"


@pytest.mark.parametrize("how", ["fail", "pause", "continue"])
async def test_a3_a_question_before_a_checkpoint_stays_open(store: Store, how: str) -> None:
    dag = Dag("questions")
    dag.loop("ask", "ask", max_iterations=5, retry={"limit": 3, "delay": 0})

    async def ask(task: Any) -> Any:
        kept = await task.load_checkpoint()
        if kept is not None:
            return task.complete(await task.await_awakeable(kept))
        question = await task.awakeable(title="kept")
        await task.checkpoint(question.id)
        await task.awakeable(title="dropped")
        match how:
            case "fail":
                raise ValueError("no")
            case "pause":
                return task.pause("later", 0)
            case _:
                return task.continue_()

    async with ran(store, dag, ask=ask) as (app, job):
        asked = {one.title: one for one in await app.awakeables(job=job.id)}
        assert {title: one.status for title, one in asked.items()} == {"kept": "PENDING", "dropped": "CANCELLED"}
        await drained(app, app.resolve(asked["kept"].id, 7))
        assert (await job.get()).result == {"ask": 7}


async def test_a4_a_timeout_and_a_rejection_are_raised(store: Store) -> None:
    async def work(task: Any) -> Any:
        late = await task.awakeable(timeout=30, title="late")
        refused = await task.awakeable(timeout=60)
        with pytest.raises(AwakeableTimedOut, match="late"):
            await task.await_awakeable(late.id) if task.inputs else await late
        with pytest.raises(AwakeableRejected, match="not now"):
            await refused
        with pytest.raises(NotFound):
            await task.await_awakeable("prom_1x")
        return "both"

    async with ran(store, jobs_of("work"), id="run", work=work) as (app, job):
        [late, refused] = sorted(await app.awakeables(job=job.id), key=lambda one: one.entry_index)
        await app.reject(refused.id, "not now")
        await app.advance(30)
        assert (await app.awakeable(late.id)).status == "TIMEOUT"
        await app.drain()
        assert await job.result(timeout=10) == {"work": "both"}


async def test_a4_the_end_of_a_job_or_of_an_attempt_cancels_its_awakeables(store: Store) -> None:
    async def work(task: Any) -> Any:
        asked = await task.awakeable()
        if task.attempt == 1:
            raise ValueError("boom")
        return await asked

    async with ran(store, jobs_of("work", retry={"limit": 2, "delay": 0}), work=work) as (app, job):
        asked = sorted(await app.awakeables(job=job.id), key=lambda one: one.entry_index)
        assert [one.status for one in asked] == ["CANCELLED", "PENDING"]
        await job.cancel()
        assert {one.status for one in await app.awakeables(job=job.id)} == {"CANCELLED"}


async def test_a3_a_handler_that_lingers_gets_the_answer_in_its_slot(store: Store) -> None:
    begun = []

    def work(task: Any) -> Any:
        begun.append(1)
        asked = task.awakeable().result()
        return task.await_awakeable(asked.id).result()

    async with lingering(store, work) as (app, job):
        asked = await app.wait_for_awakeable(job=job, timeout=60)
        await until(lambda: query(store, "SELECT 1 FROM waits WHERE kind = 'awakeable'"), "the handler to wait")
        await app.resolve(asked.id, "answer")
        assert await job.result(timeout=60) == {"work": "answer"}
    assert begun == [1]


async def test_a4_a_lingering_handler_learns_of_the_timeout(store: Store) -> None:
    async def work(task: Any) -> Any:
        with pytest.raises(AwakeableTimedOut):
            await (await task.awakeable(timeout=0.1))
        return "late"

    async with lingering(store, work) as (app, job):
        assert await job.result(timeout=60) == {"work": "late"}
        [asked] = await app.awakeables(job=job.id)
        assert asked.status == "TIMEOUT"


@pytest.mark.parametrize("died", ["created", "awaited"])
async def test_a7_an_awakeable_survives_the_death_of_its_worker(store: Store, died: str) -> None:
    async with harness(store) as app:
        reached: list[str] = []

        def register(on: Harness, *, dies: bool) -> None:
            @on.handler("work")
            async def work(task: Any) -> Any:
                asked = await task.awakeable()
                reached.append(asked.id)
                if dies and died == "created":
                    await task.wait_for_signal("never", timeout=600)
                return [asked.id, await asked]

        register(app, dies=False)
        other = neighbour(app, store, linger=3600)
        register(other, dies=True)
        job = await app.start(jobs_of("work"))
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await until(lambda: query(store, "SELECT 1 FROM waits WHERE kind IN ('signal', 'awakeable')"), "the wait")
            worker._activations.open = False
            other._services.running.clear()
            [asked] = await app.awakeables(job=job.id)
            await app.resolve(asked.id, "kept")
            await drained(app, app.advance(LEASE + 1))
            assert await job.result(timeout=10) == {"work": [asked.id, "kept"]}
            await worker.stop()
        assert set(reached) == {asked.id}, "the same id when the handler runs again"
