"""M5: a worker that dies is not an exception; a step that keeps killing its worker is quarantined."""

from typing import Any

import pytest

from hark import Await, Child, Context, Done, InstanceFailed, Machine, Next, Retry, Spawn, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import LEASE, Fuse, doomed, harness, kill_a_worker, neighbour
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


class Deadly(Machine):
    """Touches the fuse; `handle` must never be called for it."""

    fuse: Fuse

    @step
    async def start(self, ctx: Context) -> Next:
        await self.fuse.touch()
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done("alive")

    def handle(self, error: BaseException, ctx: Context) -> Stop:
        return Stop(f"handle was called with {error!r}")


@pytest.fixture
def fuse() -> Fuse:
    Deadly.fuse = Fuse()
    return Deadly.fuse


async def test_m5_a_dead_worker_is_not_an_exception_its_lease_expires_and_the_step_reruns(
    store: Store, fuse: Fuse
) -> None:
    async with harness(store, Deadly) as app:
        deadly = await app.start(Deadly)
        async with doomed(app, store, fuse, Deadly):
            assert await app.drain() == {"steps": 0}, "its worker's lease is valid"
            await app.advance(LEASE - 1)
            assert (await deadly.get()).status == "executing"
            await app.advance(2)
            kept = await deadly.get()
            assert (kept.status, kept.step, kept.attempt) == ("runnable", "start", 1)
        fuse.lit = False
        assert await app.drain() == {"steps": 2, "done": 1, "next": 1}
        assert await deadly.result(timeout=0) == "alive"
        assert "reclaimed" in [event.type for event in await app.events(deadly)]


@pytest.mark.parametrize("limit", [None, 2])
async def test_m5_fault_31_a_step_that_always_kills_its_worker_is_quarantined_with_a_reason(
    store: Store, fuse: Fuse, limit: int | None
) -> None:
    options = {} if limit is None else {"max_crashes": limit}
    async with harness(store, Deadly, **options) as app:
        deadly = await app.start(Deadly)
        for death in range(1, limit or 5):
            await kill_a_worker(app, store, fuse, Deadly, **options)
            kept = await deadly.get()
            assert (kept.status, kept.attempt) == ("runnable", death)
        await kill_a_worker(app, store, fuse, Deadly, **options)
        assert (await deadly.get()).status == "failed"
        assert fuse.touched == (limit or 5)
        with pytest.raises(InstanceFailed, match="quarantined"):
            await deadly.result()
        error = (await deadly.get()).error
        assert f"{limit or 5} times in a row" in error
        assert "'start'" in error
        assert await app.drain() == {"steps": 0}, "a quarantined instance is not claimed again"


async def test_m5_a_retry_resets_the_crash_count_of_a_quarantined_instance(store: Store, fuse: Fuse) -> None:
    async with harness(store, Deadly, max_crashes=2) as app:
        deadly = await app.start(Deadly)
        for _ in range(2):
            await kill_a_worker(app, store, fuse, Deadly, max_crashes=2)
        assert (await deadly.get()).status == "failed"
        await app.retry(deadly)
        await kill_a_worker(app, store, fuse, Deadly, max_crashes=2)
        assert (await deadly.get()).status == "runnable", "one death after a retry is one, not three"
        fuse.lit = False
        await app.drain()
        assert await deadly.result(timeout=0) == "alive"


@pytest.mark.parametrize("outcome", ["next", "retry", "await", "spawn"])
async def test_m5_any_committed_outcome_resets_the_crash_count(store: Store, outcome: str) -> None:
    fuse = Fuse(2)

    class Between(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            await fuse.touch()
            match outcome:
                case "next":
                    return Next(self.again)
                case "retry" if ctx.attempt < 3:
                    return Retry()
                case "await":
                    return Await("go", then=self.again)
                case "spawn":
                    return Spawn([], then=self.again)
            return Done()

        @step
        async def again(self, ctx: Context) -> Done:
            await fuse.touch()
            return Done()

    async with harness(store, Between, max_crashes=2) as app:
        between = await app.start(Between)
        await kill_a_worker(app, store, fuse, Between, max_crashes=2)
        assert (await between.get()).attempt == 1
        # The second one commits its outcome, and the very next activation hangs: it is handed back.
        async with app.worker({"default": 1}, grace=0):
            if outcome == "await":
                await until(lambda: _is(app, between.id, "awaiting_signal"), "the park")
                await between.signal("go")
            await until(lambda: fuse.touched == 3, "the next activation to touch the fuse")
        await kill_a_worker(app, store, fuse, Between, max_crashes=2)
        assert (await between.get()).status == "runnable", "one in a row, not two"
        await kill_a_worker(app, store, fuse, Between, max_crashes=2)
        assert (await between.get()).status == "failed", "now it is two"


async def _is(app: Harness, id: str, status: str) -> bool:
    return (await app.get(id)).status == status


async def test_m5_a_hand_back_adds_nothing_to_the_count(store: Store, fuse: Fuse) -> None:
    async with harness(store, Deadly, max_crashes=2) as app:
        deadly = await app.start(Deadly)
        await kill_a_worker(app, store, fuse, Deadly, max_crashes=2)
        for _ in range(3):
            before = fuse.touched
            other = neighbour(app, store, Deadly, max_crashes=2)
            async with other, other.worker({"default": 1}, grace=0):
                await until(lambda before=before: fuse.touched > before, "the step to run")
        kept = await deadly.get()
        assert (kept.status, kept.attempt) == ("runnable", 1), "a graceful stop is neither a death nor a retry"
        await kill_a_worker(app, store, fuse, Deadly, max_crashes=2)
        assert (await deadly.get()).status == "failed", "nor does it set the count back"


async def test_m5_retries_are_counted_separately_from_crashes(store: Store) -> None:
    class Polls(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Done:
            return Retry() if ctx.attempt < 20 else Done(ctx.attempt)

    async with harness(store, Polls, max_crashes=2) as app:
        polls = await drained(app, app.start(Polls))
        assert await polls.result(timeout=0) == 20


async def test_m5_a_quarantined_child_counts_for_its_parent(store: Store, fuse: Fuse) -> None:
    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(Deadly)], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Done:
            return Done([(child.status, child.error[:11]) for child in ctx.children])

    async with harness(store, Parent, Deadly, max_crashes=1) as app:
        parent = await app.start(Parent)
        await kill_a_worker(app, store, fuse, Parent, Deadly, max_crashes=1)
        await app.drain()
        assert await parent.result(timeout=0) == [["failed", "quarantined"]]


async def test_m5_signals_and_the_timeout_survive_a_crash(store: Store) -> None:
    fuse = Fuse()

    class Wakes(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("a", "b", then=self.woken, timeout=60)

        @step
        async def woken(self, ctx: Context) -> Done:
            await fuse.touch()
            return Done([[signal.name for signal in ctx.awaited], ctx.timed_out])

    async with harness(store, Wakes) as app:
        told, late = await app.start(Wakes), await app.start(Wakes)
        await app.drain()
        await told.signal("a")
        await kill_a_worker(app, store, fuse, Wakes)
        await told.signal("b")
        await app.advance(60)
        await kill_a_worker(app, store, fuse, Wakes)
        fuse.lit = False
        await app.drain()
        assert await told.result(timeout=0) == [["a", "b"], False]
        assert await late.result(timeout=0) == [[], True]


async def test_m5_an_instance_whose_lease_was_renewed_is_not_reclaimed(store: Store, fuse: Fuse) -> None:
    """Finding dead workers and reclaiming their work are separate: a renewal in between counts."""
    from hark.kernel.requests import Reclaim

    async with harness(store, Deadly, max_crashes=1) as app:
        deadly = await app.start(Deadly)
        async with doomed(app, store, fuse, Deadly, max_crashes=1) as other:
            assert other._clerk.worker is not None
            await app._ask(Reclaim(owners=[other._clerk.worker.owner]))
            assert (await deadly.get()).status == "executing"
            await app.sweep()
            assert (await deadly.get()).status == "executing", "its lease is still in the store, too"
