"""A hint makes the worker of another process act immediately, long before its next poll (S6, X8, M10)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Await, Broadcast, Context, Done, FunctionContext, Hark, Machine, Next, step, workflow
from hark.engine.peers import peers
from hark.store import statements
from hark.store.postgres import PostgresStore, PostgresTx
from tests.promises.support_signals import Gate, statuses
from tests.support.inspect import pass_through_the_clerk, until
from tests.support.stores import Store

SOON = 60.0  # seconds a test waits; no process polls in that time


class Here(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done("here")


class There(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done("there")


class Sleeper(Machine, queue="beds"):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(then=self.woken, timeout=2)

    @step
    async def woken(self, ctx: Context) -> Done:
        return Done()


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    never = property(lambda store: 3600.0, lambda store, seconds: None)
    monkeypatch.setattr(PostgresStore, "poll", never, raising=False)


@asynccontextmanager
async def listening(store: Store, *definitions: Any, **options: Any) -> AsyncIterator[Hark]:
    app = Hark(store.url, **store.options, **options)
    app.register(*definitions)
    async with app:
        await until(lambda: app._clerk.store._listener is not None, "the listener")
        yield app


async def test_x8_a_cancel_by_another_process_reaches_the_running_step(pg_store: Store) -> None:
    gate, ended = Gate(), asyncio.Event()

    class Busy(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            try:
                await gate.hold()
            except asyncio.CancelledError:
                ended.set()
                raise
            return Done()

    async with listening(pg_store, Busy) as worker, listening(pg_store) as other, worker.worker():
        await worker.start(Busy, id="b")
        await asyncio.wait_for(gate.reached.wait(), SOON)
        await other.cancel("b")
        await asyncio.wait_for(ended.wait(), SOON)


async def test_a_signal_of_another_process_reaches_a_function_that_executes(pg_store: Store) -> None:
    gate = Gate()

    @workflow
    async def busy(ctx: FunctionContext) -> str:
        async def release() -> None:
            await ctx.wait_for_signal("go")
            gate.open.set()

        await ctx.gather(ctx.run(gate.hold), release())
        return "released"

    async with listening(pg_store, busy) as worker, listening(pg_store) as other, worker.worker():
        it = await worker.start(busy)
        await asyncio.wait_for(gate.reached.wait(), SOON)
        await other.signal(it.id, "go")
        assert await it.result(timeout=SOON) == "released"


async def test_b1_a_large_broadcast_of_a_process_without_a_worker_is_delivered_by_one_with(pg_store: Store) -> None:
    class Waiter(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await(Broadcast("x"), then=self.woken)

        @step
        async def woken(self, ctx: Context) -> Done:
            return Done()

    async with listening(pg_store, Waiter) as worker, listening(pg_store, broadcast_limit=1) as other, worker.worker():
        for id in "ab":
            await worker.start(Waiter, id=id)
            await until(lambda id=id: _has_run(worker, id), "the park")
        assert await other.broadcast("x") == 2
        for id in "ab":
            assert await worker.result(id, timeout=SOON) is None


async def test_a_hint_during_a_check_causes_another_check(pg_store: Store) -> None:
    async with listening(pg_store) as app:
        others, checks = app._clerk.peers, list[int]()
        loop, reading, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        await until(lambda: not others.checking, "the check that the hints before caused")

        async def read(*args: Any, **values: Any) -> Any:
            checks.append(1)
            if len(checks) == 1:
                loop.call_soon_threadsafe(reading.set)
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(go_on.wait(), loop))
            return []

        app._clerk.store.read = read  # type: ignore[method-assign]
        app._clerk.hint()
        await asyncio.wait_for(reading.wait(), SOON)
        app._clerk.hint()
        await until(lambda: others._check_again, "the second hint")
        go_on.set()
        await until(lambda: len(checks) == 2, "the second check")


@pytest.mark.parametrize("queues", [{"default": 1}, {"default": 1, "beds": 1}], ids=["one queue", "two queues"])
async def test_x8_a_slot_freed_by_a_cancel_in_another_process_is_filled_immediately(
    pg_store: Store, queues: dict[str, int]
) -> None:
    gate = Gate()

    class Busy(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            await gate.hold()
            return Done()

    async with listening(pg_store, Busy, Here) as worker, listening(pg_store) as other, worker.worker(queues):
        await worker.start(Busy, id="b")
        await asyncio.wait_for(gate.reached.wait(), SOON)
        waits = await worker.start(Here)
        await other.cancel("b")
        assert await waits.result(timeout=SOON) == "here"


async def test_x8_a_slot_freed_by_a_fenced_outcome_is_filled_immediately(pg_store: Store) -> None:
    """The step ends before the cancel reaches it, and every hint has been handled by then."""
    gate, looked = Gate(), asyncio.Event()
    loop = asyncio.get_running_loop()

    class Busy(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            await gate.hold()
            return Next(self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

    async def ignore_hints() -> None:
        loop.call_soon_threadsafe(looked.set)

    async with (
        listening(pg_store, Busy, Here) as worker,
        listening(pg_store) as other,
        worker.worker({"default": 1, "beds": 1}),
    ):
        await worker.start(Busy, id="b")
        await asyncio.wait_for(gate.reached.wait(), SOON)
        waits = await worker.start(Here)
        await until(lambda: not worker._clerk.peers.checking, "the check that the hints before caused")
        worker._clerk.peers.find_lost_steps = ignore_hints
        await other.cancel("b")
        await asyncio.wait_for(looked.wait(), SOON)
        await pass_through_the_clerk(worker)
        gate.open.set()
        assert await waits.result(timeout=SOON) == "here"


async def test_m10_a_short_delay_started_by_another_process_ends_in_time(pg_store: Store) -> None:
    async with listening(pg_store, Here) as worker, listening(pg_store, Here) as other, worker.worker():
        handle = await other.start(Here, delay=0.3)
        assert await worker.result(handle, timeout=SOON) == "here"


async def test_s6_a_worker_that_starts_fires_timeouts_that_were_armed_before(pg_store: Store) -> None:
    async with listening(pg_store, Sleeper) as early, listening(pg_store, Sleeper) as late:
        async with early.worker({"beds": 1}):
            handle = await early.start(Sleeper)
            await until(lambda: _has_run(early, handle.id), "the park")
        async with late.worker({"beds": 1}):
            assert await late.result(handle, timeout=SOON) is None


async def test_s6_a_timeout_is_fired_by_another_worker_when_its_own_has_left(pg_store: Store) -> None:
    async with listening(pg_store, Sleeper) as leaving, listening(pg_store, Here) as staying, staying.worker():
        async with leaving.worker({"beds": 1}):
            await leaving.start(Sleeper, id="s")
            await until(lambda: _has_run(leaving, "s"), "the park")

        async def is_woken() -> bool:
            return await statuses(staying, "s") != ["awaiting_signal"]

        await until(is_woken, "the one that stays to fire it", SOON)


async def _has_run(app: Hark, id: str) -> bool:
    """It is parked; on a slow machine its two seconds may be over already."""
    return any(event.type == "await" for event in await app.events(id))


async def test_m6_a_start_by_a_worker_without_the_code_is_claimed_by_the_worker_that_has_it(pg_store: Store) -> None:
    async with (
        listening(pg_store, Here) as one,
        listening(pg_store, There, Here) as two,
        one.worker(),
        two.worker(),
    ):
        assert await one.result(await one.start("There"), timeout=SOON) == "there"
        # Also when the start is due later, and the worker without the code sweeps first.
        assert await one.result(await one.start("There", delay=0.2), timeout=SOON) == "there"


async def test_m10_a_start_for_a_queue_without_a_slot_here_is_claimed_by_another_worker(pg_store: Store) -> None:
    async with (
        listening(pg_store, Here) as one,
        listening(pg_store, Here) as two,
        one.worker({"default": 1}),
        two.worker({"express": 1}),
    ):
        assert await one.result(await one.start(Here, queue="express"), timeout=SOON) == "here"


async def test_the_hints_of_a_process_that_does_not_listen_yet_are_received(
    pg_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(pg_store, Here) as worker, worker.worker():

        async def deaf(store: PostgresStore) -> bool:
            return False

        monkeypatch.setattr(PostgresStore, "changed", deaf)
        async with Hark(pg_store.url, **pg_store.options) as other:
            other.register(Here)
            handle = await other.start(Here)
            assert other._clerk.store._listener is None
        assert await worker.result(handle.id, timeout=SOON) == "here"


async def test_an_app_that_was_closed_during_a_check_checks_again_when_it_is_opened(pg_store: Store) -> None:
    app = Hark(pg_store.url, **pg_store.options)
    app.register(Here)
    async with app, app.worker():
        pass
    async with listening(pg_store, Here) as other, app, app.worker():
        await until(lambda: app._clerk.store._listener is not None, "the listener")
        handle = await other.start(Here, delay=0.3)
        assert await other.result(handle, timeout=SOON) == "here"


async def test_a_hint_during_a_turn_is_not_lost(pg_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(pg_store, Here) as worker, listening(pg_store, Here) as other, worker.worker():
        await worker.result(await worker.start(Here), timeout=SOON)
        commit, handles = PostgresTx.commit, []

        async def commit_after_another_start(tx: PostgresTx) -> None:
            if (
                tx._db is worker._clerk.store._db and not handles
            ):  # this turn has claimed; now another process makes work
                handles.append(None)
                handles[0] = await other.start(Here)
                worker._clerk.hint()
            await commit(tx)

        monkeypatch.setattr(PostgresStore, "announce", _silence)
        monkeypatch.setattr(PostgresTx, "commit", commit_after_another_start)
        await worker.start(Here)
        await until(lambda: handles and handles[0], "the other start")
        assert await worker.result(handles[0].id, timeout=SOON) == "here"


async def _silence(store: PostgresStore) -> None:
    pass


async def test_many_hints_cause_at_most_one_check_per_calm_period(pg_store: Store) -> None:
    async with listening(pg_store, Here) as app, app.worker():
        checks = 0
        read = app._clerk.store.read

        async def counted(sql: Any, *args: Any, **values: Any) -> Any:
            nonlocal checks
            checks += sql is statements.next_due
            return await read(sql, *args, **values)

        app._clerk.store.read = counted
        since = asyncio.get_running_loop().time()
        for _ in range(500):
            app._clerk.hint()
            await asyncio.sleep(0)
        await until(lambda: checks and not app._clerk.peers.checking, "the checks to end")
        took = asyncio.get_running_loop().time() - since
        assert checks <= took / peers._BETWEEN_CHECKS + 4  # 500 hints are not 500 checks
