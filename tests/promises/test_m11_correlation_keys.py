"""M11: a business identity, unique among live instances; a second start names the holder; `forever` is wider."""

import asyncio
from typing import Any

import pytest

from hark import Await, Child, Context, Done, Duplicate, Handle, Machine, Spawn, Start, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.stores import Store


class Order(Machine):
    """Lives until a signal says how to end."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Any:
        return Stop("told to") if ctx.awaited[0].payload == "fail" else Done(ctx.correlation_key)


class Invoice(Order):
    pass


async def refused(app: Harness, *args: Any, **options: Any) -> str:
    """The holder that a refused start names."""
    before = len(await app.list())
    with pytest.raises(Duplicate) as error:
        await app.start(*args, **options)
    assert len(await app.list()) == before, "nothing half-written"
    assert error.value.holder in str(error.value)
    return error.value.holder


async def end(app: Harness, handle: Handle, how: str) -> None:
    await app.drain()
    if how == "cancel":
        await handle.cancel()
    else:
        await drained(app, handle.signal("end", how))
    assert (await handle.get()).status in ("done", "failed", "cancelled")


async def test_m11_a_second_start_is_a_duplicate_and_names_the_holder(store: Store) -> None:
    async with harness(store, Order, Invoice) as app:
        order = await app.start(Order, correlation_key="order:42")
        assert (await app.get("order:42")).id == order.id
        assert await refused(app, Order, correlation_key="order:42") == order.id
        assert await refused(app, Invoice, correlation_key="order:42") == order.id, "one namespace over all definitions"
        assert await refused(app, Order, correlation_key="order:42", correlation_scope="forever") == order.id
        await app.drain()
        assert await refused(app, Order, correlation_key="order:42") == order.id, "parked is alive"
        await app.start(Order, correlation_key="order:43")
        await app.start(Order)


@pytest.mark.parametrize("how", ["done", "fail", "cancel"])
async def test_m11_the_key_is_freed_on_termination(store: Store, how: str) -> None:
    async with harness(store, Order) as app:
        first = await app.start(Order, correlation_key="order:42")
        await end(app, first, how)
        await app.advance(1)  # the latest is the one that was started later
        second = await app.start(Order, correlation_key="order:42")
        assert (await app.get("order:42")).id == second.id, "a key means its live holder"
        assert await refused(app, Order, correlation_key="order:42") == second.id
        await end(app, second, how)
        assert (await app.get("order:42")).id == second.id, "and the latest kept one when none is live"
        assert (await first.get()).correlation_key == "order:42"


@pytest.mark.parametrize("how", ["done", "fail", "cancel"])
async def test_m11_a_forever_key_stays_taken(store: Store, how: str) -> None:
    async with harness(store, Order) as app:
        first = await app.start(Order, correlation_key="once", correlation_scope="forever")
        assert await refused(app, Order, correlation_key="once") == first.id
        await end(app, first, how)
        assert await refused(app, Order, correlation_key="once") == first.id
        assert await refused(app, Order, correlation_key="once", correlation_scope="forever") == first.id


async def test_m11_a_forever_key_can_be_taken_when_no_live_instance_holds_it(store: Store) -> None:
    async with harness(store, Order) as app:
        first = await app.start(Order, correlation_key="k")
        await end(app, first, "done")
        second = await app.start(Order, correlation_key="k", correlation_scope="forever")
        await end(app, second, "done")
        assert await refused(app, Order, correlation_key="k") == second.id


async def test_m11_an_id_equal_to_a_live_key_and_a_key_equal_to_an_id_are_duplicates(store: Store) -> None:
    async with harness(store, Order) as app:
        keyed = await app.start(Order, correlation_key="shared")
        named = await app.start(Order, id="named")
        assert await refused(app, Order, id="shared") == keyed.id
        assert await refused(app, Order, correlation_key="named") == "named"
        assert await refused(app, Order, id="named") == "named"
        assert await refused(app, Order, correlation_key=keyed.id) == keyed.id, "a generated id is taken, too"
        await end(app, keyed, "done")
        await end(app, named, "done")
        assert await refused(app, Order, correlation_key="named") == "named", "an id is taken for as long as it is kept"
        assert await refused(app, Order, id="named") == "named"
        both = await app.start(Order, id="shared", correlation_key="shared")
        assert both.id == "shared"
        assert await refused(app, Order, id="shared", correlation_key="other") == "shared"
        assert await refused(app, Order, id="another", correlation_key="shared") == "shared"


async def test_m11_of_many_concurrent_starts_of_one_key_exactly_one_succeeds(store: Store) -> None:
    async with harness(store, Order) as app, neighbour(app, store, Order) as other:
        keys = [f"key:{n}" for n in range(20)]
        batches = await asyncio.gather(
            app.start_many([Start(Order, correlation_key=key) for key in keys]),
            other.start_many([Start(Order, correlation_key=key) for key in reversed(keys)]),
            *(door.start_many([Start(Order, correlation_key=key)]) for key in keys for door in (app, other)),
        )
        ids = {answer.id for batch in batches for answer in batch if isinstance(answer, Handle)}
        holders = {answer.holder for batch in batches for answer in batch if isinstance(answer, Duplicate)}
        assert len(ids) == len(await app.list()) == 20
        assert holders <= ids


async def test_m11_a_taken_key_is_an_event_for_an_effect_and_a_failed_child_for_a_spawn(store: Store) -> None:
    class Starts(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            ctx.start(Order, correlation_key="order:42")
            return Spawn([Child(Order, correlation_key="order:42")], then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([child.status for child in ctx.children])

    async with harness(store, Starts, Order) as app:
        order = await app.start(Order, correlation_key="order:42")
        starts = await drained(app, app.start(Starts))
        assert await starts.result(timeout=0) == ["failed"]
        (event,) = [event for event in await app.events(starts) if event.type == "start_refused"]
        assert order.id in event.data["error"]


async def test_m11_a_step_knows_its_key_and_a_key_addresses_it(store: Store) -> None:
    async with harness(store, Order) as app:
        order = await drained(app, app.start(Order, correlation_key="order ⌘ 42"))
        await drained(app, app.signal("order ⌘ 42", "end"))
        assert await app.result("order ⌘ 42", timeout=0) == "order ⌘ 42"
        assert await order.result(timeout=0) == "order ⌘ 42"
