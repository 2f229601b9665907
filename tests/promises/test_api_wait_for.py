"""`handle.wait_for(status)` and `app.wait_for_awakeable(job=…)`: a caller waits for a condition without polling."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Conflict,
    Context,
    Done,
    FunctionContext,
    Handle,
    Hark,
    InvalidInput,
    Machine,
    NotFound,
    NotOpen,
    step,
    workflow,
)
from hark.testing import Harness
from tests.support.stores import Store


class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


@workflow
async def asks(ctx: FunctionContext, first: str = "first?", second: str | None = None) -> list[Any]:
    await ctx.wait_for_signal("go")
    answers = [await (await ctx.awakeable(title=first))]
    if second is not None:
        answers.append(await (await ctx.awakeable(title=second)))
    return answers


async def test_wait_for_returns_the_instance_when_it_has_the_status(store: Store) -> None:
    async with Hark(store.url, **store.options) as app, app.worker():
        order = await app.start(Order)
        parked = await order.wait_for("awaiting_signal", timeout=30)
        assert (parked.id, parked.status) == (order.id, "awaiting_signal")
        assert [wait.name for wait in parked.waits] == ["paid"]
        ended = order.wait_for("done", timeout=30)
        await order.signal("paid", 5)
        assert ((await ended).status, (await ended).result) == ("done", 5)
        assert (await order.wait_for("done", timeout=0)).result == 5  # it has it already


async def test_wait_for_sees_what_another_process_does(store: Store) -> None:
    async with Hark(store.url, **store.options) as here, Hark(store.url, **store.options) as there:
        here.register(Order)
        there.register(Order)
        order = await here.start(Order)
        waiting = order.wait_for("awaiting_signal", timeout=30)
        async with there.worker():
            assert (await waiting).status == "awaiting_signal"


async def test_wait_for_a_status_that_cannot_be_reached_any_more_is_a_conflict() -> None:
    async with Harness(Order) as app:
        order = await app.start(Order)
        waiting = order.wait_for("done")
        await order.cancel()
        with pytest.raises(Conflict, match="cannot reach status 'done'") as late:
            await waiting
        assert late.value.status == "cancelled"


@pytest.mark.parametrize("timeout", [0, 0.01, timedelta(milliseconds=1)])
async def test_wait_for_times_out_and_the_work_continues(timeout: Any) -> None:
    async with Harness(Order) as app:
        order = await app.start(Order)
        with pytest.raises(TimeoutError, match="did not reach status 'done'"):
            await order.wait_for("done", timeout)
        await app.drain()
        await order.signal("paid", 1)
        await app.drain()
        assert await order.result() == 1


async def test_wait_for_refuses_what_is_not_a_status_or_a_timeout() -> None:
    async with Harness(Order) as app:
        order = await app.start(Order)
        for wrong in ("finished", None, 5):
            with pytest.raises(InvalidInput, match="awaiting_signal"):
                await order.wait_for(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="timeout"):
            await order.wait_for("done", timeout=-1)


async def test_wait_for_an_instance_that_is_not_there_is_not_found() -> None:
    async with Harness(Order) as app:
        with pytest.raises(NotFound):
            await Handle(app, "missing").wait_for("done")
        with pytest.raises(NotFound):
            await app.wait_for_awakeable(job="missing")


async def test_wait_for_awakeable_returns_the_open_one(store: Store) -> None:
    async with Hark(store.url, **store.options) as app, app.worker():
        job = await app.start(asks, {"first": "A?", "second": "B?"}, correlation_key="job:1")
        waiting = app.wait_for_awakeable(job=job, timeout=30)
        await job.signal("go")
        question = await waiting
        assert (question.title, question.status, question.instance_id) == ("A?", "PENDING", job.id)
        assert question == await app.awakeable(question.id)
        await app.resolve(question.id, 1)
        while (question := await app.wait_for_awakeable(job="job:1", timeout=30)).title == "A?":
            await asyncio.sleep(0)
        assert question.title == "B?"
        await app.resolve(question.id, 2)
        assert await job.result(timeout=30) == [1, 2]


async def test_wait_for_awakeable_of_a_finished_instance_is_a_conflict() -> None:
    async with Harness(asks) as app:
        job = await app.start(asks)
        waiting = app.wait_for_awakeable(job=job.id)
        await job.cancel()
        with pytest.raises(Conflict, match="no open awakeable"):
            await waiting


async def test_wait_for_awakeable_times_out() -> None:
    async with Harness(asks) as app:
        job = await app.start(asks)
        with pytest.raises(TimeoutError, match="opened no awakeable"):
            await app.wait_for_awakeable(job=job, timeout=0.01)


def test_wait_for_works_in_synchronous_code(sqlite_store: Store) -> None:
    with Hark(sqlite_store.url) as app, app.worker():
        job = app.start(asks).result()
        assert job.wait_for("awaiting_signal", timeout=30).result().waits[0].name == "go"
        job.signal("go").result()
        question = app.wait_for_awakeable(job=job, timeout=30).result()
        app.resolve(question.id, "yes").result()
        assert job.wait_for("done", timeout=30).result().result == ["yes"]


async def test_callers_that_wait_for_something_are_told_when_the_app_closes() -> None:
    app = Harness(Order)
    async with app:
        order = await app.start(Order)
        waiting = order.wait_for("done")
    with pytest.raises(NotOpen):
        await waiting
