"""J7: a handler that waits keeps its lease and its slot for the linger, then its task parks and runs again later."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Handle, Hark, SignalTimeout, TaskLost
from hark.engine.turns.reply import Reply
from hark.model.notes import AnyNote, NoteInbox
from hark.testing import Harness
from tests.promises.support_jobs import one_task, ran
from tests.promises.support_machines import LEASE, harness, neighbour
from tests.support.harness import drained
from tests.support.inspect import query, until
from tests.support.stores import Store

LONG = 3600.0  # a linger that no test waits for


class Runs:
    """A handler that waits for two signals, and counts how often it runs and what it has received."""

    def __init__(self, *, sync: bool = False) -> None:
        self.begun = 0
        self.received: list[Any] = []
        self.ended: list[str] = []
        self.sync = sync

    def register(self, app: Hark) -> None:
        app.handler("work")(self.run_in_thread if self.sync else self.run)

    async def run(self, task: Any) -> Any:
        self.begun += 1
        try:
            answers = []
            for name in ("a", "b"):
                answers.append(await task.wait_for_signal(name, timeout=600))
                self.received.append(answers[-1])
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return answers

    def run_in_thread(self, task: Any) -> Any:
        self.begun += 1
        try:
            answers = []
            for name in ("a", "b"):
                answers.append(task.wait_for_signal(name, timeout=600).result())
                self.received.append(answers[-1])
        except BaseException as error:
            self.ended.append(type(error).__name__)
            raise
        return answers


@asynccontextmanager
async def lingering(store: Store, work: Any) -> AsyncIterator[tuple[Hark, Handle]]:
    """A task with this handler, on a worker that lets it wait in its slot."""
    async with Hark(store.url, **store.options, linger=LONG) as app, app.worker():
        app.handler("work")(work)
        yield app, await app.start(one_task())


async def is_armed(store: Store, name: str) -> bool:
    """Also while its task executes."""
    return await are_armed(store, name, 1)


async def are_armed(store: Store, name: str, many: int) -> bool:
    return len(await query(store, f"SELECT 1 FROM waits WHERE name = '{name}' AND fired_at IS NULL")) == many


def let_no_handler_read_its_inbox(app: Hark) -> None:
    note = app._services.note

    def unless_it_reads(one: AnyNote) -> Reply[Any]:
        return Reply() if isinstance(one, NoteInbox) else note(one)  # a reply that never comes

    app._services.note = unless_it_reads  # type: ignore[method-assign]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_j7_a_handler_that_waits_in_its_slot_gets_the_signal_from_the_turn_that_delivers_it(
    store: Store, sync: bool
) -> None:
    runs = Runs(sync=sync)
    async with Hark(store.url, **store.options, linger=LONG) as app, app.worker():
        let_no_handler_read_its_inbox(app)
        runs.register(app)
        job = await app.start(one_task())
        for name in ("a", "b"):
            await until(lambda name=name: is_armed(store, name), "the handler to wait")  # type: ignore[misc]
            task = await app.get(f"{job.id}.0")
            assert (task.status, (await job.get()).status) == ("executing", "awaiting_children")
            assert (await job.signal(name, name.upper())).status == "woke"
        assert await job.result(timeout=60) == {"work": ["A", "B"]}
    assert (runs.begun, runs.ended) == (1, [])


async def test_j7_a_handler_that_waits_in_its_slot_gets_the_signals_of_all_processes(store: Store) -> None:
    async def work(task: Any) -> Any:
        waits = [task.wait_for_signal("s", timeout=600) for _ in range(4)]
        return [await wait for wait in waits]

    async with lingering(store, work) as (app, job), Hark(store.url, **store.options) as other:
        await until(lambda: are_armed(store, "s", 4), "the handler to wait")
        for n, sender in enumerate((other, app, other, app)):
            assert (await sender.signal(job.id, "s", n)).status == "woke"
        assert await job.result(timeout=60) == {"work": [0, 1, 2, 3]}


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_j7_after_the_linger_the_task_parks_and_frees_its_slot(store: Store, sync: bool) -> None:
    runs = Runs(sync=sync)
    async with harness(store) as app:
        runs.register(app)
        job = await drained(app, app.start(one_task()))
        task = await app.get(f"{job.id}.0")
        assert (task.status, [wait.name for wait in task.waits]) == ("awaiting_signal", ["a"])
        assert (await job.get()).state["tasks"]["work"]["status"] == "suspended"
        assert (await job.signal("a", 1)).status == "woke"
        await app.drain()
        assert runs.received == [1]
        assert (await job.signal("b", 2)).status == "woke"
        await app.drain()
        assert await job.result(timeout=10) == {"work": [1, 2]}
        assert runs.received == [1, 1, 2], "a run gets the same answers in the same order"
        assert (runs.begun, runs.ended) == (3, ["Suspended", "Suspended"])


async def test_j7_a_timeout_and_a_deadline_survive_the_park(store: Store) -> None:
    seen = []

    async def work(task: Any) -> Any:
        try:
            await task.wait_for_signal("first", timeout=10)
        except SignalTimeout as error:
            seen.append(str(error))
        return await task.wait_for_signal("second", timeout=100)

    async with ran(store, one_task(), work=work) as (app, job):
        await drained(app, app.advance(10))
        [wait] = (await app.get(f"{job.id}.0")).waits
        deadline = wait.deadline
        await app.advance(20)
        await drained(app, job.signal("first", "too late"))
        [wait] = (await app.get(f"{job.id}.0")).waits
        assert (wait.name, wait.deadline) == ("second", deadline), "the original deadline"
        await drained(app, job.signal("second", "in time"))
        assert await job.result(timeout=10) == {"work": "in time"}
        assert set(seen) == {'signal "first" timed out after 10 s'}


async def test_j7_fault_52_a_worker_dies_while_its_handler_waits_and_the_next_one_gets_the_signal(
    store: Store,
) -> None:
    runs = Runs()
    async with harness(store) as app:
        runs.register(app)
        other = neighbour(app, store, linger=LONG)
        runs.register(other)
        job = await app.start(one_task())
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await job.signal("a", 1)
            await until(lambda: is_armed(store, "b"), "the handler to wait for its second signal")
            worker._activations.open = False  # it is dead, as others see it
            other._services.running.clear()
            await job.signal("b", 2)
            await drained(app, app.advance(LEASE + 1))
            assert await job.result(timeout=10) == {"work": [1, 2]}
            assert (await job.get()).state["tasks"]["work"]["attempt"] == 1, "a lost lease is not an attempt"
            await worker.stop()


async def test_j7_a_worker_that_stops_parks_what_waits_at_once(store: Store) -> None:
    runs = Runs()
    async with harness(store, linger=LONG) as app:
        runs.register(app)
        job = await app.start(one_task())
        async with app.worker(grace=LONG):
            await job.signal("a", 1)
            await until(lambda: is_armed(store, "b"), "the handler to wait for its second signal")
        task = await app.get(f"{job.id}.0")
        assert (task.status, [wait.name for wait in task.waits]) == ("awaiting_signal", ["b"])
        assert "handed_back" not in [event.type for event in await app.events(task.id)]
        await job.signal("b", 2)
        async with app.worker():
            assert await job.result(timeout=60) == {"work": [1, 2]}
    assert runs.begun == 2


@pytest.mark.parametrize("sync", [False, True], ids=["async", "thread"])
async def test_j7_a_cancel_ends_a_handler_that_waits(store: Store, sync: bool) -> None:
    runs = Runs(sync=sync)
    async with Hark(store.url, **store.options, linger=LONG) as app, app.worker():
        runs.register(app)
        job = await app.start(one_task())
        await until(lambda: is_armed(store, "a"), "the handler to wait")
        await job.cancel()
        await until(lambda: bool(runs.ended), "the handler to end")
        assert runs.ended == ["TaskLost" if sync else "CancelledError"]
        assert (await app.get(f"{job.id}.0")).status == "cancelled"
        assert not await query(store, "SELECT 1 FROM waits")


async def test_j7_a_handler_that_lost_its_lease_can_store_nothing_more(store: Store) -> None:
    async with harness(store) as app:
        reached, go_on, refused = asyncio.Event(), asyncio.Event(), []

        async def zombie(task: Any) -> Any:
            await task.checkpoint("mine")
            reached.set()
            await go_on.wait()
            for verb in (
                lambda: task.checkpoint("not mine"),
                lambda: task.put_stream("not mine"),
                lambda: task.heartbeat(),
                lambda: task.wait_for_signal("s", timeout=5),
                lambda: task.awakeable(),
            ):
                with pytest.raises(TaskLost):
                    await verb()
                refused.append(verb)
            return "not mine"

        @app.handler("work")
        async def work(task: Any) -> Any:
            return [await task.load_checkpoint()]

        other = neighbour(app, store)
        other.handler("work")(zombie)
        job = await app.start(one_task())
        worker = other.worker(grace=0)
        async with other:
            await worker.start()
            await reached.wait()
            assert other._clerk.worker is not None
            other._clerk.worker.abandon = lambda ids: None  # type: ignore[method-assign]  # it does not notice
            worker._activations.open = False  # and claims nothing more
            await drained(app, app.advance(LEASE + 1))
            go_on.set()
            await until(lambda: len(refused) == 5, "the zombie to be refused")
            await worker.stop()
        assert await job.result(timeout=10) == {"work": ["mine"]}


async def test_j7_a_wait_beside_others_wakes_the_task_whichever_comes_first(store: Store) -> None:
    async def work(task: Any) -> Any:
        waits = [asyncio.ensure_future(_wait(task, name)) for name in ("a", "b", "c")]
        done, others = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        return sorted(one.result() for one in done)

    async with ran(store, one_task(), work=work) as (app, job):
        await drained(app, job.signal("b", "B"))
        assert await job.result(timeout=10) == {"work": ["B"]}


async def _wait(task: Any, name: str) -> Any:
    return await task.wait_for_signal(name, timeout=60)


async def test_j7_a_harness_does_not_linger() -> None:
    assert Harness()._services.linger == 0
    assert Hark("sqlite://")._services.linger == 60
