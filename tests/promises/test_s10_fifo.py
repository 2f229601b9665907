"""S10: FIFO per sender to one instance."""

import asyncio
import threading

from hark import Await, Context, Done, Hark, Machine, Next, step
from tests.promises.support_signals import Pack, Waiter, harness, rows
from tests.support.harness import drained
from tests.support.stores import Store


async def test_s10_signals_of_one_sender_arrive_in_the_order_of_its_calls(store: Store) -> None:
    """Awaited or not: a verb takes effect when it is called."""
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["go"]}, id="w")
        replies = [app.signal("w", "go", n) for n in range(200)]
        for reply in replies:
            assert (await reply).status == "stored"
        await app.drain()
        assert [payload for _, payload in (await app.result("w"))["awaited"]] == list(range(200))


async def test_s10_signals_by_id_by_key_and_with_start_share_one_order(store: Store) -> None:
    async with harness(store, Waiter) as app:
        key = "0190a0b1-0000-7000-8000-00000000000f"  # shaped like the ids the engine makes
        handle = await app.start(Waiter, {"names": ["go"]}, correlation_key=key)
        ways = [
            lambda n: app.signal(handle, "go", n),
            lambda n: app.signal_with_start(Waiter, key, "go", n),
            lambda n: app.signal(key, "go", n),
        ]
        for reply in [ways[n * 7 % 3](n) for n in range(60)]:
            await reply
        await app.drain()
        assert [payload for _, payload in (await handle.result())["awaited"]] == list(range(60))


async def test_s10_signals_and_broadcasts_of_one_caller_share_one_order(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "broadcasts": ["all"]}, id="w"))
        replies = [app.signal("w", "note", n) if n % 3 else app.broadcast("all", n) for n in range(30)]
        for reply in replies:
            await reply
        found = await rows(store, "SELECT payload FROM inbox ORDER BY seq")
        assert [int(payload) for (payload,) in found] == list(range(30))


async def test_s10_signals_of_one_step_arrive_in_the_order_of_its_calls(store: Store) -> None:
    class Sender(Machine):
        @step
        async def start(self, ctx: Context) -> Next:
            for n in range(5):
                ctx.signal("w", "go", n)
            return Next(self.more)

        @step
        async def more(self, ctx: Context) -> Done:
            for n in range(5, 10):
                ctx.signal("the-key", "go", n)
            return Done()

    async with harness(store, Sender, Waiter) as app:
        await app.start(Sender)
        await drained(app, app.start(Waiter, {"names": ["end"]}, id="w", correlation_key="the-key"))
        await drained(app, app.signal("w", "end"))
        assert (await app.result("w"))["all"] == [["go", n] for n in range(10)] + [["end", None]]


async def test_s10_signals_and_broadcasts_of_one_step_share_one_order(store: Store) -> None:
    class Sender(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            for n in range(30):
                if n % 3:
                    ctx.signal("w", "note", n)
                else:
                    ctx.broadcast("all", n)
            return Done()

    async with harness(store, Sender, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["go"], "broadcasts": ["all"]}, id="w"))
        await drained(app, app.start(Sender))
        found = await rows(store, "SELECT payload FROM inbox ORDER BY seq")
        assert [int(payload) for (payload,) in found] == list(range(30))


async def test_s10_fault_14_many_senders_one_instance_each_seen_once_and_in_order(store: Store) -> None:
    """Eight senders, half of them threads, while the receiver collects."""
    senders, each = 8, 25
    app = Hark(store.url, **store.options)
    acknowledged: list[str] = []

    async def on_the_loop(sender: int) -> None:
        for n in range(each):
            acknowledged.append((await app.signal("p", "item", [sender, n])).status)

    def in_a_thread(sender: int) -> None:
        for n in range(each):
            acknowledged.append(app.signal("p", "item", [sender, n]).result(timeout=60).status)

    async with app, app.worker():
        await app.start(Pack, {"names": ["item"], "size": senders * each}, id="p")
        threads = [threading.Thread(target=in_a_thread, args=(s,)) for s in range(senders // 2)]
        for thread in threads:
            thread.start()
        await asyncio.gather(*(on_the_loop(s) for s in range(senders // 2, senders)))
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in threads))
        payloads = (await app.result("p", timeout=60))["payloads"]
    assert len(acknowledged) == senders * each
    assert set(acknowledged) <= {"woke", "stored"}
    assert len(payloads) == senders * each
    for sender in range(senders):
        assert [n for s, n in payloads if s == sender] == list(range(each))


async def test_s10_fault_14_senders_in_two_processes_that_share_nothing_but_the_store(store: Store) -> None:
    """Two apps on one store, each with its own clerk: FIFO per sender, and every signal seen."""
    one, two = Hark(store.url, **store.options), Hark(store.url, **store.options)
    async with one, two, one.worker():
        await one.start(Pack, {"names": ["item"], "size": 60}, id="p")

        async def send(app: Hark, sender: int) -> None:
            for reply in [app.signal("p", "item", [sender, n]) for n in range(30)]:
                await reply

        await asyncio.gather(send(one, 1), send(two, 2))
        payloads = (await one.result("p", timeout=60))["payloads"]
    for sender in (1, 2):
        assert [n for s, n in payloads if s == sender] == list(range(30))


async def test_s10_the_order_holds_across_activations(store: Store) -> None:
    class OneByOne(Machine):
        """Consumes one signal per step; the order seen is the order sent."""

        @step
        async def start(self, ctx: Context) -> Await:
            return Await("item", then=self.take)

        @step
        async def take(self, ctx: Context) -> Next:
            ctx.state.setdefault("got", []).extend(signal.payload for signal in ctx.awaited)
            return Next(self.again)

        @step
        async def again(self, ctx: Context) -> Await | Done:
            return Done(ctx.state["got"]) if len(ctx.state["got"]) >= 50 else Await("item", then=self.take)

    async with Hark(store.url, **store.options) as app, app.worker():
        handle = await app.start(OneByOne)
        for n in range(50):
            await app.signal(handle, "item", n)
        assert await handle.result(timeout=60) == list(range(50))
