"""V3: the matrix of changes. Each line of the table in docs/deploys.md, made while an instance waits.

The old code parks an instance; then only the new code is there, under the same version, and what the instance waits for
arrives. It ends, or it is held and ends when the old code is back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hark import Await, Done, Instance, InstanceHeld, Machine, step, workflow
from tests.support.harness import drained, harness
from tests.support.stores import Store

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deploys.md"


def reserve(item: str) -> dict[str, Any]:
    return {"item": item}


def charge(item: str) -> int:
    return 5


@dataclass
class Reservation:
    item: str
    place: str


def reserve_typed(item: str) -> Reservation:
    return Reservation(item, "shelf")


def function(code: Callable[..., Any]) -> Any:
    return workflow(name="order")(code)


async def before(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def other_names(ctx: Any, item: str) -> Any:
    """Documented now."""
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    received = await ctx.wait_for_signal("paid")  # renamed
    return received.payload


async def extracted(ctx: Any, item: str) -> Any:
    await _prepare(ctx, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def _prepare(ctx: Any, item: str) -> None:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)


async def other_arguments(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item.upper(), retries=3)
    await ctx.run(charge, item, timeout=60)
    paid = await ctx.wait_for_signal("paid", timeout=3600)
    return paid.payload


async def renamed_with_name(ctx: Any, item: str) -> Any:
    def book(item: str) -> None:
        raise AssertionError("not called again")

    await ctx.run(book, item, name="reserve")
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def more_after(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    await ctx.run(charge, item, name="ship")
    return paid.payload


async def optional_parameter(ctx: Any, item: str, gift: bool = False) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def progress(ctx: Any, item: str) -> Any:
    ctx.progress("reserving")
    await ctx.run(reserve, item)
    ctx.log.info("reserved")
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def inserted(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item, name="check")
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def removed(ctx: Any, item: str) -> Any:
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def reordered(ctx: Any, item: str) -> Any:
    await ctx.run(charge, item)
    await ctx.run(reserve, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def renamed(ctx: Any, item: str) -> Any:
    await ctx.run(reserve_typed, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def stricter_result(ctx: Any, item: str) -> Any:
    await ctx.run(reserve_typed, item, name="reserve")
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def other_signal(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("payment")
    return paid.payload


async def question_instead(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    return await ctx.awakeable(title="Paid?")


async def together(ctx: Any, item: str) -> Any:
    await ctx.gather(ctx.run(charge, item), ctx.run(reserve, item))
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def required_parameter(ctx: Any, item: str, requester: str) -> Any:
    await ctx.run(reserve, item)


async def renamed_parameter(ctx: Any, product: str) -> Any:
    await ctx.run(reserve, product)


async def ends_earlier(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    return item


class Order(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        n: int = 0

    @step
    async def start(self, ctx: Any) -> Any:
        ctx.state.n += 1
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Any) -> Any:
        return Done(ctx.awaited[0].payload)


class OtherSteps(Machine, name="Order"):
    State = Order.State

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("payment", then=self.pack, timeout=60)

    @step
    async def pack(self, ctx: Any) -> Any:
        return Done()

    @step
    async def ship(self, ctx: Any) -> Any:
        paid: Any = ctx.awaited[0].payload
        return Done(paid)


class MoreFields(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        n: int = 0
        tags: list[str] = field(default_factory=list)

    @step
    async def start(self, ctx: Any) -> Any:
        return Done()

    @step
    async def ship(self, ctx: Any) -> Any:
        assert ctx.state.tags == []
        return Done(ctx.awaited[0].payload)


class FewerFields(Machine, name="Order"):
    @dataclass
    class State:
        item: str

    @step
    async def start(self, ctx: Any) -> Any:
        return Done()

    @step
    async def ship(self, ctx: Any) -> Any:
        return Done(ctx.awaited[0].payload)


class RenamedStep(Machine, name="Order"):
    State = Order.State

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("paid", then=self.send)

    @step
    async def send(self, ctx: Any) -> Any:
        return Done()


class KeptName(Machine, name="Order"):
    State = Order.State

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("paid", then=self.send)

    @step("ship")
    async def send(self, ctx: Any) -> Any:
        return Done(ctx.awaited[0].payload)


class RequiredField(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        buyer: str

    @step
    async def start(self, ctx: Any) -> Any:
        return Done()

    @step
    async def ship(self, ctx: Any) -> Any:
        return Done()


class OtherType(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        n: str = ""

    @step
    async def start(self, ctx: Any) -> Any:
        return Done()

    @step
    async def ship(self, ctx: Any) -> Any:
        return Done()


# The first column of the table in docs/deploys.md, by the new code; True if the instance continues.
FUNCTIONS: dict[str, tuple[Any, bool]] = {
    "Rename variables, edit comments and docstrings": (other_names, True),
    "Move code into helpers without changing the order of operations": (extracted, True),
    "Change arguments, retries or timeouts of an operation": (other_arguments, True),
    "Rename the function of a `ctx.run` that keeps its `name=`": (renamed_with_name, True),
    "Add operations after the last one that was reached": (more_after, True),
    "Add a parameter with a default": (optional_parameter, True),
    "Add `ctx.log` or `ctx.progress`": (progress, True),
    "Add an operation before one that was reached": (inserted, False),
    "Remove an operation that was reached": (removed, False),
    "Change the order of operations that were reached": (reordered, False),
    "Rename the function of a `ctx.run`": (renamed, False),
    "Give a result a type that does not read what is stored": (stricter_result, False),
    "Wait for another signal": (other_signal, False),
    "Wait for something of another kind": (question_instead, False),
    "Run two operations at once in another order": (together, False),
    "Add a parameter without a default": (required_parameter, False),
    "Rename a parameter": (renamed_parameter, False),
    "Return before what was reached": (ends_earlier, False),
}
MACHINES: dict[str, tuple[type[Machine], bool]] = {
    "Change what a step does, add steps, or change what it waits for next": (OtherSteps, True),
    "Add a field with a default": (MoreFields, True),
    "Remove a field": (FewerFields, True),
    'Rename the method of a step that keeps its name: `@step("ship")`': (KeptName, True),
    "Rename or remove a step that an instance is about to run": (RenamedStep, False),
    "Add a field without a default": (RequiredField, False),
    "Change the type of a field": (OtherType, False),
}


@pytest.mark.parametrize("change", FUNCTIONS)
async def test_v3_a_change_of_a_function_that_waits(store: Store, change: str) -> None:
    code, continues = FUNCTIONS[change]
    await _deployed(store, function(before), function(code), continues)


@pytest.mark.parametrize("change", MACHINES)
async def test_v3_a_change_of_a_machine_that_waits(store: Store, change: str) -> None:
    code, continues = MACHINES[change]
    await _deployed(store, Order, code, continues)


async def _deployed(store: Store, old: Any, new: Any, continues: bool) -> Instance | None:
    """Deploy new code under the version of an instance that waits, let it continue, and roll back if it is held."""
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "tea"}))
    async with harness(store, new) as app:
        await app.signal(order.id, "paid", "cash")
        if continues:
            await app.drain()
            assert await app.result(order.id, timeout=0) == "cash"
            return None
        with pytest.raises(InstanceHeld):
            await app.drain()
    async with harness(store, old) as app:
        await app.drain()
        assert await app.result(order.id, timeout=0) == "cash"
    return None
