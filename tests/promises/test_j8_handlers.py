"""J8: what a handler can do: checkpoints, streams, heartbeats, pauses, loops; and what bounds it."""

import asyncio
import threading
from typing import Any

import pytest

from hark import Dag, Hark, PayloadTooLarge
from hark.testing import Harness
from tests.promises.support_jobs import one_task, ran, started
from tests.promises.support_machines import LEASE, harness, neighbour
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


def one_loop(**options: Any) -> Dag:
    dag = Dag("job")
    dag.loop("work", "work", **options)
    return dag


async def task_of(app: Hark, job: Any) -> dict[str, Any]:
    state: dict[str, Any] = (await app.get(job)).state["tasks"]["work"]
    return state


async def test_j8_a_checkpoint_survives_attempts_and_suspensions(store: Store) -> None:
    loaded: list[Any] = []

    async def work(task: Any) -> Any:
        loaded.append([task.attempt, await task.load_checkpoint()])
        if task.attempt == 1:
            await task.checkpoint({"at": 1})
            raise ValueError("boom")
        await task.checkpoint({"at": 2})
        return await task.wait_for_signal("s", timeout=60)

    async with ran(store, one_task(retry={"limit": 2, "delay": 5}), work=work) as (app, job):
        assert (await task_of(app, job))["status"] == "pending", "it waits for its next attempt"
        await drained(app, app.advance(5))
        assert (await task_of(app, job))["status"] == "suspended"
        await drained(app, job.signal("s", "end"))
        assert await job.result(timeout=10) == {"work": "end"}
        assert loaded == [[1, None], [2, {"at": 1}], [2, {"at": 2}]]


async def test_j8_what_was_received_before_a_checkpoint_is_not_received_again(store: Store) -> None:
    async def work(task: Any) -> Any:
        kept = await task.load_checkpoint() or []
        while len(kept) < 3:
            kept.append(await task.wait_for_signal("s", timeout=600))
            if len(kept) != 2:
                await task.checkpoint(kept)
        return kept

    async with ran(store, one_task(), work=work) as (app, job):
        for n in range(3):
            await drained(app, job.signal("s", n))
        assert await job.result(timeout=10) == {"work": [0, 1, 2]}


async def test_j8_a_failed_attempt_has_used_up_what_it_received_and_nothing_else(store: Store) -> None:
    received = []

    async def work(task: Any) -> Any:
        received.append(await task.wait_for_signal("s", timeout=600))
        if task.attempt == 1:
            raise ValueError("boom")
        return received

    async with started(store, one_task(retry={"limit": 2, "delay": 0}), work=work) as (app, job):
        await job.signal("s", 1)
        await drained(app, job.signal("s", 2))
        assert await job.result(timeout=10) == {"work": [1, 2]}


async def test_j8_attempts_follow_the_retry_policy(store: Store) -> None:
    attempts = []

    def work(task: Any) -> Any:
        attempts.append(task.attempt)
        return task.fail(f"failure {task.attempt}")

    async with ran(store, one_task(retry={"limit": 3, "delay": 10, "scaling": 3}), work=work) as (app, job):
        for delay in (10, 30):
            await app.advance(delay - 1)
            assert await app.drain() == {"steps": 0}
            await drained(app, app.advance(1))
        ended = await task_of(app, job)
        assert (attempts, ended["attempt"], ended["status"], ended["error"]) == ([1, 2, 3], 3, "failed", "failure 3")
        retries = [event for event in await app.events(f"{job.id}.0") if event.type == "retry"]
        assert [(event.data["message"], event.data["attempt"]) for event in retries] == [
            ("failure 1", 0), ("failure 2", 1),
        ]  # fmt: skip


async def test_j8_a_lost_lease_is_not_an_attempt(store: Store) -> None:
    async with harness(store) as app:
        begun = []

        @app.handler("work")
        async def work(task: Any) -> Any:
            begun.append(task.attempt)
            if len(begun) == 1:
                await asyncio.Event().wait()
            return task.attempt

        other = neighbour(app, store)
        other.handler("work")(work)
        job = await app.start(one_task(retry={"limit": 2}))
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await until(lambda: begun, "the handler to run")
            worker._activations.open = False
            await drained(app, app.advance(LEASE + 1))
            await worker.stop()
        assert await job.result(timeout=10) == {"work": 1}
        assert begun == [1, 1]


async def test_j8_a_loop_continues_with_its_last_output_until_it_completes(store: Store) -> None:
    seen = []

    async def work(task: Any) -> Any:
        history = await task.load_checkpoint() or []
        seen.append([task.iteration, task.attempt, task.previous])
        if task.iteration == 1 and task.attempt == 1:
            raise ValueError("an attempt of an iteration")
        if task.iteration == 2:
            return task.complete([*history, "done"])
        await task.checkpoint([*history, task.iteration])
        return task.continue_(f"output {task.iteration}")

    loop = one_loop(max_iterations=5, loop_delay=10, retry={"limit": 2, "delay": 0})
    async with ran(store, loop, work=work) as (app, job):
        for _ in range(2):
            await drained(app, app.advance(10))
        assert await job.result(timeout=10) == {"work": [0, 1, "done"]}
        assert seen == [[0, 1, None], [1, 1, "output 0"], [1, 2, "output 0"], [2, 1, "output 1"]]
        events = [event.data for event in await app.events(f"{job.id}.0") if event.type == "iteration"]
        assert events == [{"iteration": 1}, {"iteration": 2}]


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [({"max_iterations": 3}, "max_iterations (3)"), ({"max_duration": 20, "loop_delay": 9}, "max_duration (20 s)")],
)
async def test_j8_a_loop_that_reaches_its_bound_fails_with_the_reason(bounds: dict[str, Any], reason: str) -> None:
    begun = []

    async def work(task: Any) -> Any:
        begun.append(task.iteration)
        return task.continue_()

    async with ran(None, one_loop(**bounds), work=work) as (app, job):
        for _ in range(3):
            await drained(app, app.advance(9))
        ended = await task_of(app, job)
        assert (ended["status"], ended["error"]) == ("failed", f"the loop 'work' reached {reason}")
        assert begun == [0, 1, 2]


async def test_j8_a_pause_gives_up_the_slot_and_keeps_the_attempt(store: Store) -> None:
    begun = []

    async def work(task: Any) -> Any:
        begun.append(task.attempt)
        return task.pause("quota", 30) if len(begun) == 1 else "done"

    async with ran(store, one_task(), work=work) as (app, job):
        await app.advance(29)
        assert await app.drain() == {"steps": 0}
        await drained(app, app.advance(1))
        assert await job.result(timeout=10) == {"work": "done"}
        assert begun == [1, 1]
        [paused] = [event for event in await app.events(f"{job.id}.0") if event.type == "paused"]
        assert paused.data == {"name": "quota"}


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_j8_chunks_of_a_stream_are_events_in_order_before_the_outcome(store: Store, sync: bool) -> None:
    async with harness(store) as app:

        async def work(task: Any) -> Any:
            for n in range(1500):
                await task.put_stream(n)
            task.put_stream(b"bytes")  # not awaited: it takes effect all the same
            return "done"

        def work_in_thread(task: Any) -> Any:
            for n in range(1500):
                task.put_stream(n).result()
            task.put_stream(b"bytes")
            return "done"

        app.handler("work")(work_in_thread if sync else work)
        job = await drained(app, app.start(one_task()))
        assert await job.result(timeout=10) == {"work": "done"}
        events = await app.events(f"{job.id}.0", limit=2000)
        assert [event.data for event in events if event.type == "stream"] == [
            {"task": "work", "chunk": chunk} for chunk in [*range(1500), "bytes"]
        ]
        assert events[-1].type == "done"


async def test_j8_a_heartbeat_shows_its_details() -> None:
    async def work(task: Any) -> Any:
        await task.heartbeat()
        await task.heartbeat({"rows": 7})
        with pytest.raises(PayloadTooLarge):
            await task.heartbeat("x" * (1 << 15))
        return await task.wait_for_signal("s", timeout=60)

    async with ran(None, one_task(), work=work) as (app, job):
        task = await app.get(f"{job.id}.0")
        assert task.progress == {"rows": 7}
        beats = [event.data for event in await app.events(task.id) if event.type == "heartbeat"]
        assert beats == [{"task": "work"}, {"task": "work", "details": {"rows": 7}}]
        assert '{"rows":7}' in (await app.why(task.id)).text


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
@pytest.mark.parametrize(
    ("limit", "reason"), [("timeout_sec", "within timeout_sec (0.05 s"), ("heartbeat_sec", "heartbeat_sec (0.05 s)")]
)
async def test_j8_an_attempt_that_takes_too_long_fails(limit: str, reason: str, sync: bool) -> None:
    release = threading.Event()
    async with Harness() as app:

        async def work(task: Any) -> Any:
            await asyncio.Event().wait()

        def work_in_thread(task: Any) -> Any:
            release.wait(60)
            return "too late"

        app.handler("work")(work_in_thread if sync else work)
        job = await drained(app, app.start(one_task(**{limit: 0.05})))
        ended = await task_of(app, job)
        assert ended["status"] == "failed"
        assert reason in ended["error"]
        release.set()


async def test_j8_an_output_that_cannot_be_stored_fails_the_attempt() -> None:
    async with Harness(max_payload=1000) as app:

        @app.handler("work")
        async def work(task: Any) -> Any:
            return object() if task.attempt == 1 else "x" * 2000

        job = await drained(app, app.start(one_task(retry={"limit": 2, "delay": 0})))
        ended = await task_of(app, job)
        assert ended["attempt"] == 2
        assert "output of task 'work'" in ended["error"]


async def test_j8_a_checkpoint_survives_a_retry_of_the_job_and_a_regression_clears_it(store: Store) -> None:
    dag = Dag("job")
    dag.task("work", "work")
    dag.task("check", "check", after=["work"], on_fail={"regress_to": "work", "limit": 1})
    loaded: list[Any] = []
    checks = iter(["regress", "pass"])

    async def work(task: Any) -> Any:
        loaded.append(await task.load_checkpoint())
        await task.checkpoint(len(loaded))
        if len(loaded) == 1:
            await task.wait_for_signal("s", timeout=60)
            raise ValueError("it fails with an open wait that was answered")
        return len(loaded)

    async def check(task: Any) -> Any:
        return task.fail("again") if next(checks) == "regress" else task.input

    async with started(store, dag, work=work, check=check) as (app, job):
        await drained(app, job.signal("s", 1))
        assert (await job.get()).status == "failed"
        await drained(app, app.retry(job))
        assert await job.result(timeout=10) == {"work": 3, "check": 3}
        assert loaded == [None, 1, None]
