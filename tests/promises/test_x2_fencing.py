"""X2: a worker whose lease was lost cannot commit anything, whatever it does later.

The zombie is a second app on the same store whose step waits at a gate while the other app's clock runs
past the lease. Its notifications are disabled, so that only the fence can stop it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import Await, Broadcast, Child, Conflict, Context, Done, Machine, Next, Retry, Spawn, Stop, step
from hark.engine.worker.worker import Worker
from hark.testing import Harness
from tests.support.inspect import everything, pass_through_the_clerk, until
from tests.support.stores import Store

LEASE = 30.0


class Bystander(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("hello", Broadcast("all"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done([signal.payload for signal in ctx.all])


class Parent(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child("Slow", id="slow")], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        return Done([child.result for child in ctx.children])


class Gate:
    """Stops the first run of the step; the test chooses what it returns when released."""

    def __init__(self, outcome: Callable[[Context], Any]) -> None:
        self.outcome = outcome
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.runs = 0
        self.second = asyncio.Event()  # stops a later run, when the test clears it
        self.second.set()

    async def pass_by(self, ctx: Context) -> Any:
        self.runs += 1
        if self.runs > 1:
            await self.second.wait()
            return Await("later", then="end")
        self.reached.set()
        await self.open.wait()
        return self.outcome(ctx)


def slow(gate: Gate) -> type[Machine]:
    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.work)

        @step
        async def work(self, ctx: Context) -> Any:
            return await gate.pass_by(ctx)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([signal.name for signal in ctx.all])

    return Slow


class Scene:
    """A zombie about to return, and the app that has reclaimed its work."""

    def __init__(self, store: Store, gate: Gate, zombie: Harness, other: Harness, worker: Worker) -> None:
        self.store, self.gate, self.zombie, self.other, self.worker = store, gate, zombie, other, worker

    async def take_over(self) -> None:
        """Past the lease, by the other app's clock."""
        await self.other.advance(LEASE + 1)
        assert (await self.other.get("slow")).status == "runnable"

    async def let_the_zombie_commit(self) -> None:
        self.gate.open.set()
        await until(lambda: self.worker.tally.get("steps"), "the zombie's step to return")
        await asyncio.sleep(0)  # the worker's outbox goes to its clerk in the next iteration of the loop
        await pass_through_the_clerk(self.zombie)

    async def assert_nothing_moves(self) -> None:
        before = await everything(self.store)
        await self.let_the_zombie_commit()
        assert await everything(self.store) == before


@asynccontextmanager
async def scene(store: Store, outcome: Callable[[Context], Any]) -> AsyncIterator[Scene]:
    gate = Gate(outcome)
    definitions = (Parent, Bystander, slow(gate))
    zombie = Harness(*definitions, url=store.url, lease=LEASE, **store.options)
    other = Harness(*definitions, url=store.url, lease=LEASE, **store.options)
    async with zombie, other:
        await other.start(Parent, id="parent")
        await other.start(Bystander, id="bystander")
        await other.drain()
        await other.signal("slow", "go", 1, dedup_key="one")
        await other.signal("slow", "go", 2)
        zombie._clerk.peers.find_lost_steps = _deaf  # type: ignore[method-assign]
        async with zombie.worker({"default": 1}, grace=1) as worker:
            await gate.reached.wait()
            try:
                yield Scene(store, gate, zombie, other, worker)
            finally:
                gate.open.set()
                gate.second.set()


async def _deaf() -> None:
    """Ignores hints and polls."""


def _raise(ctx: Context) -> Any:
    raise ValueError("too late")


OUTCOMES: dict[str, Callable[[Context], Any]] = {
    "next": lambda ctx: Next("end", state={"zombie": True}),
    "next_with_a_key": lambda ctx: Next("end", concurrency_key="zombie"),
    "retry": lambda ctx: Retry(5, state={"zombie": True}),
    "await": lambda ctx: Await("zombie", then="end", timeout=1),
    "spawn": lambda ctx: Spawn([Child(Bystander, id="zombies-child")], then="end"),
    "done": lambda ctx: Done("zombie"),
    "stop": lambda ctx: Stop("zombie"),
    "an_exception": _raise,
    "no_outcome": lambda ctx: "nonsense",
}


@pytest.mark.parametrize("outcome", OUTCOMES)
async def test_x2_no_outcome_of_a_zombie_changes_a_row(store: Store, outcome: str) -> None:
    async with scene(store, OUTCOMES[outcome]) as play:
        await play.take_over()
        await play.other.drain()
        assert (await play.other.get("slow")).status == "awaiting_signal"
        await play.assert_nothing_moves()


def _busy(ctx: Context) -> Done:
    ctx.signal("bystander", "hello", "from a zombie")
    ctx.signal("slow", "later")
    ctx.broadcast("all", "from a zombie")
    ctx.start(Bystander, id="zombies-start", correlation_key="zombies-key")
    return Done("zombie")


async def test_x2_effects_of_a_zombie_are_dropped(store: Store) -> None:
    async with scene(store, _busy) as play:
        await play.take_over()
        await play.other.drain()
        await play.assert_nothing_moves()
        # Its keys are free, and the bystander receives signals from live instances.
        await play.other.start(Bystander, id="zombies-start", correlation_key="zombies-key")
        assert (await play.other.signal("bystander", "hello", "from the living")).status == "woke"
        await play.other.drain()
        assert await play.other.result("bystander") == ["from the living"]


async def test_x2_a_zombie_is_refused_while_its_instance_is_runnable(store: Store) -> None:
    """That frees its slot, so it may claim the instance again, from the beginning and at a new epoch."""
    async with scene(store, lambda ctx: Done("zombie")) as play:
        await play.take_over()
        await play.let_the_zombie_commit()
        await until(_is(play.other, "slow", "awaiting_signal"), "the step to run anew")
        assert play.gate.runs == 2
        assert "done" not in [event.type for event in await play.other.events("slow")]


async def test_x2_a_zombie_is_refused_while_its_instance_runs_elsewhere(store: Store) -> None:
    """The status is `executing` both times: only the epoch tells them apart."""
    async with scene(store, lambda ctx: Done("zombie")) as play:
        await play.take_over()
        play.gate.second.clear()
        async with play.other.worker({"default": 1}):
            await until(lambda: play.gate.runs == 2, "the other worker to run the step")
            assert (await play.other.get("slow")).status == "executing"
            await play.assert_nothing_moves()
            play.gate.second.set()
            await until(_is(play.other, "slow", "awaiting_signal"), "the living one's outcome")


async def test_x2_a_zombie_is_refused_when_its_instance_is_done(store: Store) -> None:
    async with scene(store, lambda ctx: Done("zombie")) as play:
        await play.take_over()
        await play.other.drain()
        await play.other.signal("slow", "later")
        await play.other.drain()
        assert await play.other.result("parent") == [["go", "go", "later"]]
        await play.assert_nothing_moves()


async def test_x2_a_zombie_is_refused_after_a_cancel(store: Store) -> None:
    async with scene(store, lambda ctx: Next("end")) as play:
        cancelled = await play.other.cancel("slow", "not wanted")
        assert cancelled.status == "cancelled"
        assert await play.other.drain() == {"steps": 1, "done": 1}  # the parent
        await play.assert_nothing_moves()
        with pytest.raises(Conflict):
            await play.other.cancel("slow")


async def test_x2_the_parent_counts_the_child_once_though_it_ended_twice(store: Store) -> None:
    async with scene(store, lambda ctx: Done("zombie")) as play:
        await play.take_over()
        await play.other.drain()
        await play.let_the_zombie_commit()
        assert (await play.other.get("parent")).status == "awaiting_children"
        await play.other.signal("slow", "later")
        assert await play.other.result("parent", timeout=30) == [["go", "go", "later"]]
        assert [event.type for event in await play.other.events("parent")].count("joined") == 1


async def test_x2_the_signals_handed_to_a_zombie_stay_for_the_next_activation(store: Store) -> None:
    async with scene(store, lambda ctx: Next("end")) as play:
        await play.take_over()
        await play.let_the_zombie_commit()
        await until(_is(play.other, "slow", "awaiting_signal"), "the step to run anew")
        await play.other.signal("slow", "later")
        assert await play.other.result("slow", timeout=30) == ["go", "go", "later"]
        assert (await play.other.signal("slow", "go", dedup_key="one")).status == "duplicate"


async def test_x2_an_expired_lease_that_no_worker_reclaimed_is_still_valid(store: Store) -> None:
    """The other side of the fence: no worker reclaimed the work, so the late outcome is the only one, and it counts."""
    async with scene(store, lambda ctx: Done("late, but first")) as play:
        play.zombie.clock.now += int((LEASE + 1) * 1_000_000)
        await play.let_the_zombie_commit()
        assert await play.other.result("slow", timeout=60) == "late, but first"


async def test_x2_a_step_that_outlives_its_workers_grace_commits_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step ignores its cancellation; its work was handed back, which is another epoch."""
    monkeypatch.setattr("hark.engine.worker.worker._AFTER_CANCEL", 0.1)
    entered, left, late = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Stubborn(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            entered.set()
            while not late.is_set():
                try:
                    await late.wait()
                except asyncio.CancelledError:
                    left.set()
            ctx.start(Bystander)
            return Done("too late")

    async with Harness(Stubborn, Bystander, url=store.url, **store.options) as app:
        await app.start(Stubborn, id="stubborn")
        async with app.worker(grace=0.01) as worker:
            await entered.wait()
        assert left.is_set()
        before = await everything(store)
        assert (await app.get("stubborn")).status == "runnable"
        late.set()
        await until(lambda: worker.tally.get("steps"), "the stubborn step to return")
        await asyncio.sleep(0)
        await pass_through_the_clerk(app)
        assert await everything(store) == before
        assert (await app.get("stubborn")).attempt == 0


def _is(app: Harness, id: str, status: str) -> Callable[[], Any]:
    async def look() -> bool:
        return (await app.get(id)).status == status

    return look
