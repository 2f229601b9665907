"""X8: a machine with `on_cancel` undoes before it is cancelled, unless the cancel is forced."""

import asyncio
import threading
from typing import Any

import pytest

from hark import (
    Await,
    Child,
    Conflict,
    Context,
    Done,
    Hark,
    InstanceCancelled,
    InvalidDefinition,
    Machine,
    Next,
    Outcome,
    Retry,
    Spawn,
    Stop,
    step,
)  # fmt: skip
from hark.kernel.requests import Cancel, Reclaim
from tests.promises.support_signals import Gate, Turns, Waiter, count, event_types, harness, rows, statuses
from tests.support.harness import drained, held
from tests.support.inspect import everything, until
from tests.support.stores import Store

GO = {"names": ["go"]}


class Order(Machine, on_cancel="undo"):
    """Waits for a payment; its state says what it does when it is undone."""

    @step
    async def start(self, ctx: Context) -> Outcome:
        ctx.state["reserved"] = True
        return Await("paid", then=self.paid, timeout=60)

    @step
    async def paid(self, ctx: Context) -> Outcome:
        return Done("paid")

    @step
    async def undo(self, ctx: Context) -> Outcome:
        ctx.state["undone"] = [ctx.cancel_reason, ctx.attempt, ctx.timed_out, [s.name for s in ctx.all]]
        match ctx.state.get("how"):
            case "next":
                return Next(self.release)
            case "await":
                return Await("released", then=self.release, timeout=60)
            case "spawn":
                return Spawn([Child(Waiter, GO, id="helper")], then=self.release)
            case "retry" if ctx.attempt < 2:
                return Retry(1)
            case "stop":
                return Stop("the warehouse is closed")
            case "raise":
                raise ValueError("the warehouse is closed")
        return Done("ignored")

    @step
    async def release(self, ctx: Context) -> Outcome:
        assert ctx.cancel_reason is not None
        ctx.state["released"] = True
        return Done()


class PatientOrder(Order):
    """Inherits the step, and what a cancel does."""


async def _start(app: Any, how: str | None = None, machine: type[Machine] = Order, **options: Any) -> None:
    await drained(app, app.start(machine, {"how": how}, id="o", **options))


async def test_x8_a_cancel_runs_the_undo_of_a_machine_first(store: Store) -> None:
    async with harness(store, Order) as app:
        await _start(app, correlation_key="k")
        cancelling = await app.cancel("k", "out of stock")
        assert (cancelling.status, cancelling.step, cancelling.cancel_reason) == ("runnable", "undo", "out of stock")
        assert cancelling.finished_at is None
        assert await app.waits() == []
        with pytest.raises(TimeoutError):
            await app.result("o", timeout=0)
        assert await app.drain() == {"steps": 1, "done": 1}
        found = await app.get("k")
        assert (found.status, found.error, found.result, found.cancel_reason) == (
            "cancelled",
            "out of stock",
            None,
            None,
        )
        assert found.state["undone"] == ["out of stock", 0, False, []]
        assert found.state["reserved"]
        assert await event_types(app, "o") == ["started", "await", "cancelling", "cancelled"]
        events = {event.type: event for event in await app.events("o")}
        assert events["cancelling"].data == events["cancelled"].data == {"error": "out of stock"}
        with pytest.raises(InstanceCancelled) as over:
            await app.result("o")
        assert over.value.reason == "out of stock"


@pytest.mark.parametrize("how", ["next", "await", "spawn", "retry"])
async def test_x8_an_undo_step_continues_like_any_other(store: Store, how: str) -> None:
    async with harness(store, Order, Waiter) as app:
        await _start(app, how)
        await drained(app, app.cancel("o", "changed my mind"))
        if how != "next":
            found = await app.get("o")
            assert found.status == {"spawn": "awaiting_children", "await": "awaiting_signal", "retry": "runnable"}[how]
            assert found.cancel_reason == "changed my mind"
        if how == "await":
            await app.signal("o", "released")
        elif how == "spawn":
            await app.signal("helper", "go")
        elif how == "retry":
            await drained(app, app.advance(1))
            await app.advance(1)
        await app.drain()
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "changed my mind")
        assert found.state.get("released") == (None if how == "retry" else True)
        assert found.state["undone"][1] == (2 if how == "retry" else 0)
        assert await app.waits() == []


@pytest.mark.parametrize("how", ["stop", "raise"])
async def test_x8_an_undo_that_fails_is_recorded_and_the_instance_is_cancelled(store: Store, how: str) -> None:
    async with harness(store, Order) as app:
        await _start(app, how)
        await drained(app, app.cancel("o", "out of stock"))
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "out of stock")
        assert await event_types(app, "o") == ["started", "await", "cancelling", "undo_failed", "cancelled"]
        [failed] = [event for event in await app.events("o") if event.type == "undo_failed"]
        assert failed.step == "undo"
        assert "the warehouse is closed" in str(failed.data)


async def test_x8_cancelling_again_changes_nothing_while_the_undo_runs(store: Store) -> None:
    async with harness(store, Order) as app:
        await _start(app, "await")
        first, second = app.cancel("o", "first"), app.cancel("o", "second")
        assert {(await first).cancel_reason, (await second).cancel_reason} == {"first"}
        await app.drain()
        before = await everything(store)
        assert (await app.cancel("o", "third")).cancel_reason == "first"
        assert await everything(store) == before
        await drained(app, app.signal("o", "released"))
        assert (await app.get("o")).error == "first"
        with pytest.raises(Conflict) as refused:
            await app.cancel("o")
        assert refused.value.status == "cancelled"


@pytest.mark.parametrize("when", ["before its undo", "while its undo is runnable", "while its undo waits"])
async def test_x8_a_forced_cancel_ends_at_once(store: Store, when: str) -> None:
    async with harness(store, Order, Waiter) as app:
        await _start(app, "spawn")
        if when != "before its undo":
            await app.cancel("o", "first")
        if when == "while its undo waits":
            await app.drain()
        found = await app.cancel("o", None if when == "while its undo waits" else "at once", force=True)
        reason = "first" if when == "while its undo waits" else "at once"
        assert (found.status, found.error, found.cancel_reason) == ("cancelled", reason, None)
        assert await app.drain() == {"steps": 0}
        if when == "while its undo waits":
            assert await statuses(app, "helper") == ["cancelled"]
        assert await app.waits() == []


async def test_x8_a_forced_and_a_plain_cancel_in_one_turn(store: Store) -> None:
    """The forced one is carried out after the other, which started the undo."""
    async with harness(store, Order) as app, Turns(store, app.clock) as turns:
        await _start(app)
        plain, forced = Cancel(target="o", reason="plain"), Cancel(target="o", reason="forced", force=True)
        result = await turns.run(forced, plain)
        assert (plain.result, result.again) == ("o", [forced])
        await turns.run(forced)
        assert forced.result == "o"
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "forced")


async def test_x8_the_undo_is_inherited_and_can_be_removed(store: Store) -> None:
    class Unforgiving(Order, on_cancel=None):
        pass

    async with harness(store, PatientOrder, Unforgiving) as app:
        await _start(app, machine=PatientOrder)
        assert (await app.cancel("o")).cancel_reason == "cancelled"
        await app.drain()
        assert (await app.get("o")).state["undone"][0] == "cancelled"
        await drained(app, app.start(Unforgiving, {}, id="u"))
        assert (await app.cancel("u")).status == "cancelled"


def test_x8_on_cancel_names_a_step() -> None:
    with pytest.raises(InvalidDefinition, match=r"on_cancel='undo' is not one of its steps: start\. Add it with @step"):

        class Wrong(Machine, on_cancel="undo"):
            @step
            async def start(self, ctx: Context) -> Outcome:
                return Done()


async def test_x8_a_start_by_name_in_a_process_without_the_code_knows_the_undo(store: Store) -> None:
    async with harness(store, Order) as app:
        async with Hark(store.url, **store.options) as other:
            await other.start("Order", {"how": None}, id="o")
            cancelling = await other.cancel("o", "out of stock")
        assert (cancelling.status, cancelling.cancel_reason) == ("runnable", "out of stock")
        await app.drain()
        assert await statuses(app, "o") == ["cancelled"]


async def test_x8_an_answer_to_the_interrupted_wait_is_not_one_to_the_undo(store: Store) -> None:
    """Its timeout has fired and its signal is there, but no worker has run it: the undo sees the signal only."""
    async with harness(store, Order) as app:
        await _start(app)
        await app.advance(61)
        await app.signal("o", "paid")
        await drained(app, app.cancel("o", "out of stock"))
        assert (await app.get("o")).state["undone"] == ["out of stock", 0, False, ["paid"]]


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_x8_a_cancel_while_a_step_executes_refuses_its_outcome_and_undoes(store: Store, how: str) -> None:
    gate, told = Gate(), asyncio.Event()
    inside, leave = threading.Event(), threading.Event()

    class Executing(Machine, on_cancel="undo"):
        if how == "async":

            @step
            async def start(self, ctx: Context) -> Outcome:
                ctx.state["changed"] = True
                try:
                    await gate.hold()
                finally:
                    told.set()
                return Done("never")
        else:

            @step  # type: ignore[no-redef]
            def start(self, ctx: Context) -> Outcome:
                ctx.state["changed"] = True
                inside.set()
                leave.wait(60)
                return Done("never")

        @step
        async def undo(self, ctx: Context) -> Outcome:
            ctx.state["undone"] = True
            return Done()

    async with harness(store, Executing) as app, app.worker({"default": 1}):
        await app.start(Executing, {}, id="o", concurrency_key="k")
        if how == "async":
            await gate.reached.wait()
        else:
            await until(inside.is_set, "the thread to be in the step")
        await app.cancel("o", "enough")
        with pytest.raises(InstanceCancelled):  # with one slot, and one of the key: both came free
            await app.result("o")
        if how == "async":
            await asyncio.wait_for(told.wait(), 60)
        leave.set()
        found = await app.get("o")
        assert (found.status, found.error, found.state) == ("cancelled", "enough", {"undone": True})


async def test_x8_a_step_in_another_process_is_undone(store: Store) -> None:
    """Two apps on one store: one cancels, the other executes the step and then its undo."""
    gate, undo_gate = Gate(), Gate()

    class Executing(Machine, on_cancel="undo"):
        @step
        async def start(self, ctx: Context) -> Outcome:
            await gate.hold()
            return Done("never")

        @step
        async def undo(self, ctx: Context) -> Outcome:
            await undo_gate.hold()
            return Done()

    worker, other = Hark(store.url, **store.options), Hark(store.url, **store.options)
    worker.register(Executing)
    async with worker, other, worker.worker({"default": 1}):
        await worker.start(Executing, id="o")
        await gate.reached.wait()
        assert (await other.cancel("o", "enough")).cancel_reason == "enough"
        undo_gate.open.set()
        with pytest.raises(InstanceCancelled):
            await other.result("o", timeout=30)


async def test_x8_a_worker_that_claims_the_undo_of_its_own_step_ends_the_step_and_keeps_one_slot(store: Store) -> None:
    """With a free slot it may claim the undo before it has noticed that another process cancelled its step."""
    told: list[str] = []

    class Executing(Machine, on_cancel="undo"):
        @step
        async def start(self, ctx: Context) -> Outcome:
            gate = gates[ctx.id]
            try:
                await gate.hold()
            except asyncio.CancelledError:
                told.append(ctx.id)
                gate.open.set()
                raise
            return Done("never")

        @step
        async def undo(self, ctx: Context) -> Outcome:
            await gates[ctx.id].open.wait()
            return Done()

    gates = {id: Gate() for id in ("a", "b", "c")}
    worker, other = Hark(store.url, **store.options), Hark(store.url, **store.options)
    worker.register(Executing)
    async with worker, other, worker.worker({"default": 2}):
        for id in gates:  # more often than there are slots
            await worker.start(Executing, id=id)
            await asyncio.wait_for(gates[id].reached.wait(), 30)
            await other.cancel(id)
            with pytest.raises(InstanceCancelled):
                await other.result(id, timeout=30)
    assert told == ["a", "b", "c"]


class Family(Machine):
    """A parent without undo, over a tree of orders."""

    @step
    async def start(self, ctx: Context) -> Outcome:
        children = [Child(Waiter, GO, id="w"), Child(Order, {"how": "spawn"}, id="o")]
        return Spawn(children, then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Outcome:
        return Done([child.status for child in ctx.children])


async def test_x8_a_cancel_of_a_tree_undoes_each_instance_that_has_an_undo(store: Store) -> None:
    async with harness(store, Family, Order, Waiter) as app:
        await drained(app, app.start(Family, id="f"))
        await app.cancel("f", "enough")
        assert await statuses(app, "f", "w", "o") == ["cancelled", "cancelled", "runnable"]
        await app.drain()
        assert await statuses(app, "o", "helper") == ["awaiting_children", "awaiting_signal"]
        await drained(app, app.signal("helper", "go"))
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "its parent was cancelled")


async def test_x8_a_cancel_leaves_an_undo_that_runs_below_it_alone(store: Store) -> None:
    async with harness(store, Family, Order, Waiter) as app:
        await drained(app, app.start(Family, id="f"))
        await drained(app, app.cancel("o", "first"))
        await app.cancel("f", "second")
        assert await statuses(app, "f", "w", "o", "helper") == [
            "cancelled", "cancelled", "awaiting_children", "awaiting_signal",
        ]  # fmt: skip
        await drained(app, app.signal("helper", "go"))
        assert (await app.get("o")).error == "first"


async def test_x8_a_cancel_leaves_what_an_undo_has_left_running_alone(store: Store) -> None:
    """The undo started a child that has ended, and left a child of its own."""

    class Leaver(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Spawn([Child(Waiter, GO, id="left"), Child(Quick, id="quick")], then=self.end, join=1)

        @step
        async def end(self, ctx: Context) -> Outcome:
            return Done()

    class Quick(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Done()

    class Careful(Machine, on_cancel="undo"):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Await("go", then=self.end)

        @step
        async def undo(self, ctx: Context) -> Outcome:
            return Spawn([Child(Leaver, id="leaver"), Child(Waiter, GO, id="waiter")], then=self.end)

        @step
        async def end(self, ctx: Context) -> Outcome:
            return Done()

    class Parent(Machine):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Spawn([Child(Careful, id="careful")], then=self.end)

        @step
        async def end(self, ctx: Context) -> Outcome:
            return Done()

    async with harness(store, Parent, Careful, Leaver, Quick, Waiter) as app:
        await drained(app, app.start(Parent, id="parent"))
        await drained(app, app.cancel("careful", "first"))
        assert await statuses(app, "leaver", "left", "waiter") == ["done", "awaiting_signal", "awaiting_signal"]
        await app.cancel("parent", "second")
        assert await statuses(app, "parent", "left", "waiter") == ["cancelled", "awaiting_signal", "awaiting_signal"]
        await app.cancel("left", "third")  # it can be cancelled itself
        assert await statuses(app, "left", "careful") == ["cancelled", "awaiting_children"]


async def test_x8_a_cancel_before_the_first_step_undoes_too(store: Store) -> None:
    async with harness(store, Order) as app:
        await app.start(Order, {"how": None}, id="o", delay=60)
        await drained(app, app.cancel("o", "enough"))
        found = await app.get("o")
        assert (found.status, found.state.get("reserved"), found.state["undone"][0]) == ("cancelled", None, "enough")


async def test_x8_a_forced_cancel_ends_the_whole_tree(store: Store) -> None:
    async with harness(store, Family, Order, Waiter) as app:
        await drained(app, app.start(Family, id="f"))
        await drained(app, app.cancel("o", "first"))
        await app.cancel("f", "enough", force=True)
        assert await statuses(app, "f", "w", "o", "helper") == ["cancelled"] * 4
        assert await app.drain() == {"steps": 0}


async def test_x8_a_parent_waits_for_the_undo_of_its_child(store: Store) -> None:
    async with harness(store, Family, Order, Waiter) as app:
        await drained(app, app.start(Family, id="f"))
        await app.signal("w", "go")
        await drained(app, app.cancel("o", "first"))
        assert await statuses(app, "f") == ["awaiting_children"]
        await drained(app, app.signal("helper", "go"))
        assert await app.result("f") == ["done", "cancelled"]


async def test_x8_a_quarantined_undo_can_be_retried(store: Store) -> None:
    async with harness(store, Order) as app, Turns(store, app.clock) as turns:
        await _start(app)
        await app.cancel("o", "out of stock")
        for _ in range(5):
            await turns.claim("Order")
            await turns.run(Reclaim(owners=["by-hand"]))
        found = await app.get("o")
        assert (found.status, found.cancel_reason) == ("failed", "out of stock")
        assert found.error is not None
        assert "its undo has not finished: a retry continues the undo" in found.error
        retried = await app.retry("o")
        assert (retried.status, retried.step, retried.cancel_reason) == ("runnable", "undo", "out of stock")
        await app.drain()
        found = await app.get("o")
        assert (found.status, found.error, found.cancel_reason) == ("cancelled", "out of stock", None)


async def test_x8_v3_an_undo_whose_step_is_missing_is_held_and_fixed_code_continues_it(store: Store) -> None:
    """The code has changed, and was deployed under the same version."""

    class Renamed(Machine, name="Order"):
        @step
        async def start(self, ctx: Context) -> Outcome:
            return Done()

    async with harness(store, Order) as app:
        await _start(app)
        await app.cancel("o", "out of stock")
    async with harness(store, Renamed) as app:
        found = await held(app, "o")
        assert found.cancel_reason == "out of stock"
        assert "has no step 'undo'" in (found.error or "")
    async with harness(store, Order) as app:
        await app.drain()
        found = await app.get("o")
        assert (found.status, found.error, found.state["undone"][0]) == ("cancelled", "out of stock", "out of stock")


async def test_x8_the_undo_of_a_blocked_or_limited_step_runs_without_its_limit(store: Store) -> None:
    async with harness(store, Order, Waiter) as app, Turns(store, app.clock) as turns:
        await app.start(Waiter, GO, id="holder", concurrency_key="k")
        await app.start(Order, {}, id="o", concurrency_key="k")
        assert (await turns.run(lanes=["Waiter", "Order"], room=2)).claims[0].id == "holder"
        assert await count(store, "instances", "blocked_on IS NOT NULL") == 1
        await app.cancel("o", "enough")
        assert await rows(store, "SELECT blocked_on, concurrency_key FROM instances WHERE id = 'o'") == [(None, "k")]
        await drained(app, app.cancel("holder", force=True))
        assert await statuses(app, "o") == ["cancelled"]
