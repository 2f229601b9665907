"""An asyncio.TaskGroup in the code of a user: before Python 3.13 it leaves its task marked as cancelled when it fails,
which is not the cancellation of the activation."""

import asyncio
from typing import Any

import pytest

from hark import Context, Done, Hark, InstanceFailed, Machine, RunFailed, step, workflow
from tests.promises.test_j7_waiting import one_task
from tests.support.stores import Store


async def failing() -> None:
    raise ValueError("the cause")


async def in_a_group(*_: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(failing())


class Grouped(Machine):
    @step
    async def start(self, ctx: Context[Any]) -> Any:
        await in_a_group()

    def handle(self, error: Exception, ctx: Context[Any]) -> Any:
        return Done(type(error).__name__)


@workflow
async def grouped_run(ctx: Any) -> str:
    try:
        await ctx.run(in_a_group)
    except RunFailed as error:
        return error.type
    return "nothing"


async def test_the_error_of_a_group_is_the_error_of_a_step_and_of_a_run(sqlite_store: Store) -> None:
    async with Hark(sqlite_store.url, **sqlite_store.options) as app, app.worker():
        app.register(Grouped, grouped_run)
        assert await (await app.start(Grouped)).result() == "ExceptionGroup"
        assert await (await app.start(grouped_run)).result() == "ExceptionGroup"


async def test_the_error_of_a_group_is_the_error_of_the_attempt(sqlite_store: Store) -> None:
    attempts: list[int] = []

    async def work(task: Any) -> None:
        attempts.append(task.attempt)
        await in_a_group()

    async with Hark(sqlite_store.url, **sqlite_store.options) as app, app.worker():
        app.handler("work")(work)
        job = await app.start(one_task(retry={"limit": 2, "delay": 0}))
        with pytest.raises(InstanceFailed, match="ExceptionGroup"):
            await job.result()
        assert attempts == [1, 2]


async def test_a_handler_that_runs_on_after_a_failed_group_times_out(sqlite_store: Store) -> None:
    async def work(task: Any) -> None:
        try:
            await in_a_group()
        except* ValueError:
            await asyncio.Event().wait()

    async with Hark(sqlite_store.url, **sqlite_store.options) as app, app.worker():
        app.handler("work")(work)
        job = await app.start(one_task(timeout_sec=0.05))
        with pytest.raises(InstanceFailed, match="timeout_sec"):
            await job.result()


async def test_waits_in_a_group_park_and_go_on(sqlite_store: Store) -> None:
    async def wait(task: Any, name: str) -> Any:
        return await task.wait_for_signal(name, timeout=600)

    async def work(task: Any) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(wait(task, name)) for name in ("a", "b")]
        return [one.result() for one in waits]

    async with Hark(sqlite_store.url, **sqlite_store.options, linger=0) as app, app.worker():
        app.handler("work")(work)
        job = await app.start(one_task())
        await app.signal(job.id, "b", 2)
        await app.signal(job.id, "a", 1)
        assert await job.result() == {"work": [1, 2]}
