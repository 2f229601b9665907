"""V3: code that does not fit never ends an instance."""

from dataclasses import dataclass
from typing import Any

import pytest

from hark import Await, Done, InstanceHeld, Machine, workflow
from tests.support.harness import drained, harness
from tests.support.stores import Store


@workflow(name="order")
async def old(ctx: Any, item: str) -> str:
    await ctx.run(str, item, name="reserve")
    paid = await ctx.wait_for_signal("paid")
    return f"{item} {paid.payload}"


@workflow(name="order")
async def new(ctx: Any, item: str) -> str:
    await ctx.run(str, item, name="check")
    await ctx.run(str, item, name="reserve")
    paid = await ctx.wait_for_signal("paid")
    return f"{item} {paid.payload}"


@workflow(name="order")
async def needs_more(ctx: Any, item: str, requester: str) -> str:
    return item


async def test_v3_a_function_that_diverges_is_held_and_goes_on_when_fitting_code_registers(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}, correlation_key="order:1"))
    async with harness(store, new) as app:
        with pytest.raises(InstanceHeld, match="entry 0"):
            await drained(app, app.signal("order:1", "paid", 5))
        held = await app.get("order:1")
        assert (held.id, held.status) == (order.id, "held")
        assert "the journal has run reserve, the code has run check" in held.error
        [event] = [event for event in await app.events(order.id) if event.type == "held"]
        assert event.data["entry"] == 0
        assert (event.data["expected"], event.data["found"]) == ("run reserve", "run check")
        assert event.data["line"].partition(":")[0] == __file__
        assert (await app.drain()) == {"steps": 0}  # the same code is not tried again
        why = await app.why(order.id)
        assert [blocker.reason for blocker in why.blockers] == ["held"]
        with pytest.raises(InstanceHeld):
            await app.result(order.id)
    async with harness(store, old) as app:
        await app.drain()
        done = await app.get(order.id)
        assert (done.status, done.result, done.error) == ("done", "x 5", None)


async def test_v3_the_real_cause_is_in_the_error_of_a_function_that_cannot_be_called(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, needs_more) as app:
        with pytest.raises(InstanceHeld, match=r"TypeError: .*missing.* 'requester'"):
            await drained(app, app.signal(order.id, "paid", 5))


class Old(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        n: int = 0

    @__import__("hark").step
    async def start(self, ctx: Any) -> Any:
        ctx.state.n += 1
        return Await("paid", then=self.ship)

    @__import__("hark").step
    async def ship(self, ctx: Any) -> Any:
        return Done({"item": ctx.state.item, "paid": ctx.awaited[0].payload})
