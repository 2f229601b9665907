"""S5: packs. Awaiting again accumulates, does not spin, and misses no signal."""

import asyncio

import pytest

from hark import Await, Broadcast, Context, Done, Machine, Retry, step
from hark.kernel.requests import Deliver, Reclaim
from hark.model.decisions import Arm, Park
from tests.promises.support_signals import Gate, Pack, Turns, harness, outcome, seen
from tests.support.harness import drained
from tests.support.stores import Store


async def test_s5_fault_7_awaiting_again_accumulates_and_does_not_spin(store: Store) -> None:
    async with harness(store, Pack) as app:
        await drained(app, app.start(Pack, {"names": ["item"], "size": 3}, id="p"))
        for n in range(3):
            assert (await app.signal("p", "item", n)).status == "woke"
            ran = await app.drain()
            assert ran == ({"steps": 1, "await": 1} if n < 2 else {"steps": 1, "done": 1})
        assert (await app.result("p"))["payloads"] == [0, 1, 2]
        assert (await app.result("p"))["looks"] == 3


async def test_s5_a_pack_that_is_complete_is_handed_in_one_activation(store: Store) -> None:
    async with harness(store, Pack) as app:
        await app.start(Pack, {"names": ["item"], "size": 3}, id="p")
        for n in range(3):
            await app.signal("p", "item", n)
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert (await app.result("p"))["payloads"] == [0, 1, 2]


async def test_s5_a_signal_during_the_step_wakes_the_await_it_returns(store: Store) -> None:
    gate = Gate()

    class Slow(Pack, name="Slow"):
        @step
        async def collect(self, ctx: Context) -> Await | Done:
            await gate.hold()
            return await super().collect(ctx)

    async with harness(store, Slow) as app:
        await app.start(Slow, {"names": ["item"], "size": 2}, id="p")
        await app.signal("p", "item", 1)
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        assert (await app.signal("p", "item", 2)).status == "stored"
        gate.open.set()
        assert await draining == {"steps": 3, "await": 2, "done": 1}
        assert (await app.result("p"))["payloads"] == [1, 2]


async def test_s5_an_older_signal_that_was_not_handed_wakes_too(store: Store) -> None:
    """A set, not a high-water mark: the unhanded one has the lower seq."""

    class Wider(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("b", then=self.widen)

        @step
        async def widen(self, ctx: Context) -> Await:
            assert [signal.name for signal in ctx.awaited] == ["b"]
            return Await("a", "b", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx))

    async with harness(store, Wider) as app:
        handle = await drained(app, app.start(Wider))
        assert (await app.signal(handle, "a", 1)).status == "stored"
        assert (await app.signal(handle, "b", 2)).status == "woke"
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert (await handle.result())["awaited"] == [["a", 1], ["b", 2]]


async def test_s5_reading_the_whole_inbox_does_not_count_as_handed(store: Store) -> None:
    """A step that saw a signal in `ctx.all` and then awaits its name gets it immediately."""

    class Looks(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.look)

        @step
        async def look(self, ctx: Context) -> Await:
            assert len(ctx.all) == 2
            return Await("other", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx)["awaited"])

    async with harness(store, Looks) as app:
        handle = await app.start(Looks)
        await app.signal(handle, "other", 1)
        await app.signal(handle, "go", 2)
        assert await app.drain() == {"steps": 3, "await": 2, "done": 1}
        assert await handle.result() == [["other", 1]]


async def test_s5_handed_is_per_activation_not_permanent(store: Store) -> None:
    """a was handed two activations ago and not consumed; a step that awaits it again gets it immediately."""

    class Returns(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("a", then=self.other)

        @step
        async def other(self, ctx: Context) -> Await:
            return Await("b", then=self.back)

        @step
        async def back(self, ctx: Context) -> Await:
            return Await("a", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx)["awaited"])

    async with harness(store, Returns) as app:
        handle = await app.start(Returns)
        await drained(app, app.signal(handle, "a", 1))
        await app.signal(handle, "b", 2)
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert await handle.result() == [["a", 1]]


async def test_s5_a_retry_waits_out_its_delay_whatever_arrives(store: Store) -> None:
    class Patient(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("item", Broadcast("all"), then=self.work, timeout=3600)

        @step
        async def work(self, ctx: Context) -> Retry | Done:
            return Retry(60) if ctx.attempt == 0 else Done(seen(ctx))

    async with harness(store, Patient) as app:
        handle = await app.start(Patient)
        await drained(app, app.signal(handle, "item", 1))
        assert (await handle.get()).status == "runnable"
        assert (await app.signal(handle, "item", 2)).status == "stored"
        assert await app.broadcast("all", 3) == 1
        await app.advance(59.999)
        assert await app.drain() == {"steps": 0}
        await app.advance(0.001)
        assert await app.drain() == {"steps": 1, "done": 1}
        # Read again at this activation: at least what it saw before.
        assert (await handle.result()) == {
            "awaited": [["item", 1], ["item", 2], ["all", 3]], "all": [["item", 1], ["item", 2], ["all", 3]],
            "timed_out": False, "attempt": 1,
        }  # fmt: skip


@pytest.mark.parametrize("why", ["signal", "timeout"])
async def test_s5_a_rerun_after_a_crash_sees_at_least_what_it_saw_before(store: Store, why: str) -> None:
    now = [1_000_000]
    async with Turns(store, lambda: now[0]) as turns:
        await turns.register("M")
        await turns.start("M", "m")
        park = Park((Arm("signal", "w-go", name="go", timeout=5_000_000),))
        await turns.commit(await turns.claim("M"), park, step="woken")
        if why == "signal":
            await turns.run(Deliver(target="m", name="go"))
        else:
            now[0] += 5_000_000
            await turns.run(sweep=True)
        first = await turns.claim("M")
        await turns.run(Deliver(target="m", name="go"))
        await turns.run(Reclaim(owners=["by-hand"]))
        second = await turns.claim("M")
        assert (second.step, second.attempt, second.crashes) == ("woken", 1, 1)
        assert [wait.name for wait in second.waits] == [wait.name for wait in first.waits] == ["go"]
        assert [row.seq for row in first.inbox] == [row.seq for row in second.inbox][:1]
        assert [row.kind for row in second.inbox] == ["signal" if why == "signal" else "timer", "signal"]


async def test_s5_a_wide_pack_of_several_names_and_kinds(store: Store) -> None:
    async with harness(store, Pack) as app:
        await drained(app, app.start(Pack, {"names": ["a", "b"], "broadcasts": ["x"], "size": 4}, id="p"))
        await app.signal("p", "a", 1)
        await app.broadcast("x", 2)
        await drained(app, app.signal("p", "x", "not a broadcast"))
        await app.signal("p", "b", 3)
        await drained(app, app.broadcast("x", 4))
        assert (await app.result("p"))["payloads"] == [1, 2, 3, 4]


class Walked(tuple[int, ...]):
    """Counts how often it is iterated."""

    walks = 0

    def __contains__(self, item: object) -> bool:
        Walked.walks += 1
        return super().__contains__(item)


async def test_s5_a_large_pack_is_not_walked_once_per_signal(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        await turns.start("M", "m")
        await turns.commit(await turns.claim("M"), Park((Arm("signal", "w1", name="item"),)), step="collect")
        await turns.run(*(Deliver(target="m", name="item") for _ in range(50)))
        claim = await turns.claim("M")
        handed = Walked(row.seq for row in claim.inbox)
        again = outcome(claim, Park((Arm("signal", "w2", name="item"),)))
        again.decision.handed = handed
        await turns.run(again)
        assert await turns.nobody_runs("M")
        assert Walked.walks == 0
