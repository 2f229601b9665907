"""J6: a wait that the handler has given up takes no signal from the waits that follow it."""

import asyncio
import threading
from typing import Any

import pytest

from hark import Hark
from tests.promises.support_jobs import one_task
from tests.promises.test_j7_waiting import LONG, is_armed, lingering
from tests.support.inspect import query, until
from tests.support.stores import Store


async def given_up(call: Any, armed: asyncio.Event) -> None:
    """Begin a call of a handler, and cancel it when it is armed."""

    async def wait() -> Any:
        return await call

    waiting = asyncio.ensure_future(wait())
    await armed.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_j6_a_signal_goes_past_a_wait_that_was_given_up(store: Store) -> None:
    armed, again = asyncio.Event(), asyncio.Event()

    async def work(task: Any) -> Any:
        await given_up(task.wait_for_signal("go", timeout=600), armed)
        await task.put_stream("given up")
        again.set()
        return await task.wait_for_signal("go", timeout=600)

    async with lingering(store, work) as (app, job):
        await until(lambda: is_armed(store, "go"), "the first wait")
        armed.set()
        await again.wait()
        await app.signal(job.id, "go", 1)
        assert await job.result() == {"work": 1}
        assert await query(store, "SELECT count(*) FROM waits WHERE name = 'go'") == [(0,)]


async def test_j6_a_signal_that_a_wait_received_and_the_handler_gave_up_goes_to_the_next_wait(store: Store) -> None:
    async def work(task: Any) -> Any:
        async def wait() -> Any:
            return await task.wait_for_signal("go", timeout=600)

        waiting = asyncio.ensure_future(wait())
        await until(lambda: is_armed(store, "go"), "the first wait")
        sender = threading.Thread(target=lambda: app.signal(task.run_id, "go", 1).result())
        sender.start()
        sender.join()  # it is committed, and this loop could not be told of it
        waiting.cancel()
        return await task.wait_for_signal("go", timeout=600)

    async with lingering(store, work) as (app, job):
        assert await job.result() == {"work": 1}


async def test_j6_a_wait_given_up_before_a_park_does_not_wake_the_task(store: Store) -> None:
    armed = asyncio.Event()
    begun = 0

    async def work(task: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 1:
            await given_up(task.wait_for_signal("other", timeout=600), armed)
        return await task.wait_for_signal("go", timeout=600)

    async with Hark(store.url, **store.options, linger=0) as app, app.worker():
        app.handler("work")(work)
        app._services.linger = LONG
        job = await app.start(one_task())
        await until(lambda: is_armed(store, "other"), "the first wait")
        app._services.linger = 0
        armed.set()
        await until(lambda: _is_parked(app, job.id), "the task to park")
        assert [wait.name for wait in await app.waits() if wait.kind == "signal"] == ["go"]
        await app.signal(job.id, "other", 0)
        await app.signal(job.id, "go", 1)
        assert await job.result() == {"work": 1}
        assert begun == 2


async def _is_parked(app: Hark, job: str) -> bool:
    return (await app.get(f"{job}.0")).status == "awaiting_signal"


async def test_j6_a_signal_that_the_handler_gave_up_without_having_seen_it_goes_to_the_next_wait(store: Store) -> None:
    async def work(task: Any) -> Any:
        call = task.wait_for_signal("go", timeout=600)

        async def wait() -> Any:
            return await call

        waiting = asyncio.ensure_future(wait())
        while not call.done():
            await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await call  # given up for all that await it
        seen = await task.wait_for_signal("go", timeout=600)
        await task.checkpoint("seen")
        return [seen, await task.wait_for_signal("go", timeout=600)]

    async with lingering(store, work) as (app, job):
        await until(lambda: is_armed(store, "go"), "the first wait")
        for n in (1, 2):
            await app.signal(job.id, "go", n)
        assert await job.result(timeout=60) == {"work": [1, 2]}
