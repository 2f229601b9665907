"""T1, T2: `schedule:` of a job is in force once the job is registered or deployed."""

from __future__ import annotations

from typing import Any

from hark import Dag, TaskContext
from hark.model.names import from_micros
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


def nightly(**schedule: Any) -> Dag:
    dag = Dag("nightly", inputs={"to": "all"}, schedule=schedule or None)
    dag.task("send", handler="send")
    return dag


def with_handler(app: Harness) -> Harness:
    @app.handler("send")
    async def send(task: TaskContext) -> Any:
        at = task.scheduled_at
        return [task.inputs["to"], None if at is None else at.isoformat()]

    return app


async def test_t1_a_registered_job_starts_by_its_schedule(store: Store) -> None:
    async with with_handler(harness(store, nightly(every=60, input={"to": "ann"}))) as app:
        begun = app.clock.now
        [schedule] = await app.schedules()
        assert (schedule.name, schedule.definition, schedule.every) == ("nightly", "nightly", 60)
        await drained(app, app.advance(60))
        [job] = [instance for instance in await app.list() if instance.kind == "job"]
        assert job.result == {"send": ["ann", from_micros(begun + 60_000_000).isoformat()]}
        plain = await drained(app, app.start("nightly"))
        assert await plain.result() == {"send": ["all", None]}


async def test_t1_the_jobs_of_a_schedule_have_its_correlation_key(store: Store) -> None:
    async with with_handler(harness(store, nightly(every=60, correlation_key="night"))) as app:
        await app.advance(60)
        [schedule] = await app.schedules()
        assert (await app.get("night")).id == schedule.last_id


async def test_t1_a_job_that_is_deployed_again_keeps_its_tick_and_its_pause(store: Store) -> None:
    async with with_handler(harness(store)) as app:
        await app.register(nightly(every=60))
        [first] = await app.schedules()
        await app.advance(30)
        await app.register(nightly(every=60, input={"to": "bob"}))  # another version with the same timing
        [again] = await app.schedules()
        assert again.next_at == first.next_at
        await app.pause_schedule("nightly")
    async with with_handler(harness(store, nightly(every=60))) as app:  # the next process
        [paused] = await app.schedules()
        assert paused.paused
        await app.register(nightly())
        assert await app.schedules() == []  # this version has no schedule


async def test_t2_a_job_that_runs_is_not_started_again(store: Store) -> None:
    async with with_handler(harness(store, nightly(every=60, overlap="queue"))) as app:
        for _ in range(3):
            await app.advance(60)  # nothing runs before the drain
        assert len([one for one in await app.list() if one.kind == "job"]) == 1
        await app.drain()  # the waiting tick starts when the job has ended
        assert [one.status for one in await app.list() if one.kind == "job"] == ["done", "done"]
        [schedule] = await app.schedules()
        assert (schedule.waiting, schedule.skipped) == (0, 1)


async def test_t1_an_undeployed_job_is_not_started(store: Store) -> None:
    async with with_handler(harness(store, nightly(every=60))) as app:
        await app.schedule("mine", "nightly", every=60)
        await app.undeploy("nightly")
        [mine] = await app.schedules()
        assert mine.name == "mine"
        await app.advance(60)
        [mine] = await app.schedules()
        assert mine.skipped == 1
        assert "undeployed" in (mine.error or "")
        assert await app.list() == []
