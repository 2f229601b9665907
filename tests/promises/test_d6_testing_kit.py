"""D6: an engine in memory with a hand-moved clock, `drain()`, and a pytest plugin."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hark import (
    Await,
    AwakeableRejected,
    Child,
    Context,
    Done,
    FunctionContext,
    Handle,
    Hark,
    InstanceFailed,
    InvalidInput,
    Machine,
    Next,
    Rate,
    Retry,
    Spawn,
    Stop,
    step,
    workflow,
)
from hark.testing import Harness
from tests.support.checkout import Checkout
from tests.support.harness import harness
from tests.support.stores import Store


class Tour(Machine):
    """One outcome of each kind."""

    @step
    async def start(self, ctx: Context) -> Any:
        return Next(self.wobble)

    @step
    def wobble(self, ctx: Context) -> Any:
        return Retry() if ctx.attempt < 2 else Spawn([Child(Leaf), Child(Leaf, {"fail": True})], then=self.rest)

    @step
    async def rest(self, ctx: Context) -> Any:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Any:
        return Done()


class Leaf(Machine, queue="leaves"):
    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("leaf") if ctx.state.get("fail") else Done(ctx.state.get("value"))


class Recorder(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        order.append(ctx.id)
        return Done()


order: list[str] = []


class Sleeper(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(then=self.end, timeout=ctx.state["seconds"])

    @step
    async def end(self, ctx: Context) -> Done:
        return Done([ctx.timed_out, ctx.now().isoformat()])


async def test_d6_the_same_on_any_store(store: Store) -> None:
    async with harness(store, Checkout) as app:
        order = await app.start(Checkout, {"order": 42})
        assert await app.drain() == {"steps": 1, "await": 1}
        await app.advance(3600)
        assert await app.drain() == {"steps": 1, "stop": 1}
        failed = await order.get()
        assert (failed.status, failed.error, failed.state) == ("failed", "payment never came", {"order": 42, "n": 1})


async def test_d6_drain_counts_steps_and_each_kind_of_outcome(store: Store) -> None:
    async with harness(store, Tour, Leaf) as app:
        tour = await app.start(Tour)
        assert await app.drain() == {"steps": 7, "next": 1, "retry": 2, "spawn": 1, "done": 1, "stop": 1, "await": 1}
        assert await app.drain() == {"steps": 0}
        await tour.signal("go")
        assert await app.drain() == {"steps": 1, "done": 1}


async def test_d6_a_harness_may_start_empty(store: Store) -> None:
    async with harness(store) as app:
        assert await app.drain() == {"steps": 0}
        await app.register(Leaf)
        by_name = await app.start("Leaf", {"value": 7})
        by_class = await app.start(Checkout, {"order": 1})  # starting registers
        assert await app.drain() == {"steps": 2, "done": 1, "await": 1}
        assert await by_name.result() == 7
        assert (await by_class.get()).status == "awaiting_signal"


async def test_d6_a_drain_runs_in_order(store: Store) -> None:
    order.clear()
    async with harness(store, Recorder) as app:
        for n, priority in enumerate([5, 0, 9, 0, -1, 5]):
            await app.start(Recorder, id=f"{n}", priority=priority)
        await app.drain()
    assert order == ["4", "1", "3", "0", "5", "2"]


async def test_d6_a_drain_leaves_what_is_not_due(store: Store) -> None:
    order.clear()
    async with harness(store, Recorder) as app:
        await app.start(Recorder, id="now")
        await app.start(Recorder, id="later", delay=10)
        assert await app.drain() == {"steps": 1, "done": 1}
        await app.advance(9.999999)
        assert await app.drain() == {"steps": 0}
        await app.advance(0.000001)
        assert await app.drain() == {"steps": 1, "done": 1}
    assert order == ["now", "later"]


async def test_d6_a_drain_runs_past_all_that_a_limit_refuses(store: Store) -> None:
    """A turn replaces refused rows by others a bounded number of times; a drain continues until none is left."""
    order.clear()
    async with harness(store, Recorder, rate_limits={"api": Rate(allowed=2, period=60)}) as app:
        for n in range(25):
            await app.start(Recorder, id=f"limited-{n:02}", rate_limit="api")
        await app.start(Recorder, id="free")
        assert await app.drain() == {"steps": 3, "done": 3}
        assert order == ["limited-00", "limited-01", "free"]
        for n in range(2, 25):
            await app.advance(30)
            assert await app.drain() == {"steps": 1, "done": 1}
            assert order[-1] == f"limited-{n:02}"


async def test_d6_a_drain_runs_one_at_a_time_under_a_key(store: Store) -> None:
    order.clear()
    async with harness(store, Recorder) as app:
        for n in range(20):
            await app.start(Recorder, id=f"{n:02}", concurrency_key="tenant")
        assert await app.drain() == {"steps": 20, "done": 20}
        assert order == [f"{n:02}" for n in range(20)]


async def test_d6_a_drain_runs_every_queue(store: Store) -> None:
    async with harness(store, Recorder, Leaf) as app:
        await app.start(Recorder, queue="somewhere")
        await app.start(Leaf)
        await app.start(Leaf, queue="else")
        assert await app.drain() == {"steps": 3, "done": 3}


async def test_d6_a_step_that_raises_is_counted_by_what_handle_returns() -> None:
    class Broken(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            raise ValueError("broken")

        def handle(self, error: Exception, ctx: Context) -> Retry | Stop:
            return Retry() if ctx.attempt < 2 else Stop(error)

    async with Harness(Broken) as app:
        broken = await app.start(Broken)
        assert await app.drain() == {"steps": 3, "retry": 2, "stop": 1}
        with pytest.raises(InstanceFailed, match="ValueError: broken"):
            await broken.result()


async def test_d6_the_clock_starts_at_the_real_time_and_stands_still(store: Store) -> None:
    before = datetime.now(UTC)
    async with harness(store, Sleeper) as app:
        first = await (await app.start(Sleeper, {"seconds": 5})).get()
        assert before <= first.created_at <= datetime.now(UTC)
        second = await (await app.start(Sleeper, {"seconds": 5})).get()
        assert second.created_at == first.created_at


async def test_d6_the_clock_replaces_the_databases(store: Store) -> None:
    async with harness(store, Sleeper) as app:
        sleeper = await app.start(Sleeper, {"seconds": 5})
        await app.drain()
        parked = await sleeper.get()
        assert parked.waits[0].deadline == parked.created_at + timedelta(seconds=5)
        await app.advance(86400)
        await app.drain()
        done = await sleeper.get()
        assert done.finished_at == done.created_at + timedelta(days=1)
        assert done.result == [True, done.finished_at.isoformat()]
        assert (await app.events(sleeper))[-1].at == done.finished_at


async def test_d6_advance_fires_everything_due_including_this_instant(store: Store) -> None:
    async with harness(store, Sleeper) as app:
        handles = await app.start_many([(Sleeper, {"seconds": seconds}) for seconds in (1, 59.999999, 60, 60.000001)])
        await app.drain()
        await app.advance(60)
        assert await app.drain() == {"steps": 3, "done": 3}
        assert [(await handle.get()).status for handle in handles] == ["done", "done", "done", "awaiting_signal"]


async def test_d6_advance_fires_more_than_one_batch(store: Store) -> None:
    async with harness(store, Sleeper) as app:
        await app.start_many([(Sleeper, {"seconds": 60})] * 2100)
        async with app.worker():
            await _parked(app, 2100)
        await app.advance(60)
        assert await app.list(status="awaiting_signal") == []


async def _parked(app: Harness, count: int) -> None:
    while len(await app.list(status="awaiting_signal", limit=10_000)) < count:
        await asyncio.sleep(0.01)


async def test_d6_advance_takes_seconds_or_a_timedelta_and_only_goes_forward() -> None:
    async with Harness() as app:
        start = app.clock.now
        await app.advance(1.5)
        await app.advance(timedelta(minutes=1))
        await app.advance(0)
        assert app.clock.now - start == 61_500_000
        for wrong in (-1, float("nan"), float("inf"), "1"):
            with pytest.raises(InvalidInput):
                await app.advance(wrong)  # type: ignore[arg-type]
        assert app.clock.now - start == 61_500_000


async def test_d6_nothing_fires_while_the_clock_stands_still(store: Store) -> None:
    async with harness(store, Sleeper) as app:
        sleeper = await app.start(Sleeper, {"seconds": 0.001})
        await app.drain()
        assert await app.drain() == {"steps": 0}
        assert (await sleeper.get()).status == "awaiting_signal"


async def test_d6_a_harness_is_a_hark_and_its_handles_have_their_pinned_members() -> None:
    async with Harness(Checkout) as app:
        assert isinstance(app, Hark)
        assert app.url == "sqlite://"
        order = await app.start(Checkout, {"order": 1}, id="the-order")
        assert isinstance(order, Handle)
        assert order.id == "the-order"
        await app.drain()
        assert (await order.get()).id == "the-order"
        assert (await order.signal("payment_confirmed", 3, dedup_key="k")).status == "woke"
        assert (await order.signal("payment_confirmed", 3, dedup_key="k")).status == "duplicate"
        await app.drain()
        assert await order.result(timeout=60) == {"order": 1, "paid": 3}
        other = await app.start(Checkout, {"order": 2})
        assert (await other.cancel("changed my mind")).status == "cancelled"


async def test_d6_two_harnesses_in_memory_share_nothing() -> None:
    async with Harness(Leaf) as one, Harness(Leaf) as two:
        await one.start(Leaf, id="mine")
        assert await two.list() == []
        await two.start(Leaf, id="mine")
        assert await two.drain() == {"steps": 1, "done": 1}
        assert await one.drain() == {"steps": 1, "done": 1}


async def test_d6_a_second_drain_beside_a_running_worker_is_refused_with_a_reason() -> None:
    async with Harness(Leaf) as app, app.worker():
        with pytest.raises(InvalidInput, match="has a worker already"):
            await app.drain()


async def test_d6_the_fixture_is_available(hark_app: Harness) -> None:
    handle = await hark_app.start(Leaf, {"value": 1})
    assert await hark_app.drain() == {"steps": 1, "done": 1}
    assert await handle.result() == 1


def test_d6_the_fixture_works_in_synchronous_tests(hark_app: Harness) -> None:
    handle = hark_app.start(Leaf, {"value": 1}).result()
    with hark_app.worker({"leaves": 1}):
        assert handle.result(timeout=60).result() == 1


@workflow
async def interview(ctx: FunctionContext) -> list[Any]:
    answers: list[Any] = []
    for title in ("name?", "age?", "sure?"):
        try:
            answers.append(await (await ctx.awakeable(title=title)))
        except AwakeableRejected as error:
            answers.append(str(error))
    return answers


async def test_d6_scripted_answers_resolve_awakeables(store: Store) -> None:
    async with harness(store, interview) as app:
        app.answer("name?", "Ann")
        app.answer("sure?", reject="not at all")
        it = await app.start(interview)
        assert await app.drain() == {"steps": 2, "await": 2}
        assert [asked.title for asked in await app.awakeables(status="PENDING")] == ["age?"]
        app.answer(lambda asked: asked.title == "age?", 42)
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert await it.result() == ["Ann", 42, "not at all"]


def test_d6_the_kit_works_without_pytest(tmp_path: Path) -> None:
    """In a process in which `import pytest` fails, as in an installation that has only Hark."""
    code = """
import sys
sys.modules["pytest"] = sys.modules["_pytest"] = sys.modules["pytest_asyncio"] = None
import asyncio
import hark
from hark.testing import Harness

@hark.workflow
async def ask(ctx):
    return await (await ctx.awakeable(title="Go?", timeout=60))

async def main():
    async with Harness(ask, url="sqlite:///kit.db") as app:
        app.answer("Go?", "yes")
        asked = await app.start(ask)
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert await asked.result() == "yes"
        late = await app.start(ask)
        app.answer("Go?", reject="never reached")
        await app.drain()
        await app.advance(60)
        assert await late.result() == "yes"

asyncio.run(main())
print("passed")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("passed\n", "")
