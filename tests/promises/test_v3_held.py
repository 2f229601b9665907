"""V3: code that does not fit never ends an instance."""

import logging
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from hark import (
    Await,
    Conflict,
    Done,
    Duplicate,
    Hark,
    InstanceHeld,
    Machine,
    Next,
    NotOpen,
    Stop,
    step,
    workflow,
)
from hark.app.door_access import DoorAccess
from hark.testing import Harness
from tests.support.harness import drained, harness, held
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
async def shorter(ctx: Any, item: str) -> str:
    return item


@workflow(name="order")
async def needs_more(ctx: Any, item: str, requester: str) -> str:
    return item


async def event_of(app: Harness, id: str) -> dict[str, Any]:
    return [event for event in await app.events(id) if event.type == "held"][-1].data


async def test_v3_fault_77_a_function_that_diverges_is_held_and_goes_on_when_fitting_code_registers(
    store: Store,
) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}, correlation_key="order:1"))
    async with harness(store, new) as app:
        await app.signal("order:1", "paid", 5)
        found = await held(app, "order:1")
        assert "at entry 0 the journal has run reserve, the code has run check" in found.error
        data = await event_of(app, order.id)
        assert (data["entry"], data["expected"], data["found"]) == (0, "run reserve", "run check")
        assert data["line"].partition(":")[0] == __file__
        assert await app.drain() == {"steps": 0}  # the same code is not tried again
        why = await app.why(order.id)
        assert [blocker.reason for blocker in why.blockers] == ["held"]
        assert "run reserve" in why.text  # once is enough
        assert "run reserve" not in why.blockers[0].text
        [health] = (await DoorAccess(app).health())["held"]
        assert "run reserve" in health["cause"]
        assert "goes on by itself" not in health["cause"]  # doctor says what to do once, for all
        [statuses] = [one for one in await DoorAccess(app).metrics() if one.name == "hark_instances"]
        assert ({"status": "held"}, 1) in statuses.samples
        assert why.waits == ()  # its signal has come
        with pytest.raises(InstanceHeld):
            await app.result(order.id)
    async with harness(store, old) as app:
        await app.drain()
        done = await app.get(order.id)
        assert (done.status, done.result, done.error, done.traceback) == ("done", "x 5", None, None)


async def test_v3_code_that_ends_before_its_journal_is_held(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, shorter) as app:
        await app.signal(order.id, "paid", 5)
        found = await held(app, order.id)
        assert "the journal has run reserve, the code has the end" in found.error


async def test_v3_the_real_cause_is_in_the_error_of_a_function_that_cannot_be_called(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, needs_more) as app:
        await app.signal(order.id, "paid", 5)
        with caplog.at_level(logging.ERROR, "hark"):
            found = await held(app, order.id)
        cause = "TypeError: needs_more() missing 1 required positional argument: 'requester'"
        assert cause in found.error
        assert (await event_of(app, order.id))["cause"] == cause
        assert cause in (await app.why(order.id)).text
        assert cause in caplog.text


async def test_v3_a_new_instance_whose_input_does_not_fit_fails_as_before(store: Store) -> None:
    async with harness(store, old) as app:
        order = await app.start(old, {"item": "x"})
    async with harness(store, needs_more) as app:
        await app.drain()
        assert (await app.get(order.id)).status == "failed"


class Price(msgspec.Struct):
    amount: int
    currency: str


def price(amount: int) -> dict[str, Any]:
    return {"amount": amount}


def typed_price(amount: int) -> Price:
    return Price(amount, "EUR")


@workflow(name="quote")
async def untyped(ctx: Any) -> Any:
    found = await ctx.run(price, 5, name="price")
    await ctx.wait_for_signal("go")
    return found["amount"]


@workflow(name="quote")
async def typed(ctx: Any) -> Any:
    found = await ctx.run(typed_price, 5, name="price")
    await ctx.wait_for_signal("go")
    return found.amount


@workflow(name="quote")
async def typed_beside(ctx: Any) -> Any:
    found, _ = await ctx.gather(ctx.run(typed_price, 5, name="price"), ctx.wait_for_signal("go"))
    return found.amount


@pytest.mark.parametrize("code", [typed, typed_beside])
async def test_v3_a_stored_result_that_does_not_read_is_held(store: Store, code: Any) -> None:
    async with harness(store, untyped) as app:
        quote = await drained(app, app.start(untyped))
    async with harness(store, code) as app:
        await app.signal(quote.id, "go")
        found = await held(app, quote.id)
        data = await event_of(app, quote.id)
        assert (data["entry"], data["expected"]) == (0, "run price")
        assert "currency" in data["cause"]
        assert "currency" in found.error
    async with harness(store, untyped) as app:
        await app.drain()
        assert (await app.get(quote.id)).result == 5


class Old(Machine, name="Order"):
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
        return Done({"item": ctx.state.item, "paid": ctx.awaited[0].payload})


class WithoutShip(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        n: int = 0

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("paid", then=self.send)

    @step
    async def send(self, ctx: Any) -> Any:
        return Done()

    def handle(self, error: Exception, ctx: Any) -> Any:
        return Stop("handle was called")


class OtherState(Machine, name="Order"):
    @dataclass
    class State:
        item: str
        buyer: str

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Any) -> Any:
        return Done()

    def handle(self, error: Exception, ctx: Any) -> Any:
        return Stop("handle was called")


@pytest.mark.parametrize(
    ("code", "cause"), [(WithoutShip, "has no step 'ship'"), (OtherState, "buyer")], ids=["step", "state"]
)
async def test_v3_a_machine_without_its_step_or_its_state_is_held(store: Store, code: Any, cause: str) -> None:
    async with harness(store, Old) as app:
        order = await drained(app, app.start(Old, {"item": "x"}))
    async with harness(store, code) as app:
        await app.signal(order.id, "paid", 5)
        found = await held(app, order.id)
        assert cause in found.error
        assert cause in (await event_of(app, order.id))["cause"]
        assert found.attempt == 0
    async with harness(store, Old) as app:
        await app.drain()
        done = await app.get(order.id)
        assert (done.status, done.result) == ("done", {"item": "x", "paid": 5})


async def test_v3_a_new_machine_whose_input_does_not_fit_goes_to_handle(store: Store) -> None:
    async with harness(store, Old) as app:
        order = await app.start(Old, {"item": "x"})
    async with harness(store, OtherState) as app:
        await app.drain()
        found = await app.get(order.id)
        assert found.status == "failed"
        assert "then handle raised" in found.error


@workflow(name="parent")
async def parent(ctx: Any) -> Any:
    try:
        return await ctx.call("order", {"item": "x"})
    except Exception:
        return "refunded"


async def test_v3_a_held_child_tells_its_parent_nothing(store: Store) -> None:
    async with harness(store, old, parent) as app:
        calling = await drained(app, app.start(parent))
        [child] = [one for one in await app.list(definition="order")]
    async with harness(store, new, parent) as app:
        await app.signal(child.id, "paid", 5)
        await held(app, child.id)
        assert (await app.get(calling.id)).status == "awaiting_children"
    async with harness(store, old, parent) as app:
        await app.drain()
        assert (await app.get(calling.id)).result == "x 5"


async def test_v3_a_held_instance_keeps_its_key_and_its_questions_and_takes_signals_and_answers(store: Store) -> None:
    @workflow(name="deploy")
    async def before(ctx: Any) -> Any:
        await ctx.run(str, name="build")
        question = await ctx.awakeable(title="Deploy?", timeout=60)
        return [await question, (await ctx.wait_for_signal("go")).payload]

    @workflow(name="deploy")
    async def after(ctx: Any) -> Any:
        await ctx.run(str, name="test")

    async with harness(store, before) as app:
        deploy = await drained(app, app.start(before, correlation_key="deploy:1"))
        [question] = await app.awakeables(status="PENDING")
    async with harness(store, after) as app:
        await app.signal(deploy.id, "no")
        await app.drain()  # it does not wait for this
        await app.resolve(question.id, "yes")
        await held(app, deploy.id)
        with pytest.raises(Duplicate):
            await app.start(after, correlation_key="deploy:1")
        assert (await app.signal("deploy:1", "go", 1, dedup_key="a")).status == "stored"
        assert (await app.signal("deploy:1", "go", 2, dedup_key="a")).status == "duplicate"
        assert await app.drain() == {"steps": 0}
    async with harness(store, before) as app:
        await app.drain()
        assert (await app.get(deploy.id)).result == ["yes", 1]


async def test_v3_deadlines_pass_while_an_instance_is_held(store: Store) -> None:
    @workflow(name="ask")
    async def before(ctx: Any) -> Any:
        await ctx.run(str, name="first")
        question = await ctx.awakeable(title="Yes?", timeout=60)
        await ctx.wait_for_signal("go")
        try:
            return await question
        except TimeoutError:
            return "nobody answered"

    @workflow(name="ask")
    async def after(ctx: Any) -> Any:
        await ctx.run(str, name="other")

    async with harness(store, before) as app:
        ask = await drained(app, app.start(before))
        [question] = await app.awakeables()
    async with harness(store, after) as app:
        await app.signal(ask.id, "go")
        await held(app, ask.id)
        await app.advance(61)
        assert (await app.awakeable(question.id)).status == "TIMEOUT"
        assert (await app.get(ask.id)).status == "held"
        assert await app.drain() == {"steps": 0}
    async with harness(store, before) as app:
        await app.drain()
        assert (await app.get(ask.id)).result == "nobody answered"


async def test_v3_a_harness_closes_while_a_result_is_awaited(store: Store) -> None:
    async with harness(store, old) as app:
        order = await app.start(old, {"item": "x"})
        await app.drain()
        awaited = app.result(order.id)
        with pytest.raises(TimeoutError):
            await app.result(order.id, timeout=0)
    with pytest.raises(NotOpen):
        await awaited


async def test_v3_a_retry_tries_the_same_code_again(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, new) as app:
        await app.signal(order.id, "paid", 5)
        await held(app, order.id)
        await app.retry(order.id)
        await held(app, order.id)
        assert [event.type for event in await app.events(order.id)][-3:] == ["held", "retried", "held"]


async def test_v3_each_code_is_tried_once(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, new) as app:
        await app.signal(order.id, "paid", 5)
        await held(app, order.id)
    async with harness(store, shorter) as app:
        await held(app, order.id)
    for code in (new, shorter):
        async with harness(store, code) as app:
            assert await app.drain() == {"steps": 0}


async def test_v3_each_code_is_tried_once_although_more_urgent_work_takes_the_slots(store: Store) -> None:
    @workflow(name="note")
    async def note(ctx: Any) -> str:
        return "done"

    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, new) as app:
        await app.signal(order.id, "paid", 5)
        await held(app, order.id)
    async with harness(store, shorter, note) as app:  # one slot, which the other instance gets first
        await app.start(note, priority=-1)
        await held(app, order.id)
    for code in (new, shorter):
        async with harness(store, code) as app:
            assert await app.drain() == {"steps": 0}
    async with harness(store, old, note) as app:
        noted = await app.start(note, priority=-1)
        await app.drain()
        assert [await app.result(one, timeout=0) for one in (noted.id, order.id)] == ["done", "x 5"]


async def test_v3_a_held_instance_can_be_cancelled(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}, correlation_key="order:1"))
    async with harness(store, new) as app:
        await app.signal(order.id, "paid", 5)
        await held(app, order.id)
        await app.cancel(order.id, "not wanted")
        assert (await app.get(order.id)).status == "cancelled"
        await app.start(new, {"item": "y"}, correlation_key="order:1")  # its key is free


UNDONE: list[str] = []


@workflow(name="booking")
async def booking(ctx: Any) -> Any:
    await ctx.run(lambda: "room", name="book", undo=UNDONE.append)
    await ctx.wait_for_signal("go")


@workflow(name="booking")
async def other_booking(ctx: Any) -> Any:
    await ctx.run(lambda: "car", name="rent")
    await ctx.wait_for_signal("go")


@pytest.mark.parametrize("force", [False, True])
async def test_v3_the_undo_of_a_held_instance_runs_once_code_fits_unless_it_is_forced(
    store: Store, force: bool
) -> None:
    UNDONE.clear()
    async with harness(store, booking) as app:
        one = await drained(app, app.start(booking))
    async with harness(store, other_booking) as app:
        await app.signal(one.id, "go")
        await held(app, one.id)
        await app.cancel(one.id, "not wanted", force=force)
        if force:
            assert (await app.get(one.id)).status == "cancelled"
        else:
            await held(app, one.id)
    async with harness(store, booking) as app:
        await app.drain()
        assert (await app.get(one.id)).status == "cancelled"
        assert ([] if force else ["room"]) == UNDONE


async def test_v3_a_machine_that_cannot_undo_is_held(store: Store) -> None:
    class Before(Machine, name="Trip", on_cancel="undo"):
        @step
        async def start(self, ctx: Any) -> Any:
            return Await("go", then=self.start)

        @step
        async def undo(self, ctx: Any) -> Any:
            return Next(self.undone)

        @step
        async def undone(self, ctx: Any) -> Any:
            return Done()

    class After(Machine, name="Trip"):
        @step
        async def start(self, ctx: Any) -> Any:
            return Await("go", then=self.start)

    async with harness(store, Before) as app:
        trip = await drained(app, app.start(Before))
    async with harness(store, After) as app:
        await app.cancel(trip.id)
        await held(app, trip.id)
    async with harness(store, Before) as app:
        await app.drain()
        assert (await app.get(trip.id)).status == "cancelled"


async def test_v3_only_a_failed_or_held_instance_is_retried(store: Store) -> None:
    async with harness(store, old) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
        with pytest.raises(Conflict, match="failed or held"):
            await app.retry(order.id)


async def test_v3_held_instances_are_listed_and_other_work_is_done_first(store: Store) -> None:
    @workflow(name="note")
    async def note(ctx: Any) -> str:
        return "done"

    async with harness(store, old, note) as app:
        order = await drained(app, app.start(old, {"item": "x"}))
    async with harness(store, new, note) as app:
        await app.signal(order.id, "paid", 5)
        noted = await app.start(note)
        await held(app, order.id)
        assert (await app.get(noted.id)).result == "done"
        assert [one.id for one in await app.list(status="held")] == [order.id]


async def test_v3_a_worker_whose_code_fits_takes_what_another_one_holds(store: Store) -> None:
    """In a rolling deploy both codes run at once: the one that fits was registered before the other one held it."""
    options = {**store.options, "lease": 0.6}
    async with Hark(store.url, **options) as first, Hark(store.url, **options) as second:
        first.register(old)
        second.register(new)
        async with first.worker():
            order = await first.start(old, {"item": "x"})
            await order.wait_for("awaiting_signal", timeout=30)
        async with second.worker():
            await first.signal(order.id, "paid", 5)
            await order.wait_for("held", timeout=30)
            async with first.worker():
                assert await order.result(timeout=30) == "x 5"
