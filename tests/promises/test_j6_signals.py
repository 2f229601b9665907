"""J6: signals in a running step. Each signal of a run goes to exactly one wait, the oldest first."""

from typing import Any

import pytest

from hark import Dag, NoTarget, SignalTimeout
from hark.testing import Harness
from tests.promises.support_jobs import one_task, ran, started
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store

NAMES = ["approval", "a.b", "*", ">", "a b", "🙂", "a.>", "'; --"]


async def test_j6_fault_48_two_signals_sent_before_a_wait_arrive_in_order(store: Store) -> None:
    async def work(task: Any) -> Any:
        return [await task.wait_for_signal("s", timeout=60), await task.wait_for_signal("s", timeout=60)]

    async with started(store, one_task(), work=work) as (app, job):
        assert [(await job.signal("s", n)).status for n in (1, 2)] == ["stored", "stored"]
        await app.drain()
        assert await job.result(timeout=10) == {"work": [1, 2]}


async def test_j6_fault_49_a_second_wait_does_not_see_the_old_value(store: Store) -> None:
    async def work(task: Any) -> Any:
        first = await task.wait_for_signal("s", timeout=60)
        with pytest.raises(TimeoutError) as caught:
            await task.wait_for_signal("s", timeout=30)
        return [first, type(caught.value) is SignalTimeout, str(caught.value)]

    async with ran(store, one_task(), work=work) as (app, job):
        assert (await job.signal("s", "old")).status == "woke"
        await app.drain()
        assert (await app.get(f"{job.id}.0")).status == "awaiting_signal"
        await drained(app, app.advance(31))
        assert await job.result(timeout=10) == {"work": ["old", True, 'signal "s" timed out after 30 s']}


async def test_j6_fault_51_a_name_can_have_any_characters_and_belongs_to_its_run(store: Store) -> None:
    async def work(task: Any) -> Any:
        return {name: await task.wait_for_signal(name, timeout=60) for name in NAMES}

    async with started(store, one_task(), id="run", work=work) as (app, mine):
        other = await drained(app, app.start(one_task(), id="run.other"))
        for name in reversed(NAMES):
            await other.signal(name, f"other {name}")
        await app.drain()
        assert (await mine.get()).status == "awaiting_children", "no name reads the signals of another run"
        for name in reversed(NAMES):
            await mine.signal(name, f"mine {name}")
        await app.drain()
        assert await mine.result(timeout=10) == {"work": {name: f"mine {name}" for name in NAMES}}
        assert await other.result(timeout=10) == {"work": {name: f"other {name}" for name in NAMES}}


async def test_j6_the_signals_of_a_run_are_one_queue_and_the_oldest_wait_is_first(store: Store) -> None:
    dag = Dag("queue")
    dag.task("first", "wait")
    dag.task("second", "wait", queue="other")
    async with started(store, dag, wait=lambda task: task.wait_for_signal("s", timeout=600)) as (app, job):
        async with app.worker({"default": 1}, grace=0):  # `first` waits before `second` does
            await until(lambda: _is_waiting(app, f"{job.id}.0"), "the first task to wait")
        await app.drain()
        assert [(await job.signal("s", n)).status for n in (1, 2)] == ["woke", "woke"]
        assert (await job.signal("s", 3)).status == "stored"
        await app.drain()
        assert await job.result(timeout=10) == {"first": 1, "second": 2}


async def _is_waiting(app: Harness, id: str) -> bool:
    return any(wait.instance_id == id for wait in await app.waits())


async def test_j6_a_task_signals_its_own_run_another_run_and_nothing_else(store: Store) -> None:
    dag = Dag("talk")
    dag.task("ask", "ask")
    dag.task("answer", "answer")

    async def answer(task: Any) -> Any:
        with pytest.raises(NoTarget):
            await task.send_signal("nothing-has-this-id", "reply")
        sent = [await task.send_signal(run, "reply", run, dedup_key="once") for run in (task.run_id, task.inputs)]
        again = await task.send_signal(task.run_id, "reply", "again", dedup_key="once")
        return [sent[0].instance_id == task.run_id, again.status]

    def hear(task: Any) -> Any:
        return task.wait_for_signal("reply", timeout=60)

    async with started(store, one_task("listener"), work=hear, ask=hear, answer=answer) as (app, listener):
        job = await drained(app, app.start(dag, listener.id))
        assert await job.result(timeout=10) == {"ask": job.id, "answer": [True, "duplicate"]}
        assert await listener.result(timeout=10) == {"work": listener.id}


async def test_j6_a_timeout_outside_its_bounds_is_a_value_error() -> None:
    async with Harness(max_signal_wait=100) as app:
        refused = []

        @app.handler("work")
        async def work(task: Any) -> Any:
            for timeout in (0, -1, 100.5, float("inf"), float("nan"), "5", True):
                with pytest.raises(ValueError, match="timeout=") as caught:
                    await task.wait_for_signal("s", timeout=timeout)
                refused.append(str(caught.value))
            return await task.wait_for_signal("s", timeout=100)

        job = await drained(app, app.start(one_task()))
        assert len(refused) == 7
        assert "max_signal_wait" in refused[0]
        await drained(app, app.advance(100))
        task = await app.get(f"{job.id}.0")
        assert (task.status, task.error) == ("failed", 'SignalTimeout: signal "s" timed out after 100 s')
