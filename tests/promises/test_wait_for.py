"""Waiting until an instance has a status, or an open awakeable, without polling in the caller."""

import asyncio
import time
from typing import Any

import pytest

from hark import (
    Await,
    Awakeable,
    Child,
    Conflict,
    Context,
    Done,
    FunctionContext,
    Hark,
    Instance,
    Machine,
    NotFound,
    NotOpen,
    Reply,
    Spawn,
    Stop,
    step,
    workflow,
)
from hark.runtime.waiters import Waiters
from hark.store import reads
from tests.support.inspect import until
from tests.support.stores import Store


class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Context) -> Done | Stop:
        if ctx.awaited[0].payload is None:
            return Stop("no money")
        return Done(ctx.awaited[0].payload)


class Family(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Order)], then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


@workflow
async def ask_twice(ctx: FunctionContext) -> list[Any]:
    first = await ctx.awakeable(title="First?")
    second = await ctx.awakeable(title="Second?")
    return [await second, await first]


@workflow
async def ask_late(ctx: FunctionContext) -> Any:
    await ctx.wait_for_signal("go")
    return await (await ctx.awakeable(title="Deploy?"))


@workflow
async def ask_nothing(ctx: FunctionContext) -> None:
    await ctx.wait_for_signal("go")


def app_on(store: Store, **options: Any) -> Hark:
    app = Hark(store.url, **store.options, **options)
    app.register(Order, Family, ask_twice, ask_late, ask_nothing)
    return app


def wait_for(app: Hark, target: str, status: Any, timeout: float | None = None) -> Reply[Instance]:
    return app._wait_for_status(target, status, timeout)


def wait_for_awakeable(app: Hark, job: str, timeout: float | None = None) -> Reply[Awakeable]:
    return app.wait_for_awakeable(job=job, timeout=timeout)


# -- a status --------------------------------------------------------------------------------------


async def test_a_status_the_instance_has_already_is_answered_immediately(store: Store) -> None:
    async with app_on(store) as app:
        order = await app.start(Order, correlation_key="order:1")
        found = await wait_for(app, order.id, "runnable", 20)
        assert (found.id, found.status) == (order.id, "runnable")
        assert (await wait_for(app, "order:1", "runnable", 20)).id == order.id  # by its key too


async def test_every_status_of_a_life_can_be_waited_for(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        order = await app.start(Order)
        parked = await wait_for(app, order.id, "awaiting_signal", 20)
        assert [wait.name for wait in parked.waits] == ["paid"]
        end = wait_for(app, order.id, "done", 20)
        await order.signal("paid", 5)
        assert (await end).result == 5
        family = await app.start(Family)
        await wait_for(app, family.id, "awaiting_children", 20)
        await family.cancel()
        assert (await wait_for(app, family.id, "cancelled", 20)).status == "cancelled"


async def test_a_commit_of_this_process_answers_without_a_poll(sqlite_store: Store) -> None:
    """A poll would find only what other processes wrote; and nothing is read until something happens."""
    app = app_on(sqlite_store)
    async with app, app.worker():
        order = await app.start(Order)
        await wait_for(app, order.id, "awaiting_signal", 20)
        app._clerk.store.poll = 3600
        await asyncio.sleep(0.1)  # the poll that was under way
        waiting = wait_for(app, order.id, "done", 20)
        await until(lambda: order.id in app._clerk.conditions.waiting, "the waiter")
        begin = time.monotonic()
        await order.signal("paid", 1)
        await waiting
        assert time.monotonic() - begin < 5


async def test_a_status_reached_in_another_process_is_found(store: Store) -> None:
    app, other = app_on(store), app_on(store)
    async with app, other, other.worker():
        order = await app.start(Order)
        assert (await wait_for(app, order.id, "awaiting_signal", 20)).step == "ship"
        end = wait_for(app, order.id, "done", 20)
        await other.signal(order.id, "paid", 7)
        assert (await end).result == 7


async def test_a_finished_instance_cannot_reach_another_status(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        order = await app.start(Order)
        waiting = [wait_for(app, order.id, status) for status in ("done", "awaiting_children")]
        await order.signal("paid", None)
        for reply, wanted in zip(waiting, ("done", "awaiting_children"), strict=True):
            with pytest.raises(Conflict, match=f"is failed: it cannot reach status '{wanted}'") as caught:
                await asyncio.wait_for(_read(reply), 20)
            assert caught.value.status == "failed"
        with pytest.raises(Conflict, match="is failed"):
            await wait_for(app, order.id, "executing")


async def test_the_wait_has_a_timeout_and_the_work_goes_on(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        order = await app.start(Order)
        with pytest.raises(TimeoutError, match=r"did not reach status 'done' within 0\.05 s; its work continues"):
            await wait_for(app, order.id, "done", 0.05)
        with pytest.raises(TimeoutError, match=r"opened no awakeable within 0\.05 s; its work continues"):
            await wait_for_awakeable(app, order.id, 0.05)
        assert not app._clerk.conditions.waiting
        await order.signal("paid", 1)
        assert await order.result(timeout=20) == 1


async def test_an_unknown_target_is_not_found(store: Store) -> None:
    async with app_on(store) as app:
        with pytest.raises(NotFound, match="no-such-instance"):
            await wait_for(app, "no-such-instance", "done")
        with pytest.raises(NotFound, match="no-such-instance"):
            await wait_for_awakeable(app, "no-such-instance")


async def test_many_waiters_share_one_read(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        orders = [handle.id for handle in await app.start_many([(Order, None)] * 100)]
        for id in orders:
            await wait_for(app, id, "awaiting_signal", 20)
        waiting = [wait_for(app, id, "done", 20) for id in orders for _ in range(2)]
        await until(lambda: len(app._clerk.conditions.waiting.alive()) == len(orders), "all waiters")
        asked: list[int] = []
        read = app._clerk.store.read

        async def counted(statement: Any, *args: Any, **values: Any) -> Any:
            if statement is reads.statuses:
                asked.append(len(values["ids"]))
            return await read(statement, *args, **values)

        app._clerk.store.read = counted
        app._clerk.hint()
        await until(lambda: asked, "a check")
        assert asked[0] == len(orders)
        for id in orders:
            app.signal(id, "paid", 1)
        for reply in waiting:
            assert (await reply).status == "done"
        assert len(asked) < len(orders)


async def test_a_caller_that_stops_waiting_leaves_nothing_behind(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        order = await app.start(Order)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_read(wait_for(app, order.id, "done")), 0.05)
        app._clerk.hint()
        await until(lambda: not app._clerk.conditions.waiting, "the waiter to be removed")


def test_sync_code_waits_too(store: Store) -> None:
    app = app_on(store)
    with app, app.worker():
        order = app.start(Order).result()
        assert wait_for(app, order.id, "awaiting_signal", 20).result().status == "awaiting_signal"
        waiting = wait_for(app, order.id, "done")
    with pytest.raises(NotOpen, match="closed"):
        waiting.result(20)
    with pytest.raises(NotOpen):
        wait_for(app, order.id, "done")


# -- an awakeable ----------------------------------------------------------------------------------


async def test_the_oldest_open_awakeable_is_returned(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        job = await app.start(ask_twice)
        first = await wait_for_awakeable(app, job.id, 20)
        assert (first.title, first.status, first.instance_id) == ("First?", "PENDING", job.id)
        assert first.url
        await app.resolve(first.id, 1)
        second = await wait_for_awakeable(app, job.id, 20)
        assert second.title == "Second?"
        await app.resolve(second.id, 2)
        assert await job.result(timeout=20) == [2, 1]


async def test_an_awakeable_that_is_opened_later_is_waited_for(store: Store) -> None:
    app, other = app_on(store), app_on(store)
    async with app, other, other.worker():
        job = await app.start(ask_late, correlation_key="deploy:7")
        await wait_for(app, job.id, "awaiting_signal", 20)
        here, there = wait_for_awakeable(app, "deploy:7", 20), wait_for_awakeable(other, job.id, 20)
        await app.signal(job, "go")
        assert (await here).id == (await there).id
        await app.resolve((await here).id, True)
        assert await job.result(timeout=20) is True


async def test_an_instance_that_ends_without_an_awakeable_is_a_conflict(store: Store) -> None:
    app = app_on(store)
    async with app, app.worker():
        job = await app.start(ask_nothing)
        waiting = wait_for_awakeable(app, job.id)
        await job.signal("go")
        with pytest.raises(Conflict, match="is done: it has no open awakeable") as caught:
            await asyncio.wait_for(_read(waiting), 20)
        assert caught.value.status == "done"


async def _read(reply: Reply[Any]) -> Any:
    return await reply


class Held(Machine):
    """Executes until the test releases it; with `wait`, after that many seconds in an Await."""

    release: asyncio.Event

    @step
    async def start(self, ctx: Context) -> Await | Done:
        if ctx.state.get("wait"):
            return Await(then=self.hold, timeout=ctx.state["wait"])
        return await self.hold(ctx)

    @step
    async def hold(self, ctx: Context) -> Done:
        await self.release.wait()
        return Done()


@pytest.mark.parametrize("how", ["delay", "timeout"])
async def test_a_status_that_no_request_led_to_is_noticed(store: Store, how: str) -> None:
    """A turn that only sweeps and claims has no requests, and on SQLite no poll sees this process's own commits."""
    Held.release = asyncio.Event()
    # Renewing a lease writes to the file, which is a hint; not in this test.
    async with Hark(store.url, **store.options, lease=900) as app, app.worker():
        if how == "delay":
            held = await app.start(Held, {}, delay=0.3)
        else:
            held = await app.start(Held, {"wait": 0.3})
            await held.wait_for("awaiting_signal", timeout=60)
        assert (await held.wait_for("executing", timeout=30)).status == "executing"
        Held.release.set()
        await held.wait_for("done", timeout=60)


async def test_a_condition_that_is_met_already_leaves_no_timer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[float | None] = []
    start_timeout = Waiters.start_timeout

    def record(waiters: Any, id: str, waiter: Any, seconds: float | None) -> None:
        started.append(seconds)
        start_timeout(waiters, id, waiter, seconds)

    async with Hark(store.url, **store.options) as app, app.worker():
        order = await app.start(Order)
        await order.signal("paid", 1)
        await order.wait_for("done", timeout=60)
        monkeypatch.setattr(Waiters, "start_timeout", record)
        await order.wait_for("done", timeout=3600)
        await order.wait_for("done", timeout=3600)  # the first call has ended on the clerk's loop by then
        assert started == []
