"""X8: a step that executes when it is cancelled is notified, and its outcome is refused."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hark import Child, Context, Done, Hark, Machine, Spawn, Stop, step
from tests.promises.support_signals import Gate, Waiter, count, event_types, harness, statuses
from tests.support.harness import drained
from tests.support.inspect import everything, pass_through_the_clerk, until
from tests.support.stores import Store

GO = {"names": ["go"]}


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


class Told:
    """What a step under cancellation did and saw, and a gate in its middle."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.heard = asyncio.Event()
        self.handled: list[BaseException] = []


def executing(told: Told, answer: Callable[[Context], Any]) -> type[Machine]:
    class Executing(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            try:
                await told.gate.hold()
            except asyncio.CancelledError:
                told.heard.set()
                return answer(ctx)
            return Done("never told")

        def handle(self, error: Exception, ctx: Context) -> Stop:
            told.handled.append(error)
            return Stop(error)

    return Executing


def _raise(error: BaseException) -> Callable[[Context], Any]:
    def answer(ctx: Context) -> Any:
        raise error

    return answer


def _busy(ctx: Context) -> Done:
    ctx.signal("bystander", "go", "from a cancelled step")
    ctx.start(Quick, id="from-a-cancelled-step")
    return Done("ignored it")


ANSWERS = {
    "lets it go": _raise(asyncio.CancelledError()),
    "swallows it": lambda ctx: Done("ignored it"),
    "swallows it and has effects": _busy,
    "goes on with its children": lambda ctx: Spawn([Child(Quick, id="from-a-cancelled-step")], then="start"),
    "turns it into an error": _raise(RuntimeError("cleanup failed")),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_x8_an_executing_step_is_cancelled_and_its_outcome_is_refused(store: Store, answer: str) -> None:
    told = Told()
    machine = executing(told, ANSWERS[answer])
    async with harness(store, machine, Waiter, Quick) as app:
        await drained(app, app.start(Waiter, GO, id="bystander"))
        await app.start(machine, id="x")
        async with app.worker({"default": 1}):
            await told.gate.reached.wait()
            assert (await app.cancel("x", "enough")).status == "cancelled"
            await told.heard.wait()
            await pass_through_the_clerk(app)
            before = await everything(store)
        await pass_through_the_clerk(app)
        assert await everything(store) == before
        assert (await app.get("x")).error == "enough"
        assert await statuses(app, "bystander") == ["awaiting_signal"]
        assert await count(store, "instances") == 2
        assert told.handled == []


class Stubborn(Machine):
    """Ignores its cancellation."""

    reached: asyncio.Event
    leave: asyncio.Event

    @step
    async def start(self, ctx: Context) -> Done:
        self.reached.set()
        while not self.leave.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.leave.wait()
        return Done()


@pytest.mark.parametrize("queues", [{"default": 1}, {"default": 1, "other": 1}], ids=["one queue", "two queues"])
@pytest.mark.parametrize("place", ["memory", "sqlite", "postgres"])
async def test_x8_the_slot_of_the_queue_is_free_as_of_the_cancel(
    request: pytest.FixtureRequest, queues: dict[str, int], place: str
) -> None:
    """The cancelled step keeps running; the next instance runs concurrently. In memory there is no poll to help."""
    Stubborn.reached, Stubborn.leave = asyncio.Event(), asyncio.Event()
    stores = {"memory": lambda: Store("memory", "sqlite://"), "postgres": lambda: request.getfixturevalue("pg_store")}
    store = stores.get(place, lambda: request.getfixturevalue("sqlite_store"))()
    async with harness(store, Stubborn, Quick) as app:
        await app.start(Stubborn, id="x")
        async with app.worker(queues, grace=5):
            await Stubborn.reached.wait()
            try:
                await app.start(Quick, id="next")
                assert (await app.get("next")).status == "runnable"
                await app.cancel("x")
                assert await app.result("next", timeout=60) is None
            finally:
                Stubborn.leave.set()
        assert (await app.get("x")).status == "cancelled"


async def test_x8_the_slot_of_the_concurrency_key_is_free_as_of_the_cancel(store: Store) -> None:
    told = Told()
    machine = executing(told, lambda ctx: Done())
    async with harness(store, machine, Quick) as app:
        await app.start(machine, id="x", concurrency_key="k")
        async with app.worker():
            await told.gate.reached.wait()
            await app.start(Quick, id="next", concurrency_key="k")
            assert (await app.get("next")).status == "runnable"
            await app.cancel("x")
            assert await app.result("next", timeout=30) is None


async def test_x8_a_step_in_a_thread_finishes_and_its_outcome_is_refused(store: Store) -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()
    handled: list[Exception] = []

    class InAThread(Machine):
        @step
        def start(self, ctx: Context) -> Done:
            entered.set()
            leave.wait(60)
            ctx.signal("bystander", "go")
            left.set()
            if ctx.state.get("raise"):
                raise RuntimeError("not observed")
            return Done("too late")

        def handle(self, error: Exception, ctx: Context) -> Stop:
            handled.append(error)
            return Stop(error)

    async with harness(store, InAThread, Waiter, Quick) as app:
        await drained(app, app.start(Waiter, GO, id="bystander"))
        for id, input in (("returns", {}), ("raises", {"raise": True})):
            entered.clear(), leave.clear(), left.clear()
            await app.start(InAThread, input, id=id)
            async with app.worker({"default": 1}):
                await until(entered.is_set, "the thread to enter")
                await app.cancel(id)
                await app.start(Quick, id=f"after-{id}")
                await app.result(f"after-{id}", timeout=30)  # the slot is free, the thread still in the step
                leave.set()
                await until(left.is_set, "the thread to run out")
            await pass_through_the_clerk(app)
            assert (await app.get(id)).status == "cancelled"
        assert await statuses(app, "bystander") == ["awaiting_signal"]
        assert handled == []


async def test_x8_a_step_is_notified_by_the_commit_of_the_cancel() -> None:
    """In memory there is no poll that would notice later."""
    told = Told()
    machine = executing(told, lambda ctx: Done())
    async with harness(Store("memory", "sqlite://"), machine) as app, app.worker():
        await app.start(machine, id="x")
        await told.gate.reached.wait()
        try:
            await app.cancel("x")
            await asyncio.wait_for(told.heard.wait(), 60)
        finally:
            told.gate.open.set()


async def test_x8_a_step_in_another_process_is_notified_too(store: Store) -> None:
    """Two apps on one store: one cancels, the other executes."""
    told = Told()
    machine = executing(told, lambda ctx: Done("ignored it"))
    worker, other = Hark(store.url, **store.options), Hark(store.url, **store.options)
    worker.register(machine)
    async with worker, other, worker.worker():
        await worker.start(machine, id="x")
        await told.gate.reached.wait()
        assert (await other.cancel("x")).status == "cancelled"
        await asyncio.wait_for(told.heard.wait(), 30)
        await pass_through_the_clerk(worker)
        assert (await other.get("x")).status == "cancelled"
    assert told.handled == []


async def test_x8_executing_children_are_notified_with_their_parent(store: Store) -> None:
    told = Told()
    machine = executing(told, lambda ctx: Done("ignored it"))

    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(machine, id="child"), Child(Waiter, GO, id="waiter")], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Parent, machine, Waiter) as app:
        await app.start(Parent, id="parent")
        async with app.worker():
            await told.gate.reached.wait()
            await app.cancel("parent")
            await told.heard.wait()
            assert await statuses(app, "parent", "child", "waiter") == ["cancelled"] * 3
        assert "joined" not in await event_types(app, "parent")
