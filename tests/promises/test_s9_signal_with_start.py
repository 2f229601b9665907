"""S9: signal_with_start delivers to the live holder of a key, or starts one and delivers, in one commit."""

import asyncio

import pytest

from hark import Await, Context, Done, Duplicate, Hark, InvalidInput, Machine, NotFound, step
from hark.kernel.requests import SignalWithStart
from hark.model.decisions import NewInstance
from hark.model.names import from_micros, new_id
from tests.promises.support_signals import Turns, Waiter, count, harness, until_blocked
from tests.support.harness import drained
from tests.support.stores import Store

GO = {"names": ["go"]}


class Cart(Machine):
    """Collects items until it is checked out."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("add", "checkout", then=self.more)

    @step
    async def more(self, ctx: Context) -> Await | Done:
        if any(signal.name == "checkout" for signal in ctx.awaited):
            return Done([signal.payload for signal in ctx.awaited if signal.name == "add"])
        return Await("add", "checkout", then=self.more)


async def test_s9_without_a_holder_an_instance_is_started_with_the_signal_in_its_inbox(store: Store) -> None:
    async with harness(store, Waiter) as app:
        handle = await app.signal_with_start(Waiter, "k", "go", 1, input=GO)
        assert (await app.get("k")).id == handle.id
        assert (await handle.get()).correlation_key == "k"
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert (await handle.result())["awaited"] == [["go", 1]]


async def test_s9_the_live_holder_gets_the_signal_and_nothing_is_started(store: Store) -> None:
    async with harness(store, Cart) as app:
        cart = await drained(app, app.signal_with_start(Cart, "cart:1", "add", "apple"))
        again = await app.signal_with_start(Cart, "cart:1", "add", "pear", input={"ignored": True})
        assert again.id == cart.id
        await drained(app, app.signal_with_start(Cart, "cart:1", "checkout"))
        assert await cart.result() == ["apple", "pear"]
        assert await count(store, "instances") == 1


async def test_s9_many_at_once_start_one(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        replies = [app.signal_with_start(Cart, "cart:1", "add", n) for n in range(30)]
        handles = {(await reply).id for reply in replies}
        assert len(handles) == 1
        async with app.worker():
            await app.signal("cart:1", "checkout")
            assert await app.result("cart:1", timeout=30) == list(range(30))
        assert await count(store, "instances") == 1


async def test_s9_a_finished_holder_is_succeeded_by_a_new_one(store: Store) -> None:
    async with harness(store, Waiter) as app:
        first = await drained(app, app.signal_with_start(Waiter, "k", "go", 1, input=GO))
        second = await app.signal_with_start(Waiter, "k", "go", 2, input=GO)
        assert second.id != first.id
        await app.drain()
        assert (await second.result())["awaited"] == [["go", 2]]
        assert (await first.result())["awaited"] == [["go", 1]]


async def test_s9_a_dedup_key_the_live_holder_has_seen_delivers_nothing(store: Store) -> None:
    async with harness(store, Cart) as app:
        first = await app.signal_with_start(Cart, "cart:1", "add", 1, dedup_key="evt-1")
        again = await app.signal_with_start(Cart, "cart:1", "add", 1, dedup_key="evt-1")
        assert again.id == first.id
        await app.signal_with_start(Cart, "cart:1", "add", 2, dedup_key="evt-2")
        await drained(app, app.signal("cart:1", "checkout"))
        assert await first.result() == [1, 2]


async def test_s9_of_two_with_one_dedup_key_in_one_turn_one_is_delivered(store: Store) -> None:
    async with harness(store, Cart) as app, Turns(store, app.clock) as turns:
        await app.start(Cart, correlation_key="cart:1")
        item = NewInstance("Cart", "{}", new_id(), correlation_key="cart:1")
        await turns.run(*(SignalWithStart(item=item, name="add", dedup_key="evt-1") for _ in range(2)))
        assert await count(store, "inbox") == 1


async def test_s9_a_dedup_key_a_finished_holder_has_seen_starts_nothing(store: Store) -> None:
    async with harness(store, Waiter) as app:
        first = await drained(app, app.signal_with_start(Waiter, "k", "go", 1, input=GO, dedup_key="evt-1"))
        assert (await first.get()).status == "done"
        again = await app.signal_with_start(Waiter, "k", "go", 1, input=GO, dedup_key="evt-1")
        assert again.id == first.id
        assert await app.drain() == {"steps": 0}
        assert await count(store, "instances") == 1
        fresh = await app.signal_with_start(Waiter, "k", "go", 2, input=GO, dedup_key="evt-2")
        assert fresh.id != first.id


async def test_s9_any_kept_holder_that_has_seen_the_dedup_key_is_returned(store: Store) -> None:
    """Not only the latest: the webhook of last week's order is a duplicate although a newer holder exists."""
    async with harness(store, Waiter) as app:
        handles = []
        for n in range(3):
            handles.append(await app.signal_with_start(Waiter, "k", "go", n, input=GO, dedup_key=f"evt-{n}"))
            await app.drain()
            await app.advance(1)
        for n in range(3):
            again = await app.signal_with_start(Waiter, "k", "go", n, input=GO, dedup_key=f"evt-{n}")
            assert again.id == handles[n].id
        live = await app.signal_with_start(Waiter, "k", "other", input=GO)
        again = await app.signal_with_start(Waiter, "k", "go", 0, input=GO, dedup_key="evt-0")
        assert again.id == handles[0].id
        await app.drain()
        assert (await live.get()).status == "awaiting_signal"
        assert await count(store, "instances") == 4


async def test_s9_a_holder_that_is_no_longer_kept_is_forgotten_with_its_dedup_keys(store: Store) -> None:
    async with harness(store, Waiter) as app:
        first = await drained(app, app.signal_with_start(Waiter, "k", "go", 1, input=GO, dedup_key="evt-1"))
        await app.advance(1)
        await app.forget(before=from_micros(app.clock.now))
        again = await app.signal_with_start(Waiter, "k", "go", 1, input=GO, dedup_key="evt-1")
        assert again.id != first.id


async def test_s9_keys_are_one_namespace_over_all_definitions(store: Store) -> None:
    async with harness(store, Waiter, Cart) as app:
        holder = await app.start(Waiter, GO, correlation_key="k")
        handle = await app.signal_with_start(Cart, "k", "go", 5)
        assert handle.id == holder.id
        await app.drain()
        assert (await holder.result())["awaited"] == [["go", 5]]


async def test_s9_a_key_that_is_taken_for_good_is_a_duplicate_and_nothing_is_stored(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, GO, id="holder", correlation_key="k", correlation_scope="forever")
        await drained(app, app.signal("k", "go", dedup_key="evt-1"))
        with pytest.raises(Duplicate) as taken:
            await app.signal_with_start(Waiter, "k", "go", input=GO)
        assert taken.value.holder == "holder"
        assert await count(store, "inbox") == 1
        assert (await app.signal_with_start(Waiter, "k", "go", input=GO, dedup_key="evt-1")).id == "holder"


async def test_s9_a_start_that_fails_stores_nothing(store: Store) -> None:
    async with harness(store, Waiter) as app:
        with pytest.raises(NotFound):
            await app.signal_with_start("NobodyKnowsThis", "k", "go")
        for key, name in (("", "go"), ("k", ""), ("k\0", "go")):
            with pytest.raises(InvalidInput):
                app.signal_with_start(Waiter, key, name)
        assert await count(store, "instances") == await count(store, "inbox") == 0
        # But with a live holder the definition need not be known.
        holder = await app.start(Waiter, GO, correlation_key="k")
        assert (await app.signal_with_start("NobodyKnowsThis", "k", "go")).id == holder.id


async def test_s9_by_name_without_the_code(store: Store) -> None:
    async with harness(store, Waiter):
        pass
    async with harness(store) as app:
        handle = await app.signal_with_start("Waiter", "k", "go", 1, input=GO)
    async with harness(store, Waiter) as app:
        await app.drain()
        assert (await app.result(handle.id))["awaited"] == [["go", 1]]


async def test_s9_start_and_signal_are_one_commit(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("M")
        request = SignalWithStart(item=NewInstance("M", "{}", "m", correlation_key="k"), name="go")
        turn = await turns.open_turn(request)
        await turn.tx.rollback()
        assert await count(store, "instances") == await count(store, "inbox") == 0
        await turns.run(request)
        claim = await turns.claim("M")
        assert [row.name for row in claim.inbox] == ["go"]


async def test_s9_of_two_concurrent_starters_of_one_key_one_starts(pg_store: Store) -> None:
    async with Turns(pg_store) as one, Turns(pg_store) as two:
        await one.register("M")
        await two.run()
        first = SignalWithStart(item=NewInstance("M", "{}", "first", correlation_key="k"), name="go", payload="1")
        second = SignalWithStart(item=NewInstance("M", "{}", "second", correlation_key="k"), name="go", payload="2")
        starting = await one.open_turn(first)
        meeting = asyncio.create_task(two.run(second))
        await until_blocked(pg_store, two)
        await starting.tx.commit()
        await meeting
        assert first.result == second.result == "first"
        claim = await one.claim("M")
        assert [row.payload for row in claim.inbox] == ["1", "2"]
