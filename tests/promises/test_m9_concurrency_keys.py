"""M9: at most K at once per key across all workers, and every way to stop using the slot releases it."""

import asyncio
from typing import Any

import pytest

from hark import Await, Child, Context, Done, Handle, Machine, Next, Retry, Spawn, Start, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import LEASE, Fuse, doomed, harness, neighbour
from tests.support.harness import drained
from tests.support.inspect import query, until
from tests.support.stores import Store


class Counted(Machine):
    """Counts how many of each key are inside at once.

    Stays until the expected number were inside together, and then for three iterations of the loop.
    """

    inside: dict[str, int]
    most: dict[str, int]
    together: dict[str, int]

    @step
    async def start(self, ctx: Context) -> Done:
        await self.enter(ctx.state)
        return Done()

    async def enter(self, key: str) -> None:
        self.inside[key] = self.inside.get(key, 0) + 1
        self.most[key] = max(self.most.get(key, 0), self.inside[key])
        while self.most[key] < self.together.get(key, 1):
            await asyncio.sleep(0.001)
        for _ in range(3):
            await asyncio.sleep(0.001)
        self.inside[key] -= 1


@pytest.fixture
def most() -> dict[str, int]:
    Counted.inside, Counted.most, Counted.together = {}, {}, {}
    return Counted.most


async def test_m9_at_most_k_at_once_per_key_across_all_workers(store: Store, most: dict[str, int]) -> None:
    options = {"concurrency": {"tenant": 3}}
    async with harness(store, Counted, **options) as app, neighbour(app, store, Counted, **options) as other:
        keys = ["order", "tenant:a", "tenant:b", "tenant"]
        Counted.together = {"tenant:a": 3, "tenant:b": 3, "tenant": 3}
        async with app.worker({"default": 30}), other.worker({"default": 30}):
            starts = [Start(Counted, key, concurrency_key=key) for _ in range(15) for key in keys]
            for handle in await app.start_many(starts):
                await handle.result(timeout=60)
        assert most["order"] == 1, "K is 1 unless configured"
        assert most["tenant:a"] == 3, "by the part before the colon, for each key of its own"
        assert most["tenant:b"] == 3
        assert most["tenant"] == 3


async def test_m9_the_bound_holds_when_slots_are_few_and_steps_yield(store: Store, most: dict[str, int]) -> None:
    class Walks(Counted):
        @step
        async def start(self, ctx: Context) -> Next | Done:
            key, left = ctx.state
            await self.enter(key)
            return Next(self.start, [key, left - 1]) if left else Done()

    options = {"concurrency": {"tenant": 3}}
    async with harness(store, Walks, **options) as app, neighbour(app, store, Walks, **options) as other:
        async with app.worker({"default": 4}), other.worker({"default": 4}):
            keys = ["order", "tenant:a", None]
            starts = [Start(Walks, [key or "free", 4], concurrency_key=key) for _ in range(8) for key in keys]
            for handle in await app.start_many(starts):
                await handle.result(timeout=100)
        assert most["order"] == 1
        assert most["tenant:a"] <= 3


async def test_m9_instances_blocked_on_a_key_run_by_priority_and_then_by_age(store: Store) -> None:
    ran: list[str] = []

    class Says(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            ran.append(ctx.state)
            await go.wait()
            return Done()

    go = asyncio.Event()
    async with harness(store, Says) as app, app.worker({"default": 10}):
        handles = [await app.start(Says, "first", concurrency_key="k")]
        await until(lambda: ran == ["first"], "the first to run")
        for name, priority in (("b", 0), ("c", 0), ("low", 9), ("urgent", -5)):
            handles.append(await app.start(Says, name, concurrency_key="k", priority=priority))
        free = await app.start(Says, "free")
        await until(lambda: "free" in ran, "the instance without a key")
        go.set()
        for handle in [*handles, free]:
            await handle.result(timeout=30)
        assert ran == ["first", "free", "urgent", "b", "c", "low"]


class Second(Machine):
    """Waits for the same key."""

    @step
    async def start(self, ctx: Context) -> Done:
        return Done("got the slot")


class Holder(Machine):
    """Takes the key `k`, and then does what its input says."""

    fuse: Fuse

    @step
    async def start(self, ctx: Context) -> Any:
        match ctx.state:
            case "done":
                return Done()
            case "stop":
                return Stop("no")
            case "raise":
                raise ValueError
            case "retry":
                return Retry(3600)
            case "await":
                return Await("never", then=self.hang)
            case "spawn":
                return Spawn([Child(Second, delay=3600)], then=self.hang)
            case "next with another key":
                return Next(self.hang, concurrency_key="other")
            case "next without a key":
                return Next(self.hang, concurrency_key=None)
            case "next with the same key":
                return Next(self.hang, concurrency_key="k")
            case "next":
                return Next(self.hang)
            case "next under a limit":
                return Next(self.hang, rate_limit="slow")
        return await self.hang(ctx)

    @step
    async def hang(self, ctx: Context) -> Done:
        await self.fuse.touch()
        return Done()


@pytest.fixture
def fuse() -> Fuse:
    Holder.fuse = Fuse()
    return Holder.fuse


@pytest.mark.parametrize(
    "outcome",
    [
        "done", "stop", "raise", "retry", "await", "spawn", "next with another key", "next without a key",
        "next under a limit",
    ],
)  # fmt: skip
async def test_m9_a_slot_is_released_by_any_outcome_that_does_not_run_ahead_under_its_key(
    store: Store, fuse: Fuse, outcome: str
) -> None:
    limits = {"slow": {"allowed": 1, "period": 3600}}
    async with harness(store, Holder, Second, rate_limits=limits) as app:
        if outcome == "next under a limit":
            await drained(app, app.start(Second, rate_limit="slow"))
        await app.start(Holder, outcome, concurrency_key="k")
        async with app.worker({"default": 2}, grace=0):
            second = await app.start(Second, concurrency_key="k")
            assert await second.result(timeout=30) == "got the slot"


@pytest.mark.parametrize("outcome", ["next", "next with the same key", "hang"])
async def test_m9_a_slot_is_kept_by_a_step_that_runs_ahead_under_the_same_key(
    store: Store, fuse: Fuse, outcome: str
) -> None:
    async with harness(store, Holder, Second) as app:
        holder = await app.start(Holder, outcome, concurrency_key="k")
        second = await app.start(Second, concurrency_key="k")
        async with app.worker({"default": 5}, grace=0):
            await until(lambda: fuse.touched, "the holder to be where it hangs")
            free = await app.start(Second)
            assert await free.result(timeout=30) == "got the slot"
            assert (await second.get()).status == "runnable"
            fuse.lit = False
            await holder.cancel()
            assert await second.result(timeout=30) == "got the slot", "and by a cancel it is free at once"


async def test_m9_a_slot_is_released_by_a_lost_lease_and_by_quarantine(store: Store, fuse: Fuse) -> None:
    async with harness(store, Second, max_crashes=2) as app:
        for deaths in (1, 2):
            if deaths == 1:
                async with neighbour(app, store, Holder) as other:
                    await other.start(Holder, "hang", concurrency_key="k")
            async with doomed(app, store, fuse, Holder, max_crashes=2):
                second = await app.start(Second, concurrency_key="k")
                assert await app.drain() == {"steps": 0}, "the key is held"
                await drained(app, app.advance(LEASE + 1))
                assert await second.result(timeout=0) == "got the slot"
        assert len(await app.list(status="failed")) == 1


async def test_m9_a_slot_is_released_by_a_worker_that_stops(store: Store, fuse: Fuse) -> None:
    async with harness(store, Holder) as app, neighbour(app, store, Second) as other:
        await app.start(Holder, "hang", concurrency_key="k")
        async with app.worker({"default": 1}, grace=0):
            await until(lambda: fuse.touched, "the holder")
            second = await other.start(Second, concurrency_key="k")
            await other.drain()
            assert (await second.get()).status == "runnable"
        await other.drain()
        assert await second.result(timeout=0) == "got the slot"


async def test_m9_a_new_key_is_acquired_before_the_next_step_runs(store: Store, fuse: Fuse) -> None:
    """Next(concurrency_key=…) waits for the other key like any other instance."""
    async with harness(store, Holder, Second) as app:
        await app.start(Holder, "hang", concurrency_key="other")
        async with app.worker({"default": 5}, grace=0):
            await until(lambda: fuse.touched == 1, "the other key to be taken")
            moves = await app.start(Holder, "next with another key")
            free = await app.start(Second)
            await free.result(timeout=30)
            kept = await moves.get()
            assert (kept.status, kept.step) == ("runnable", "hang"), "committed, and in line for the key"
            assert fuse.touched == 1


async def promised(app: Harness, store: Store, fuse: Fuse) -> tuple[Handle, Handle]:
    """Two are blocked on `k`, which is released; the first is unblocked and finds no free slot in its queue."""
    holder = await app.start(Holder, "hang", concurrency_key="k")
    await until(lambda: fuse.touched == 1, "the key to be taken")
    first = await app.start(Second, concurrency_key="k", queue="side")
    second = await app.start(Second, concurrency_key="k")
    await until(lambda: _blocked(store, 2), "both to be in line")
    await app.start(Holder, "hang", queue="side")
    await until(lambda: fuse.touched == 2, "the seat to be taken")
    await holder.cancel()
    await until(lambda: _blocked(store, 1), "the first to be let go")
    return first, second


async def _blocked(store: Store, count: int) -> bool:
    return await query(store, "SELECT count(*) FROM instances WHERE blocked_on IS NOT NULL") == [(count,)]


async def test_m9_a_slot_that_the_first_blocked_instance_cannot_take_goes_to_the_next(store: Store, fuse: Fuse) -> None:
    async with harness(store, Holder, Second) as app, app.worker({"default": 5, "side": 1}, grace=0):
        first, second = await promised(app, store, fuse)
        await app.advance(1)
        assert await second.result(timeout=30) == "got the slot"
        assert (await first.get()).status == "runnable"


async def test_m9_a_slot_promoted_to_a_cancelled_instance_goes_to_the_next_immediately(
    store: Store, fuse: Fuse
) -> None:
    async with harness(store, Holder, Second) as app, app.worker({"default": 5, "side": 1}, grace=0):
        first, second = await promised(app, store, fuse)
        await first.cancel()
        assert await second.result(timeout=30) == "got the slot"


async def test_m9_a_key_and_a_limit_together_hold_both(store: Store, most: dict[str, int]) -> None:
    limits = {"api": {"allowed": 2, "period": 1}}
    async with harness(store, Counted, rate_limits=limits) as app:
        for _ in range(5):
            await app.start(Counted, "k", concurrency_key="k", rate_limit="api")
        for done in (2, 4, 5):
            async with app.worker({"default": 5}):
                await until(lambda done=done: _done(app, done), f"{done} to be done")
            assert len(await app.list(status="done")) == done
            await app.advance(1)
        assert most["k"] == 1


async def _done(app: Harness, count: int) -> bool:
    return len(await app.list(status="done")) >= count
