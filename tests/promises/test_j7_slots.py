"""J7: a handler that waits in its slot gives it up as soon as other work wants it: at once, and no more than that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Dag, Hark, TaskContext
from tests.promises.support_jobs import one_task
from tests.support.inspect import query, until
from tests.support.stores import Store

LONG = 3600.0  # a linger that no test waits for
SOON = 20.0  # seconds: far below the linger, and enough for a busy machine


def quick(name: str = "quick", **options: Any) -> Dag:
    dag = Dag(name)
    dag.task("quick", "quick", **options)
    return dag


async def wait_for_s(task: TaskContext) -> Any:
    return await task.wait_for_signal("s", timeout=600)


def register(app: Hark, work: Any = wait_for_s) -> None:
    @app.handler("quick")
    async def quick_(task: TaskContext) -> str:
        return "done"

    app.handler("work")(work)


@asynccontextmanager
async def working(store: Store, work: Any = wait_for_s, *, slots: int = 1, **options: Any) -> AsyncIterator[Hark]:
    async with Hark(store.url, **{**store.options, "linger": LONG, **options}) as app:
        register(app, work)
        async with app.worker({"default": slots}):
            yield app


async def lingers(app: Hark, job: Any, task: int = 0) -> None:
    id = f"{job.id}.{task}"
    await until(lambda: id in app._services.lingering, "the handler to linger")


async def status(app: Hark, job: Any) -> str:
    return (await app.get(f"{job.id}.0")).status


async def test_j7_other_work_gets_the_slot_of_a_handler_that_waits_at_once(store: Store) -> None:
    async with working(store) as app:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        assert await status(app, waiting) == "awaiting_signal"
        assert (await app.get(waiting)).state["tasks"]["work"]["status"] == "suspended"
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": 1}


async def test_j7_work_that_waited_before_the_handler_did_gets_the_slot_too(store: Store) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(task: TaskContext) -> Any:
        begun.set()
        await go_on.wait()
        return await task.wait_for_signal("s", timeout=600)

    async with working(store, work) as app:
        waiting = await app.start(one_task())
        await begun.wait()
        other = await app.start(quick())
        await until(lambda: query(store, "SELECT 1 FROM instances WHERE step = 'quick'"), "its task to wait")
        go_on.set()
        assert await other.result(timeout=SOON) == {"quick": "done"}
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": 1}


async def test_j7_a_handler_in_a_thread_gives_up_its_slot_too(store: Store) -> None:
    def work(task: TaskContext) -> Any:
        return task.wait_for_signal("s", timeout=600).result()

    async with working(store, work) as app:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": 1}


async def test_j7_a_handler_that_waits_for_an_answer_gives_up_its_slot(store: Store) -> None:
    async def work(task: TaskContext) -> Any:
        return await (await task.awakeable(title="Well?"))

    async with working(store, work) as app:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        [question] = await app.awakeables(job=waiting.id)
        await app.resolve(question.id, "yes")
        assert await waiting.result(timeout=SOON) == {"work": "yes"}


async def test_j7_of_two_handlers_that_wait_the_one_that_has_waited_longest_gives_up_its_slot(store: Store) -> None:
    async with working(store, slots=2) as app:
        first = await app.start(one_task())
        await lingers(app, first)
        second = await app.start(one_task())
        await lingers(app, second)
        assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        assert [await status(app, job) for job in (first, second)] == ["awaiting_signal", "executing"]
        # The slot of the first is free: nothing more has to give up its own.
        assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        assert await status(app, second) == "executing"


async def test_j7_while_a_slot_is_free_every_handler_keeps_its_own(store: Store) -> None:
    async with working(store, slots=2) as app:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        for _ in range(3):
            assert await (await app.start(quick())).result(timeout=SOON) == {"quick": "done"}
        assert await status(app, waiting) == "executing"
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": 1}


async def test_j7_work_that_this_worker_cannot_run_does_not_take_a_slot(store: Store) -> None:
    async with working(store) as app:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        foreign = Dag("foreign")
        foreign.task("foreign", "no-such-handler")
        job = await app.start(foreign)
        await until(lambda: query(store, "SELECT 1 FROM instances WHERE step = 'foreign'"), "its task to wait")
        await asyncio.sleep(0.2)
        assert await status(app, waiting) == "executing"
        await job.cancel()


async def test_j7_work_of_another_process_gets_the_slot(store: Store) -> None:
    async with working(store) as app, Hark(store.url, **store.options) as other:
        waiting = await app.start(one_task())
        await lingers(app, waiting)
        job = await other.start(quick())
        assert await job.result(timeout=SOON) == {"quick": "done"}
        assert await status(app, waiting) == "awaiting_signal"


@pytest.mark.parametrize("first", ["waits", "blocked"])
async def test_j7_work_under_the_same_concurrency_key_gets_it(store: Store, first: str) -> None:
    go_on = asyncio.Event()

    async def work(task: TaskContext) -> Any:
        await go_on.wait()
        return await task.wait_for_signal("s", timeout=600)

    async with working(store, work, slots=10) as app:
        waiting = await app.start(one_task(concurrency_key="gpu"))
        await until(lambda: query(store, "SELECT 1 FROM instances WHERE status = 'executing'"), "it to run")
        if first == "waits":
            go_on.set()
            await lingers(app, waiting)
        other = await app.start(quick(concurrency_key="gpu"))
        if first == "blocked":
            await until(lambda: query(store, "SELECT 1 FROM instances WHERE blocked_on = 'slot:gpu'"), "it to block")
            go_on.set()
        assert await other.result(timeout=SOON) == {"quick": "done"}
        assert await status(app, waiting) == "awaiting_signal"
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": 1}


async def test_j7_work_that_another_process_blocks_on_the_key_gets_it(store: Store) -> None:
    async with Hark(store.url, **store.options, linger=LONG) as app:
        app.handler("work")(wait_for_s)
        async with app.worker():
            waiting = await app.start(one_task(concurrency_key="gpu"))
            await lingers(app, waiting)
            async with Hark(store.url, **store.options) as other:

                @other.handler("quick")
                async def quick_(task: TaskContext) -> str:
                    return "done"

                async with other.worker():
                    job = await other.start(quick(concurrency_key="gpu"))
                    assert await job.result(timeout=SOON) == {"quick": "done"}
            assert await status(app, waiting) == "awaiting_signal"


async def test_j7_a_handler_that_runs_a_function_beside_its_wait_keeps_its_slot_until_it_has_ended(
    store: Store,
) -> None:
    go_on, calls = asyncio.Event(), []

    async def slow() -> str:
        calls.append(1)
        await go_on.wait()
        return "paid"

    async def work(task: TaskContext) -> Any:
        return await asyncio.gather(task.wait_for_signal("s", timeout=600), task.run(slow))

    async with working(store, work) as app:
        waiting = await app.start(one_task())
        await until(lambda: query(store, "SELECT 1 FROM waits WHERE name = 's'"), "the wait to be armed")
        other = await app.start(quick())
        await until(lambda: query(store, "SELECT 1 FROM instances WHERE step = 'quick'"), "its task to wait")
        await asyncio.sleep(0.2)
        assert await status(app, waiting) == "executing"
        go_on.set()
        assert await other.result(timeout=SOON) == {"quick": "done"}
        await waiting.signal("s", 1)
        assert await waiting.result(timeout=SOON) == {"work": [1, "paid"]}
        assert calls == [1]


async def test_j7_a_signal_that_comes_when_the_handler_is_asked_to_leave_is_not_lost(store: Store) -> None:
    """Both orders, many times: the signal reaches the handler in its slot, or wakes its task."""
    rounds = 20

    async def work(task: TaskContext) -> Any:
        kept = await task.load_checkpoint() or []
        while len(kept) < rounds:
            kept.append(await task.wait_for_signal("s", timeout=600))
            await task.checkpoint(kept)
        return kept

    async with working(store, work) as app:
        waiting = await app.start(one_task())
        for n in range(rounds):
            if n % 3:  # in its slot or parked; and in the other rounds before it waits again
                await until(lambda: query(store, "SELECT 1 FROM waits WHERE fired_at IS NULL AND name = 's'"), "it")
            start, send = app.start(quick()), waiting.signal("s", n)
            await send
            assert await (await start).result(timeout=SOON) == {"quick": "done"}
        assert await waiting.result(timeout=SOON) == {"work": list(range(rounds))}


async def test_j7_many_handlers_that_wait_let_ten_times_as_many_tasks_pass(store: Store) -> None:
    async with working(store, slots=4) as app:
        waiting = [await app.start(one_task()) for _ in range(8)]
        jobs = [await app.start(quick()) for _ in range(40)]
        for job in jobs:
            assert await job.result(timeout=60) == {"quick": "done"}
        for n, job in enumerate(waiting):
            await job.signal("s", n)
        assert [await job.result(timeout=60) for job in waiting] == [{"work": n} for n in range(8)]
