"""Waiting until an instance has a status, or an open awakeable, without polling in the caller."""

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from hark import (
    Await,
    Child,
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
    Reply,
    Spawn,
    Stop,
    step,
    workflow,
)
from hark.engine.callers.waiting import Ended, Waiters, WaitingCallers
from hark.engine.turns.reply import answer_all
from hark.store import reads
from hark.store.protocol import Lost
from hark.testing import Harness
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


# -- a status --------------------------------------------------------------------------------------


async def test_a_status_the_instance_has_already_is_answered_immediately(store: Store) -> None:
    async with app_on(store) as app:
        order = await app.start(Order, correlation_key="order:1")
        found = await order.wait_for("runnable", 20)
        assert (found.id, found.status) == (order.id, "runnable")
        assert (await order.wait_for("runnable", timeout=0)).id == order.id
        assert (await Handle(app, "order:1").wait_for("runnable", 20)).id == order.id  # by its key too


async def test_every_status_of_a_life_can_be_waited_for(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        order = await app.start(Order)
        parked = await order.wait_for("awaiting_signal", 20)
        assert [wait.name for wait in parked.waits] == ["paid"]
        end = order.wait_for("done", 20)
        await order.signal("paid", 5)
        assert (await end).result == 5
        family = await app.start(Family)
        await family.wait_for("awaiting_children", 20)
        await family.cancel()
        assert (await family.wait_for("cancelled", 20)).status == "cancelled"


async def test_a_commit_of_this_process_answers_without_a_poll(sqlite_store: Store) -> None:
    """A poll sees only what other connections wrote; renewing a lease is such a write, so not in this test."""
    async with app_on(sqlite_store, lease=900) as app, app.worker():
        order = await app.start(Order)
        await order.wait_for("awaiting_signal", 20)
        waiting = order.wait_for("done", 20)
        await until(lambda: order.id in app._clerk.waiting.for_levels, "the waiter")
        await order.signal("paid", 1)
        assert (await waiting).status == "done"


async def test_a_status_reached_in_another_process_is_found(store: Store) -> None:
    app, other = app_on(store), app_on(store)
    async with app, other, other.worker():
        order = await app.start(Order)
        assert (await order.wait_for("awaiting_signal", 20)).step == "ship"
        end = order.wait_for("done", 20)
        await other.signal(order.id, "paid", 7)
        assert (await end).result == 7


async def test_a_finished_instance_cannot_reach_another_status(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        order = await app.start(Order)
        waiting = [order.wait_for(status) for status in ("done", "awaiting_children")]
        await order.signal("paid", None)
        for reply, wanted in zip(waiting, ("done", "awaiting_children"), strict=True):
            with pytest.raises(Conflict, match=f"is failed: it cannot reach status '{wanted}'") as caught:
                await asyncio.wait_for(_read(reply), 20)
            assert caught.value.status == "failed"
        with pytest.raises(Conflict, match="is failed"):
            await order.wait_for("executing")


@pytest.mark.parametrize("timeout", [0, 0.05, timedelta(milliseconds=1)])
async def test_the_wait_has_a_timeout_and_the_work_goes_on(store: Store, timeout: Any) -> None:
    async with app_on(store) as app, app.worker():
        order = await app.start(Order)
        with pytest.raises(TimeoutError, match=r"did not reach status 'done' within 0\S* s; its work continues"):
            await order.wait_for("done", timeout)
        with pytest.raises(TimeoutError, match=r"opened no awakeable within 0\S* s; its work continues"):
            await app.wait_for_awakeable(job=order, timeout=timeout)
        assert not app._clerk.waiting.for_levels
        await order.signal("paid", 1)
        assert await order.result(timeout=20) == 1


async def test_wait_for_refuses_what_is_not_a_status_or_a_timeout() -> None:
    async with Harness(Order) as app:
        order = await app.start(Order)
        for wrong in ("finished", None, 5):
            with pytest.raises(InvalidInput, match="awaiting_signal"):
                await order.wait_for(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput, match="timeout"):
            await order.wait_for("done", timeout=-1)


async def test_an_unknown_target_is_not_found(store: Store) -> None:
    async with app_on(store) as app:
        with pytest.raises(NotFound, match="no-such-instance"):
            await Handle(app, "no-such-instance").wait_for("done")
        with pytest.raises(NotFound, match="no-such-instance"):
            await app.wait_for_awakeable(job="no-such-instance")


async def test_many_waiters_share_one_read(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        orders = await app.start_many([(Order, None)] * 100)
        for order in orders:
            await order.wait_for("awaiting_signal", 20)
        waiting = [order.wait_for("done", 20) for order in orders for _ in range(2)]
        await until(lambda: len(app._clerk.waiting.for_levels._by_id) == len(orders), "all waiters")
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
        for order in orders:
            order.signal("paid", 1)
        for reply in waiting:
            assert (await reply).status == "done"


async def test_a_caller_that_stops_waiting_leaves_nothing_behind(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        order = await app.start(Order)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_read(order.wait_for("done")), 0.05)
        app._clerk.hint()
        await until(lambda: not app._clerk.waiting.for_levels, "the waiter to be removed")


def test_sync_code_waits_too(store: Store) -> None:
    app = app_on(store)
    with app, app.worker():
        order = app.start(Order).result()
        assert order.wait_for("awaiting_signal", 20).result().status == "awaiting_signal"
        question = app.wait_for_awakeable(job=app.start(ask_twice).result(), timeout=20).result()
        assert question.title == "First?"
        waiting = order.wait_for("done")
    with pytest.raises(NotOpen, match="closed"):
        waiting.result(20)
    with pytest.raises(NotOpen):
        order.wait_for("done")


# -- an awakeable ----------------------------------------------------------------------------------


async def test_the_oldest_open_awakeable_is_returned(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        job = await app.start(ask_twice)
        first = await app.wait_for_awakeable(job=job.id, timeout=20)
        assert (first.title, first.status, first.instance_id) == ("First?", "PENDING", job.id)
        assert first.url
        assert first == await app.awakeable(first.id)
        await app.resolve(first.id, 1)
        second = await app.wait_for_awakeable(job=job.id, timeout=20)
        assert second.title == "Second?"
        await app.resolve(second.id, 2)
        assert await job.result(timeout=20) == [2, 1]


async def test_an_awakeable_that_is_opened_later_is_waited_for(store: Store) -> None:
    app, other = app_on(store), app_on(store)
    async with app, other, other.worker():
        job = await app.start(ask_late, correlation_key="deploy:7")
        await job.wait_for("awaiting_signal", 20)
        here = app.wait_for_awakeable(job="deploy:7", timeout=20)
        there = other.wait_for_awakeable(job=job, timeout=20)
        await app.signal(job, "go")
        assert (await here).id == (await there).id
        await app.resolve((await here).id, True)
        assert await job.result(timeout=20) is True


async def test_an_instance_that_ends_without_an_awakeable_is_a_conflict(store: Store) -> None:
    async with app_on(store) as app, app.worker():
        job = await app.start(ask_nothing)
        waiting = app.wait_for_awakeable(job=job.id)
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
        found = await held.wait_for("executing", timeout=60)
        while how == "timeout" and found.step == "start":  # it has not parked yet
            found = await held.wait_for("executing", timeout=60)
        assert found.status == "executing"
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


# -- a check that is held, fails, or never begins -------------------------------------------------


class HeldCheck:
    """Holds the first check of an app that reads this status, until the test sets `release`."""

    def __init__(self, app: Hark, status: str) -> None:
        self.reading, self.release = threading.Event(), threading.Event()
        self._status = status
        self._read = app._clerk.store.read
        app._clerk.store.read = self._held

    async def _held(self, statement: Any, *args: Any, **values: Any) -> Any:
        rows = await self._read(statement, *args, **values)
        if statement is reads.statuses and not self.reading.is_set() and self._status in [row[1] for row in rows]:
            self.reading.set()
            while not self.release.is_set():
                await asyncio.sleep(0.001)
        return rows


async def waiting_after_its_first_check(order: Handle, status: Any) -> Reply[Any]:
    """Wait for a status that the instance does not have yet, so that a later check finds it."""
    current = (await order.get()).status
    waiting = order.wait_for(status, 20)
    await order.wait_for(current, 20)  # this one is checked after `waiting`, or in the same read
    return waiting


async def test_a_status_reached_while_a_check_reads_is_found(sqlite_store: Store) -> None:
    app = app_on(sqlite_store, lease=900)  # renewing a lease is a write that a poll sees: not in this test
    async with app, app.worker():
        order = await app.start(Order)
        await order.wait_for("awaiting_signal", 20)
        waiting = await waiting_after_its_first_check(order, "done")
        check = HeldCheck(app, "awaiting_signal")
        app._clerk.hint()
        await until(check.reading.is_set, "a check that reads")
        await order.signal("paid", 1)
        await order.result(timeout=20)
        check.release.set()
        assert (await waiting).status == "done"


async def test_a_check_that_the_database_did_not_answer_is_repeated(sqlite_store: Store) -> None:
    app = app_on(sqlite_store, lease=900)
    failed, answers = threading.Event(), threading.Event()
    async with app, app.worker():
        order = await app.start(Order)
        await order.wait_for("awaiting_signal", 20)
        waiting = await waiting_after_its_first_check(order, "done")
        read = app._clerk.store.read

        async def lost(statement: Any, *args: Any, **values: Any) -> Any:
            if statement is reads.statuses and not answers.is_set():
                failed.set()
                raise Lost("gone")
            return await read(statement, *args, **values)

        app._clerk.store.read = lost
        await order.signal("paid", 1)
        await order.result(timeout=20)
        await order.get()  # the clerk's loop begins this read after the check of the turn that ended the instance
        assert failed.is_set()
        answers.set()
        assert (await waiting).status == "done"


async def test_a_status_that_was_left_before_the_instance_was_read_is_not_an_answer(store: Store) -> None:
    app, other = app_on(store), app_on(store)
    async with app, other:
        order = await app.start(Order)
        waiting = await waiting_after_its_first_check(order, "awaiting_signal")
        check = HeldCheck(app, "awaiting_signal")
        async with other.worker():
            await until(check.reading.is_set, "a check that reads")
            await other.signal(order.id, "paid", 1)
            await other.result(order.id, timeout=20)
            check.release.set()
            with pytest.raises(Conflict, match="is done: it cannot reach status 'awaiting_signal'"):
                await waiting


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_end_while_the_target_is_looked_up_is_found(elsewhere: bool) -> None:
    """In this process it is the answer; in another one the hint causes a check once the caller waits."""
    end, checks = ("x", "done", "1", None), []

    async def look_up(question: Any, found: Reply[Any]) -> None:
        if elsewhere:
            waiting.hint()
        else:
            waiting.after_turn(None, {"x": end}, keeps_statuses=True)  # type: ignore[arg-type]
        answer_all([(found, [("x", "x", "executing", None, None)])])

    waiting = WaitingCallers(look_up, None, lambda: checks.append("x" in waiting.for_ends))  # type: ignore[arg-type]
    reply: Reply[Any] = Reply()
    waiting.asked.append(("x", Ended(), None, reply))
    await waiting._resolve()
    assert (reply.done(), checks) == ((False, [True]) if elsewhere else (True, []))
    if not elsewhere:
        assert await reply == end


async def test_a_wait_that_has_not_begun_when_the_app_closes_is_answered(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app_on(sqlite_store) as app:
        order = await app.start(Order)
        monkeypatch.setattr(app._clerk.waiting, "_spawn", lambda: None)
        waiting = order.wait_for("done")
    with pytest.raises(NotOpen, match="closed"):
        await asyncio.wait_for(_read(waiting), 20)
