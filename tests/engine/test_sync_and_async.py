"""One API for sync and async code: every verb can be awaited, or blocked on with `.result()`."""

import asyncio
import gc
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hark import (
    Await,
    Context,
    Done,
    Duplicate,
    Hark,
    InstanceCancelled,
    InstanceFailed,
    InvalidInput,
    Machine,
    NoTarget,
    NotFound,
    NotOpen,
    Reply,
    Start,
    Stop,
    WouldBlockEventLoop,
    step,
)
from tests.support.inspect import until
from tests.support.stores import Store


class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.ship)

    @step
    def ship(self, ctx: Context) -> Done | Stop:
        if ctx.awaited[0].payload is None:
            return Stop("no money")
        return Done({"paid": ctx.awaited[0].payload, "thread": threading.current_thread().name})


def open_app(store: Store, **options: Any) -> Hark:
    app = Hark(store.url, **{**store.options, **options})
    app.register(Order)
    return app


# -- sync code -------------------------------------------------------------------------------------


def test_the_whole_engine_from_sync_code(store: Store) -> None:
    app = open_app(store)
    with app, app.worker():
        order = app.start(Order, {"n": 1}, correlation_key="order:1").result()
        assert app.signal("order:1", "paid", 5).result().status in ("woke", "stored")
        assert order.result(timeout=20).result()["paid"] == 5
        assert order.get().result().status == "done"
        with pytest.raises(NoTarget):
            app.signal(order, "paid").result()
        with pytest.raises(NotFound):
            app.get("no-such-instance").result()
        many = app.start_many([(Order, None), Start(Order, id="named"), Start(Order, id="named")]).result()
        assert isinstance(many[2], Duplicate)
        assert app.cancel("named").result().status == "cancelled"
        with pytest.raises(InstanceCancelled):
            app.result("named").result()
        many[0].signal("paid", None).result()
        with pytest.raises(InstanceFailed, match="no money"):
            many[0].result().result()
        assert app.retry(many[0]).result().status in ("runnable", "executing", "failed")
        assert app.broadcast("no-subscriber").result() == 0
        assert {event.instance_id for event in app.events(order).result()} == {order.id}
        assert isinstance(app.waits().result(), list)
        assert {instance.id for instance in app.list().result()} >= {order.id, "named"}
        assert app.sweep().result() is None


def test_in_sync_code_the_worker_runs_steps_in_its_own_thread(store: Store) -> None:
    class Where(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done(threading.current_thread().name)

    app = open_app(store)
    with app, app.worker():
        name = app.result(app.start(Where).result(), timeout=20).result()
        assert name != threading.current_thread().name
    assert not any(thread.name == name for thread in threading.enumerate())


def test_a_call_acts_even_if_its_reply_is_never_read(store: Store) -> None:
    with open_app(store) as app:
        app.start(Order, id="unread")
        app.signal("unread", "early", 1)
        # Requests are answered in order: once this one is, those before it have been committed.
        app.start(Order, id="read").result()
        assert {instance.id for instance in app.list().result()} == {"unread", "read"}
        assert [event.type for event in app.events("unread").result()] == ["started", "signal"]


def test_a_reply_may_be_read_again_and_says_when_it_is_done() -> None:
    with Hark("sqlite://") as app:
        reply = app.start(Order, id="x")
        assert reply.result().id == reply.result().id == "x"
        assert reply.done()
        failed = app.start(Order, id="x")
        for _ in range(2):
            with pytest.raises(Duplicate):
                failed.result()


def test_invalid_arguments_raise_at_the_call_not_when_the_reply_is_read() -> None:
    with Hark("sqlite://") as app:
        with pytest.raises(InvalidInput):
            app.signal("x", "")
        with pytest.raises(InvalidInput):
            app.start(Order, delay=-1)
        with pytest.raises(InvalidInput):
            app.list(limit=0)


def test_blocking_may_have_a_timeout_and_the_work_continues(store: Store) -> None:
    app = open_app(store)
    with app, app.worker():
        order = app.start(Order).result()
        with pytest.raises(TimeoutError, match="continues"):
            order.result().result(timeout=0.01)
        with pytest.raises(TimeoutError, match="continues"):
            order.result(timeout=0.01).result()
        order.signal("paid", 1).result()
        assert order.result().result(timeout=20)["paid"] == 1


def test_many_threads_use_one_app_at_the_same_time(store: Store) -> None:
    app = open_app(store)

    def one(n: int) -> int:
        order = app.start(Order, {"n": n}, correlation_key=f"order:{n}").result()
        app.signal(f"order:{n}", "paid", n, dedup_key="k").result()
        assert app.signal(order, "paid", n, dedup_key="k").result().status == "duplicate"
        paid: int = order.result(timeout=60).result()["paid"]
        return paid

    with app, app.worker(), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(64))) == list(range(64))


def test_many_threads_may_block_on_one_reply(store: Store) -> None:
    app = open_app(store)
    with app, app.worker():
        order = app.start(Order).result()
        answer = order.result(timeout=60)
        with ThreadPoolExecutor(8) as pool:
            waiting = [pool.submit(answer.result) for _ in range(8)]
            order.signal("paid", "all").result()
            assert [one.result(60)["paid"] for one in waiting] == ["all"] * 8


# -- the running loop ------------------------------------------------------------------------------


async def test_blocking_the_running_loop_is_refused_with_a_hint_to_await(store: Store) -> None:
    async with open_app(store) as app:
        reply = app.start(Order, id="x")
        with pytest.raises(WouldBlockEventLoop, match="await"):
            reply.result()
        assert (await reply).id == "x"
        with pytest.raises(WouldBlockEventLoop):  # although it is done: another time the same line would hang
            reply.result()
        with pytest.raises(WouldBlockEventLoop), app:
            pass
        with pytest.raises(WouldBlockEventLoop), app.worker():
            pass


async def test_a_thread_beside_a_running_loop_may_block(store: Store) -> None:
    async with open_app(store) as app:
        order = await asyncio.to_thread(lambda: app.start(Order, id="from-a-thread").result())
        assert (await order.get()).id == "from-a-thread"


async def test_sync_steps_may_block_and_async_steps_may_not(store: Store) -> None:
    """Sync steps run in threads without an event loop."""

    class Caller(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            return Done(app.start(Order, id="by-a-step").result().id)

    class Confused(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done(app.start(Order).result().id)

    app = open_app(store)
    async with app, app.worker():
        assert await (await app.start(Caller)).result(timeout=20) == "by-a-step"
        confused = await app.start(Confused)
        with pytest.raises(InstanceFailed, match=r"WouldBlockEventLoop.*await"):
            await confused.result(timeout=20)


def test_one_app_serves_several_loops(store: Store) -> None:
    app = open_app(store)

    def in_a_loop(n: int) -> int:
        async def talk() -> int:
            order = await app.start(Order, correlation_key=f"loop:{n}")
            await order.signal("paid", n)
            paid: int = (await order.result(timeout=60))["paid"]
            return paid

        return asyncio.run(talk())

    with app, app.worker(), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(in_a_loop, range(8))) == list(range(8))


async def test_several_tasks_can_await_one_reply_and_again(store: Store) -> None:
    app = open_app(store)
    async with app, app.worker():
        order = await app.start(Order)
        answer = order.result(timeout=60)

        async def read() -> Any:
            return (await answer)["paid"]

        reads = [asyncio.create_task(read()) for _ in range(3)]
        await order.signal("paid", 9)
        assert await asyncio.gather(*reads) == [9, 9, 9]
        assert await read() == 9


async def test_fault_5_a_cancelled_wait_stops_only_the_waiting(store: Store) -> None:
    """A waiter that is cancelled while it registers leaves nothing behind."""
    app = open_app(store)
    async with app, app.worker():
        order = await app.start(Order)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(_of(order.result()), 0.01)
        await order.signal("paid", 1)
        assert (await order.result(timeout=20))["paid"] == 1


async def _of(reply: Reply[Any]) -> Any:
    return await reply


# -- errors that are never read --------------------------------------------------------------------


async def test_an_error_that_is_never_awaited_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with Hark("sqlite://") as app:
        with caplog.at_level(logging.ERROR, logger="hark"):
            app.signal("no-such-instance", "hello")
            await app.start(Order)
            gc.collect()
            # The clerk's thread drops the replies of a turn right after it has answered them.
            await until(lambda: "NoTarget" in caplog.text, "the error in the log")
            assert "no-such-instance" in caplog.text


# -- open and closed -------------------------------------------------------------------------------

VERBS = {
    "start": lambda app: app.start(Order),
    "start_many": lambda app: app.start_many([(Order, None)]),
    "signal": lambda app: app.signal("x", "y"),
    "signal_with_start": lambda app: app.signal_with_start(Order, "key", "paid"),
    "broadcast": lambda app: app.broadcast("x"),
    "message": lambda app: app.message("x", "key"),
    "resolve": lambda app: app.resolve("prom_1x"),
    "reject": lambda app: app.reject("prom_1x"),
    "claim": lambda app: app.claim("prom_1x", "ann"),
    "unclaim": lambda app: app.unclaim("prom_1x"),
    "awakeable": lambda app: app.awakeable("prom_1x"),
    "awakeables": lambda app: app.awakeables(),
    "get": lambda app: app.get("x"),
    "list": lambda app: app.list(),
    "result": lambda app: app.result("x"),
    "events": lambda app: app.events(),
    "waits": lambda app: app.waits(),
    "cancel": lambda app: app.cancel("x"),
    "retry": lambda app: app.retry("x"),
    "sweep": lambda app: app.sweep(),
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_an_app_that_is_not_open_says_how_to_open_it(verb: str) -> None:
    app = Hark("sqlite://")
    with pytest.raises(NotOpen, match="with app"):
        VERBS[verb](app)
    with app:
        pass
    with pytest.raises(NotOpen, match="with app"):
        VERBS[verb](app)


def test_a_worker_needs_an_open_app() -> None:
    app = Hark("sqlite://")
    with pytest.raises(NotOpen), app.worker():
        pass


async def test_an_async_worker_needs_an_open_app() -> None:
    app = Hark("sqlite://")
    with pytest.raises(NotOpen):
        async with app.worker():
            pass


def test_the_same_app_can_be_opened_again(store: Store) -> None:
    app = open_app(store)
    for n in range(3):
        with app:
            app.start(Order, id=f"visit-{n}").result()
            assert len(app.list().result()) == n + 1
    with app, app.worker():
        app.signal("visit-0", "paid", 1).result()
        assert app.result("visit-0", timeout=20).result()["paid"] == 1


async def test_an_app_opened_in_async_code_can_be_opened_in_sync_code_later(store: Store) -> None:
    app = open_app(store)
    async with app, app.worker():
        await app.start(Order, id="first")

    def in_sync_code() -> Any:
        with app, app.worker():
            app.signal("first", "paid", "later").result()
            return app.result("first", timeout=20).result()["paid"]

    assert await asyncio.to_thread(in_sync_code) == "later"


async def test_workers_can_start_and_stop_while_the_app_stays_open(store: Store) -> None:
    async with open_app(store) as app:
        for n in range(3):
            order = await app.start(Order, id=f"round-{n}")
            async with app.worker():
                await order.signal("paid", n)
                assert (await order.result(timeout=20))["paid"] == n


async def test_opening_an_open_app_is_refused_and_leaves_it_open(store: Store) -> None:
    async with open_app(store) as app:
        await app.start(Order, id="before")
        with pytest.raises(InvalidInput, match="open already"):
            async with app:
                pass
        assert [instance.id for instance in await app.list()] == ["before"]


def test_requests_made_before_the_close_are_committed_by_it(store: Store) -> None:
    app = open_app(store)
    with app:
        replies = [app.start(Order, id=f"{n}") for n in range(50)]
    assert [reply.result().id for reply in replies] == [f"{n}" for n in range(50)]
    with app:
        assert len(app.list().result()) == 50


def test_a_caller_that_waits_during_the_close_gets_an_error(store: Store) -> None:
    app = open_app(store)
    with app:
        waiting = app.start(Order).result().result()
    with pytest.raises(NotOpen, match=r"closed before"):
        waiting.result(timeout=20)


def test_an_exception_in_the_block_closes_the_app(store: Store) -> None:
    app = open_app(store)

    def crash() -> None:
        with app, app.worker():
            app.start(Order, id="kept").result()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()
    with pytest.raises(NotOpen):
        app.list()
    with app:
        assert app.get("kept").result().id == "kept"


def test_no_thread_is_left_after_the_close(store: Store) -> None:
    before = set(threading.enumerate())
    app = open_app(store)
    with app, app.worker():
        order = app.start(Order).result()
        order.signal("paid", 1).result()
        order.result(timeout=20).result()
    left = [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("hark")]
    for thread in left:
        thread.join(20)  # they were asked to stop, and end soon
    assert not any(thread.is_alive() for thread in left)
