"""S7: deduplication outlives consumption, and the end of the instance."""

import asyncio

import pytest

from hark import Await, Context, Done, Hark, Machine, Next, NoTarget, step
from hark.kernel.requests import Deliver
from hark.model.names import from_micros
from tests.promises.support_signals import Gate, Turns, Waiter, count, harness, rows
from tests.support.harness import drained
from tests.support.stores import Store


class Consumer(Machine):
    """Consumes a signal at a time, until one says stop."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("event", then=self.work)

    @step
    async def work(self, ctx: Context) -> Next:
        ctx.state.setdefault("got", []).extend(signal.payload for signal in ctx.awaited)
        return Next(self.decide)

    @step
    async def decide(self, ctx: Context) -> Await | Done:
        return Done(ctx.state["got"]) if "stop" in ctx.state["got"] else Await("event", then=self.work)


async def test_s7_fault_15_the_same_key_twice_is_one_row(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        assert (await app.signal("w", "go", 1, dedup_key="evt")).status == "stored"
        again = await app.signal("w", "go", 2, dedup_key="evt")
        assert (again.status, again.instance_id) == ("duplicate", "w")
        assert await rows(store, "SELECT payload FROM inbox") == [("1",)]


async def test_s7_fault_15_the_same_key_twice_in_one_turn_is_one_row(store: Store) -> None:
    async with harness(store, Waiter) as app, Turns(store, app.clock) as turns:
        await app.start(Waiter, {"names": ["go"]}, id="w", correlation_key="k")
        both = [Deliver(target=target, name="go", dedup_key="evt") for target in ("w", "k", "w")]
        await turns.run(*both)
        assert [request.result.status for request in both] == ["stored", "duplicate", "duplicate"]
        assert await count(store, "inbox") == 1


async def test_s7_a_key_is_per_target_whatever_the_signals_name(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        await app.signal("w", "go", dedup_key="evt")
        assert (await app.signal("w", "another-name", dedup_key="evt")).status == "duplicate"


async def test_s7_fault_17_the_same_key_to_two_instances_is_stored_in_both(store: Store) -> None:
    async with harness(store, Waiter) as app:
        for id in ("one", "two"):
            await app.start(Waiter, {"names": ["go"]}, id=id)
            assert (await app.signal(id, "go", dedup_key="evt")).status == "stored"
        assert await count(store, "inbox") == 2


async def test_s7_a_holder_of_a_correlation_key_gets_what_an_earlier_one_has_seen(store: Store) -> None:
    async with harness(store, Waiter) as app:
        for id in ("one", "two"):
            await app.start(Waiter, {"names": ["go"]}, id=id, correlation_key="k")
            await app.drain()
            sent = await app.signal("k", "go", dedup_key="evt")
            assert (sent.status, sent.instance_id) == ("woke", id)
            await app.drain()


async def test_s7_signals_without_a_key_are_never_duplicates(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        for _ in range(3):
            assert (await app.signal("w", "go", 1)).status == "stored"
        assert await count(store, "inbox") == 3


async def test_s7_fault_18_redelivered_after_consumption_is_still_a_duplicate(store: Store) -> None:
    async with harness(store, Consumer) as app:
        await drained(app, app.start(Consumer, id="c"))
        assert (await app.signal("c", "event", 1, dedup_key="evt-1")).status == "woke"
        await app.drain()
        assert await count(store, "inbox", "consumed_at IS NULL") == 0
        assert (await app.signal("c", "event", 1, dedup_key="evt-1")).status == "duplicate"
        assert await app.drain() == {"steps": 0}
        await drained(app, app.signal("c", "event", "stop", dedup_key="evt-2"))
        assert await app.result("c") == [1, "stop"]


async def test_s7_a_duplicate_while_the_step_runs_does_not_wake_its_await(store: Store) -> None:
    gate = Gate()

    class Slow(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.work)

        @step
        async def work(self, ctx: Context) -> Await:
            await gate.hold()
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done()

    async with harness(store, Slow) as app:
        handle = await app.start(Slow)
        await app.signal(handle, "go", dedup_key="evt")
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        assert (await app.signal(handle, "go", dedup_key="evt")).status == "duplicate"
        gate.open.set()
        await draining
        assert (await handle.get()).status == "awaiting_signal"


@pytest.mark.parametrize("end", ["done", "failed", "cancelled"])
async def test_s7_a_known_key_is_a_duplicate_after_the_end(store: Store, end: str) -> None:
    class Endings(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            assert end == "done"
            return Done()

    async with harness(store, Endings) as app:
        await app.start(Endings, id="x", correlation_key="k")
        await app.signal("x", "unrelated", dedup_key="evt-0")
        if end == "cancelled":
            await app.cancel("x")
        else:
            await drained(app, app.signal("x", "go", dedup_key="evt-1"))
        assert (await app.get("x")).status == end
        for target in ("x", "k"):
            assert (await app.signal(target, "go", dedup_key="evt-0")).status == "duplicate"
            with pytest.raises(NoTarget):
                await app.signal(target, "go", dedup_key="evt-new")


async def test_s7_a_key_is_a_duplicate_as_long_as_the_instance_is_kept(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        await drained(app, app.signal("w", "go", dedup_key="evt"))
        await app.advance(10)
        assert (await app.signal("w", "go", dedup_key="evt")).status == "duplicate"
        assert await app.forget(before=from_micros(app.clock.now)) == ["w"]
        with pytest.raises(NoTarget):
            await app.signal("w", "go", dedup_key="evt")


async def test_s7_fault_19_the_answer_was_lost_and_the_client_sends_again(store: Store) -> None:
    async with harness(store, Waiter) as app, Turns(store, app.clock) as turns:
        await drained(app, app.start(Waiter, {"names": ["go"]}, id="w"))
        await turns.run(Deliver(target="w", name="go", payload="1", dedup_key="evt"))  # and its reply is lost
        assert (await app.signal("w", "go", 1, dedup_key="evt")).status == "duplicate"
        assert await app.drain() == {"steps": 1, "done": 1}
        assert (await app.result("w"))["all"] == [["go", 1]]
        assert (await app.signal("w", "go", 1, dedup_key="evt")).status == "duplicate"


async def test_s7_a_retry_does_not_forget_what_was_seen(store: Store) -> None:
    class Fails(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            raise RuntimeError("broken")

    async with harness(store, Fails) as app:
        await app.start(Fails, id="f")
        await drained(app, app.signal("f", "go", dedup_key="evt"))
        await app.retry("f")
        assert (await app.signal("f", "go", dedup_key="evt")).status == "duplicate"
        await app.drain()
        assert await count(store, "inbox") == 1


async def test_s7_every_sender_of_the_same_event_gets_success(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        replies = [app.signal("w", "go", dedup_key="evt") for _ in range(20)]
        assert sorted([(await reply).status for reply in replies]) == ["duplicate"] * 19 + ["stored"]
        assert await count(store, "inbox") == 1
