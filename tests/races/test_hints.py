"""What one process does, the worker in another hears of at once: long before it would look by itself (S6, X8, M10)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Await, Context, Done, Hark, Machine, Next, step
from hark.runtime import other_processes
from hark.store import statements
from hark.store.postgres import PostgresStore, PostgresTx
from tests.promises.support_signals import Gate, statuses
from tests.support.inspect import pass_through_the_clerk, until
from tests.support.stores import Store

SOON = 20.0  # seconds a test waits; nobody polls in that time


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
        return Await(then=self.woken, timeout=2)  # long enough to see it parked, and for its worker to leave

    @step
    async def woken(self, ctx: Context) -> Done:
        return Done()


@pytest.fixture(autouse=True)
def _nobody_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    never = property(lambda store: 3600.0, lambda store, seconds: None)
    monkeypatch.setattr(PostgresStore, "poll", never, raising=False)


@asynccontextmanager
async def listening(store: Store, *definitions: type[Machine]) -> AsyncIterator[Hark]:
    app = Hark(store.url, **store.options)
    app.register(*definitions)
    async with app:
        await until(lambda: app._clerk.store._listener is not None, "the listener")
        yield app


async def test_x8_a_cancel_elsewhere_reaches_the_running_step(pg_store: Store) -> None:
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


@pytest.mark.parametrize("queues", [{"default": 1}, {"default": 1, "beds": 1}], ids=["one queue", "two queues"])
async def test_x8_a_seat_that_a_cancel_elsewhere_makes_free_is_taken_at_once(
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


async def test_x8_a_seat_is_taken_at_once_also_when_the_refused_outcome_is_what_makes_it_free(pg_store: Store) -> None:
    """The step comes back before it could be told; all hints were heard by then."""
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

    async def look_away() -> None:
        loop.call_soon_threadsafe(looked.set)

    async with (
        listening(pg_store, Busy, Here) as worker,
        listening(pg_store) as other,
        worker.worker({"default": 1, "beds": 1}),
    ):
        await worker.start(Busy, id="b")
        await asyncio.wait_for(gate.reached.wait(), SOON)
        waits = await worker.start(Here)
        await until(lambda: not worker._clerk.others.checking, "the look at what was before")
        worker._clerk.others.find_lost_steps = look_away
        await other.cancel("b")
        await asyncio.wait_for(looked.wait(), SOON)
        await pass_through_the_clerk(worker)
        gate.open.set()
        assert await waits.result(timeout=SOON) == "here"


async def test_m10_a_short_delay_made_elsewhere_is_kept(pg_store: Store) -> None:
    async with listening(pg_store, Here) as worker, listening(pg_store, Here) as other, worker.worker():
        handle = await other.start(Here, delay=0.3)
        assert await worker.result(handle, timeout=SOON) == "here"


async def test_s6_who_sits_down_keeps_the_timeouts_that_were_armed_before(pg_store: Store) -> None:
    async with listening(pg_store, Sleeper) as early, listening(pg_store, Sleeper) as late:
        async with early.worker({"beds": 1}):
            handle = await early.start(Sleeper)
            await until(early.waits, "the park")
        async with late.worker({"beds": 1}):
            assert await late.result(handle, timeout=SOON) is None


async def test_s6_a_timeout_is_kept_by_another_when_its_worker_has_left(pg_store: Store) -> None:
    async with listening(pg_store, Sleeper) as leaving, listening(pg_store, Here) as staying, staying.worker():
        async with leaving.worker({"beds": 1}):
            await leaving.start(Sleeper, id="s")
            await until(leaving.waits, "the park")

        async def is_woken() -> bool:
            return await statuses(staying, "s") == ["runnable"]

        await until(is_woken, "the one that stays to fire it", SOON)


async def test_m6_a_start_by_a_worker_that_has_other_code_is_heard_by_the_one_that_has_it(pg_store: Store) -> None:
    async with (
        listening(pg_store, Here) as one,
        listening(pg_store, There, Here) as two,
        one.worker(),
        two.worker(),
    ):
        assert await one.result(await one.start("There"), timeout=SOON) == "there"
        # Also when it is due only later, and the one without the code is the first to notice.
        assert await one.result(await one.start("There", delay=0.2), timeout=SOON) == "there"


async def test_m10_a_start_for_a_queue_without_a_seat_here_is_heard_by_another(pg_store: Store) -> None:
    async with (
        listening(pg_store, Here) as one,
        listening(pg_store, Here) as two,
        one.worker({"default": 1}),
        two.worker({"express": 1}),
    ):
        assert await one.result(await one.start(Here, queue="express"), timeout=SOON) == "here"


async def test_a_process_that_does_not_listen_yet_is_heard(pg_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(pg_store, Here) as worker, worker.worker():

        async def deaf(store: PostgresStore) -> bool:
            return False

        monkeypatch.setattr(PostgresStore, "changed", deaf)
        async with Hark(pg_store.url, **pg_store.options) as other:
            other.register(Here)
            handle = await other.start(Here)
            assert other._clerk.store._listener is None
        assert await worker.result(handle.id, timeout=SOON) == "here"


async def test_an_app_that_was_closed_in_the_middle_of_a_look_looks_again_when_it_is_opened(pg_store: Store) -> None:
    app = Hark(pg_store.url, **pg_store.options)
    app.register(Here)
    async with app, app.worker():
        pass
    async with listening(pg_store, Here) as other, app, app.worker():
        await until(lambda: app._clerk.store._listener is not None, "the listener")
        handle = await other.start(Here, delay=0.3)
        assert await other.result(handle, timeout=SOON) == "here"


async def test_a_hint_in_the_middle_of_a_turn_is_not_lost(pg_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(pg_store, Here) as worker, listening(pg_store, Here) as other, worker.worker():
        await worker.result(await worker.start(Here), timeout=SOON)
        commit, handles = PostgresTx.commit, []

        async def commit_after_another_start(tx: PostgresTx) -> None:
            if tx._db is worker._clerk.store._db and not handles:  # our turn has claimed; now somebody makes work
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


async def test_any_number_of_hints_is_a_look_now_and_one_more(pg_store: Store) -> None:
    async with listening(pg_store, Here) as app, app.worker():
        looks = 0
        read = app._clerk.store.read

        async def counted(sql: Any, *args: Any, **values: Any) -> Any:
            nonlocal looks
            looks += sql is statements.next_due
            return await read(sql, *args, **values)

        app._clerk.store.read = counted
        since = asyncio.get_running_loop().time()
        for _ in range(500):
            app._clerk.hint()
            await asyncio.sleep(0)
        await until(lambda: looks and not app._clerk.others.checking, "the looks to settle")
        took = asyncio.get_running_loop().time() - since
        assert looks <= took / other_processes._CALM + 4  # a look takes its time; 500 hints are not 500 looks
