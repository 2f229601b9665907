"""V3: the matrix of changes. Each line of the tables in docs/deploys.md, made while an instance waits.

The old code parks an instance; then only the new code is there, and what the instance waits for arrives. It ends, or it
ends when the old code is back. The check of V2 says so before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from hark import Await, Done, InstanceHeld, Machine, step, workflow
from tests.support.harness import harness
from tests.support.stores import Store


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


def read_as_text(item: str) -> dict[str, str]:
    return {"item": item}


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
    await ctx.run(charge, item, timeout=60, undo=print)
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


async def sends_before_it_waits(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    await ctx.signal("another", "paid")
    paid = await ctx.wait_for_signal("paid")
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


async def fitting_result(ctx: Any, item: str) -> Any:
    reserved = await ctx.run(read_as_text, item, name="reserve")
    assert reserved == {"item": "tea"}
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def draws(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, str(ctx.uuid()))
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def draws_again(ctx: Any, item: str) -> Any:
    ctx.random()
    await ctx.run(reserve, str(ctx.uuid()))
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def asks(ctx: Any, item: str) -> Any:
    question = await ctx.awakeable(title="Paid?")
    _, paid = await ctx.first(ctx.sleep(3600), ctx.wait_for_signal("paid"), question)
    return paid.payload


async def asks_more(ctx: Any, item: str) -> Any:
    question = await ctx.awakeable(title="Is it paid?", schema=bool)
    _, paid = await ctx.first(ctx.sleep(60), ctx.wait_for_signal("paid"), question)
    return paid.payload


async def guarded(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    if ctx.patched("check the price"):
        await ctx.run(charge, item, name="check")
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def patched_twice(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    ctx.patched("check the price")
    await ctx.run(charge, item)
    ctx.patched("check the price")
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def other_condition(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    if len(item) > 5:  # it was: always
        await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload


async def raises(ctx: Any, item: str) -> Any:
    reserved = await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal(reserved["signal"])  # it is not there
    return paid.payload


async def does_not_wait(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    return await ctx.run(charge, item)


async def waits_for_less(ctx: Any, item: str) -> Any:
    _, paid = await ctx.first(ctx.wait_for_signal("paid"))
    return paid.payload


async def waits_for_two(ctx: Any, item: str) -> Any:
    _, paid = await ctx.first(ctx.wait_for_signal("paid"), ctx.sleep(60))
    return paid.payload


async def raises_later(ctx: Any, item: str) -> Any:
    await ctx.run(reserve, item)
    await ctx.run(charge, item)
    paid = await ctx.wait_for_signal("paid")
    return paid.payload["amount"]  # it is a text


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


class Undoable(Order, name="Order", on_cancel="undo"):
    @step
    async def undo(self, ctx: Any) -> Any:
        return Done()


class OrderTwo(Order, name="Order", version=2):
    pass


@dataclass(frozen=True)
class Change:
    """New code, and what it does to an instance that waits: it goes on, is held, waits for code, or fails."""

    new: Any
    effect: str
    old: Any = None  # by default the code above
    has_run: bool = True
    """Whether the instance waits for its signal; otherwise it has been started, and no worker has run it."""
    is_foreseen: bool = True
    """Whether the check finds it, if the instance does not go on."""
    is_cancelled: bool = False
    """Whether it is cancelled with the new code; otherwise it gets its signal."""


def _function(new: Any, effect: str, old: Any = before, **options: bool) -> Change:
    return Change(function(new), effect, function(old), **options)


# By the first column of the tables in docs/deploys.md, in their order.
FUNCTIONS: dict[str, Change] = {
    "Rename variables, edit comments and docstrings": _function(other_names, "goes on"),
    "Move code into helpers without changing the order of operations": _function(extracted, "goes on"),
    "Change arguments, retries, timeouts or the `undo=` of an operation": _function(other_arguments, "goes on"),
    "Rename the function of a `ctx.run` that keeps its `name=`": _function(renamed_with_name, "goes on"),
    "Give a result a type that reads what is stored": _function(fitting_result, "goes on"),
    "Change or add operations after the last one that was reached": _function(more_after, "goes on"),
    "Add a parameter with a default": _function(optional_parameter, "goes on"),
    "Add `ctx.log` or `ctx.progress`": _function(progress, "goes on"),
    "Add `ctx.random()` or `ctx.uuid()` before another one": _function(draws_again, "goes on", draws),
    "Change the title or the schema of a question, or how long a sleep takes": _function(asks_more, "goes on", asks),
    "Guard a change with `ctx.patched`": _function(guarded, "goes on"),
    "Remove `ctx.patched` and the old code, once no instance needs it": _function(inserted, "goes on", guarded),
    "Register the changed code as another version beside the old one": Change(
        (function(before), workflow(name="order", version=2)(inserted)), "goes on", function(before)
    ),
    "Add an operation before one that was reached": _function(inserted, "held"),
    "Remove an operation that was reached": _function(removed, "held"),
    "Change the order of operations that were reached": _function(reordered, "held"),
    "Rename the function of a `ctx.run`": _function(renamed, "held"),
    "Change a condition so that other operations follow": _function(other_condition, "held"),
    "Give a result a type that does not read what is stored": _function(stricter_result, "held"),
    "Wait for another signal": _function(other_signal, "held"),
    "Wait for something of another kind": _function(question_instead, "held"),
    "Run two operations at once in another order": _function(together, "held"),
    "Add a parameter without a default": _function(required_parameter, "held"),
    "Rename a parameter": _function(renamed_parameter, "held"),
    "Return before what was reached": _function(ends_earlier, "held"),
    "Remove the wait for what it waits for": _function(does_not_wait, "held"),
    "Remove one of several waits": _function(waits_for_less, "held", waits_for_two),
    "Raise an exception where the code went on before": _function(raises, "held"),
    "Remove `ctx.patched` while an instance runs the code before it": _function(inserted, "held"),
    "Call `ctx.patched` with one name at two places": _function(patched_twice, "held"),
    "Rename the function without `name=`": Change(workflow(name="purchase")(before), "waits", function(before)),
    "Change `version=` without keeping the old code": Change(
        workflow(name="order", version=2)(before), "waits", function(before)
    ),
    "Raise an exception after what was reached": _function(raises_later, "fails", is_foreseen=False),
    "Add a parameter without a default, before the instance has run": _function(
        required_parameter, "fails", has_run=False
    ),
}
MACHINES: dict[str, Change] = {
    "Change what a step does, add steps, or change what it waits for next": Change(OtherSteps, "goes on"),
    "Add a field with a default": Change(MoreFields, "goes on"),
    "Remove a field": Change(FewerFields, "goes on"),
    'Rename the method of a step that keeps its name: `@step("ship")`': Change(KeptName, "goes on"),
    "Register the changed code as another version beside the old one": Change((Order, OrderTwo), "goes on"),
    "Rename or remove a step that an instance is about to run": Change(RenamedStep, "held"),
    "Remove the step of `on_cancel`": Change(Order, "held", Undoable, is_cancelled=True),
    "Add a field without a default": Change(RequiredField, "held"),
    "Change the type of a field": Change(OtherType, "held"),
    "Rename the class without `name=`, or change `version=` without keeping the old code": Change(OrderTwo, "waits"),
    "Add a field without a default, before the instance has run": Change(RequiredField, "fails", has_run=False),
}


@pytest.mark.parametrize("change", FUNCTIONS)
async def test_v3_a_change_of_a_function_that_waits(store: Store, change: str) -> None:
    await _deployed(store, FUNCTIONS[change])


async def test_v3_a_function_that_sends_a_signal_where_it_waited_for_one_is_held(store: Store) -> None:
    await _deployed(store, _function(sends_before_it_waits, "held"))


@pytest.mark.parametrize("change", MACHINES)
async def test_v3_a_change_of_a_machine_that_waits(store: Store, change: str) -> None:
    await _deployed(store, MACHINES[change])


async def _deployed(store: Store, change: Change) -> None:
    """Deploy new code while an instance waits, let it continue, and roll back unless it has ended."""
    old = change.old or Order
    new = change.new if isinstance(change.new, tuple) else (change.new,)
    async with harness(store, old) as app:
        order = await app.start(old, {"item": "tea"})
        if change.has_run:
            await app.drain()
    async with harness(store, *new) as app:
        report = await app.check()
        is_found = (
            change.effect != "goes on" and change.new is not FUNCTIONS["Raise an exception after what was reached"].new
        )
        assert (report.continues, len(report.problems)) == ((0, 1) if is_found else (1, 0))
        await (app.cancel(order.id) if change.is_cancelled else app.signal(order.id, "paid", "cash"))
        with pytest.raises(InstanceHeld) if change.effect == "held" else nullcontext():
            await app.drain()
        found = await app.get(order.id)
        statuses = {"goes on": "done", "held": "held", "waits": "runnable", "fails": "failed"}
        assert found.status == statuses[change.effect]
    async with harness(store, old) as app:
        if change.effect == "fails":
            await app.retry(order.id)
        await app.drain()
        found = await app.get(order.id)
        assert (found.status, found.result) == (("cancelled", None) if change.is_cancelled else ("done", "cash"))
