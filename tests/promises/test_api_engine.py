"""Each method of `Hark`: what it returns and what it raises, on both stores."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pydantic
import pytest

from hark import (
    Await,
    Broadcast,
    Child,
    Conflict,
    Context,
    Delivery,
    Done,
    Duplicate,
    Event,
    Handle,
    Hark,
    Instance,
    InstanceCancelled,
    InstanceFailed,
    InvalidInput,
    Machine,
    Next,
    NoTarget,
    NotFound,
    Rate,
    Retry,
    Spawn,
    Start,
    Stop,
    Wait,
    step,
)
from hark.testing import Harness
from tests.support.checkout import Checkout
from tests.support.harness import drained, harness
from tests.support.stores import Store


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done | Stop:
        return Stop("as asked") if ctx.state.get("fail") else Done(ctx.state)


class Listener(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("open"), "poke", then=self.received)

    @step
    async def received(self, ctx: Context) -> Done:
        return Done([[signal.kind, signal.name, signal.payload] for signal in ctx.awaited])


class Parent(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Listener, id=f"{ctx.id}.child")], then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Done:
        return Done()


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(Checkout, Quick, Listener, Parent, url=store.url, **store.options) as app:
        yield app


async def test_api_the_example_of_the_documentation(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app, app.worker(queues={"default": 100, "checkout": 5}):
        order = await app.start(Checkout, {"order": 42}, correlation_key="order:42")
        await app.signal("order:42", "payment_confirmed", {"amount": 100}, dedup_key="evt-7")
        assert await order.result(timeout=30) == {"order": 42, "paid": {"amount": 100}}


# -- start -----------------------------------------------------------------------------------------


async def test_api_start_returns_a_handle_and_takes_its_options(app: Harness) -> None:
    handle = await app.start(
        Checkout, {"order": 1}, id="mine", correlation_key="key", step="refund", queue="slow", priority=-3, version=1,
        concurrency_key="tenant:1",
    )  # fmt: skip
    assert isinstance(handle, Handle)
    assert handle.id == "mine"
    instance = await handle.get()
    assert (instance.id, instance.correlation_key, instance.step, instance.queue) == ("mine", "key", "refund", "slow")
    await app.drain()
    assert await handle.result() == "refunded"


async def test_api_a_step_can_be_given_as_its_method(app: Harness) -> None:
    handle = await drained(app, app.start(Checkout, {"order": 1}, step=Checkout.refund))
    assert await handle.result() == "refunded"


@dataclass
class Money:
    amount: int


class Note(msgspec.Struct):
    text: str


class Address(pydantic.BaseModel):
    city: str


async def test_api_models_are_accepted_wherever_json_is(app: Harness) -> None:
    by_class = await drained(app, app.start(Checkout, Checkout.State(order=5)))
    await by_class.signal("payment_confirmed", {"money": Money(3), "note": Note("x"), "to": Address(city="Rome")})
    await app.drain()
    expected = {"money": {"amount": 3}, "note": {"text": "x"}, "to": {"city": "Rome"}}
    assert await by_class.result() == {"order": 5, "paid": expected}
    for model in (Money(1), Note("n"), Address(city="c")):
        quick = await drained(app, app.start(Quick, model))
        assert await quick.result() == (await quick.get()).state


async def test_api_no_input_is_an_empty_state(app: Harness) -> None:
    quick = await app.start(Quick)
    assert (await quick.get()).state == {}


async def test_api_a_taken_id_or_key_is_a_duplicate_that_names_its_holder(app: Harness) -> None:
    first = await app.start(Quick, id="one", correlation_key="key")
    for options, text in (
        ({"id": "one"}, "An instance with the id 'one' exists already"),
        ({"correlation_key": "key"}, "The correlation key 'key' is taken by instance one"),
        ({"id": "key"}, "The id 'key' is the correlation key of instance one"),  # an id equal to a live key
        ({"correlation_key": "one"}, "The correlation key 'one' is taken by instance one"),  # a key equal to an id
        ({"id": "two", "correlation_key": "key"}, "The correlation key 'key' is taken by instance one"),
    ):
        with pytest.raises(Duplicate, match=text) as taken:
            await app.start(Quick, **options)
        assert taken.value.holder == first.id
    with pytest.raises(NotFound):
        await app.get("two")


async def test_api_no_version_means_the_newest_known_also_when_it_came_later(store: Store) -> None:
    """Another process may register a newer version at any time; a start by name must not use a stale list."""

    def flow(number: int) -> type[Machine]:
        class Flow(Machine, version=number):
            @step
            async def start(self, ctx: Context) -> Done:
                return Done(number)

        return Flow

    other = Harness(flow(1), url=store.url, **store.options)
    starter = Harness(url=store.url, **store.options)
    async with other, starter:
        assert (await (await starter.start("Flow")).get()).version == 1
        await other.register(flow(3))
        await other.register(flow(2))
        assert (await (await starter.start("Flow")).get()).version == 3
        assert (await (await starter.start("Flow", version=2)).get()).version == 2
        many = await starter.start_many([("Flow", None), Start("Flow", version=1)])
        assert [(await one.get()).version for one in many] == [3, 1]
        await starter.signal_with_start("Flow", "key", "hello")
        assert (await starter.get("key")).version == 3


# -- signals, broadcasts, messages -----------------------------------------------------------------


async def test_api_a_delivery_woke_was_stored_or_was_a_duplicate(app: Harness) -> None:
    order = await app.start(Checkout, {"order": 1})
    stored = await app.signal(order, "payment_confirmed", 1, dedup_key="a")
    assert isinstance(stored, Delivery)
    assert (stored.status, stored.instance_id) == ("stored", order.id)
    assert (await app.signal(order, "payment_confirmed", 2, dedup_key="a")).status == "duplicate"
    assert (await app.signal(order, "another name", 2, dedup_key="a")).status == "duplicate"
    second = await drained(app, app.start(Checkout, {"order": 2}))
    assert (await second.signal("unrelated")).status == "stored"
    assert (await second.signal("payment_confirmed")).status == "woke"
    assert (await second.signal("payment_confirmed")).status == "stored"  # already woken


async def test_api_a_finished_target_is_no_target_and_a_known_key_still_a_duplicate(app: Harness) -> None:
    order = await app.start(Checkout, {"order": 1}, correlation_key="order")
    await drained(app, order.signal("payment_confirmed", 1, dedup_key="a"))
    for target in (order, order.id, "order"):
        assert (await app.signal(target, "payment_confirmed", dedup_key="a")).status == "duplicate"
        with pytest.raises(NoTarget) as missing:
            await app.signal(target, "payment_confirmed", dedup_key="b")
        assert missing.value.target in (order.id, "order")
    with pytest.raises(NoTarget, match="start the instance before you send"):
        await app.signal("missing", "x")


async def test_api_broadcast_returns_its_subscriber_count_and_a_duplicate_returns_the_same(app: Harness) -> None:
    listeners = await app.start_many([(Listener, None)] * 3)
    assert await app.broadcast("open", 0) == 0  # no instance waits yet
    await app.drain()
    assert await app.broadcast("open", {"n": 1}, dedup_key="k") == 3
    assert await app.broadcast("open", {"n": 2}, dedup_key="k") == 3
    assert await app.drain() == {"steps": 3, "done": 3}
    assert [await listener.result() for listener in listeners] == [[["broadcast", "open", {"n": 1}]]] * 3
    assert await app.broadcast("open") == 0


async def test_api_a_message_without_a_receiver_is_no_target(app: Harness) -> None:
    with pytest.raises(NoTarget, match="No instance waits for message 'payment' with key 'order-42'"):
        await app.message("payment", "order-42", {"amount": 120})


async def test_api_a_missing_awakeable_is_not_found(app: Harness) -> None:
    for asked in (app.resolve("prom_1x", 1, by="me"), app.reject("prom_1x", "no"), app.awakeable("prom_1x")):
        with pytest.raises(NotFound, match="no awakeable 'prom_1x'"):
            await asked
    assert await app.awakeables() == []


# -- reading ---------------------------------------------------------------------------------------


async def test_api_an_instance_has_these_attributes(app: Harness) -> None:
    order = await app.start(Checkout, {"order": 1}, correlation_key="key")
    before = await order.get()
    assert isinstance(before, Instance)
    assert (before.definition, before.kind, before.version, before.queue) == ("Checkout", "machine", 1, "checkout")
    assert (before.status, before.step, before.attempt) == ("runnable", "start", 0)
    assert (before.state, before.result, before.error) == ({"order": 1, "n": 0}, None, None)
    assert (before.correlation_key, before.parent_id, before.waits) == ("key", None, ())
    assert before.created_at == datetime.fromtimestamp(app.clock.now / 1_000_000, UTC)
    assert before.finished_at is None
    await app.drain()
    parked = await app.get("key")
    assert (parked.status, parked.step, parked.state) == ("awaiting_signal", "ship", {"order": 1, "n": 1})
    [wait] = parked.waits
    assert isinstance(wait, Wait)
    assert (wait.instance_id, wait.kind, wait.name) == (order.id, "signal", "payment_confirmed")
    assert wait.since == before.created_at
    assert wait.deadline == before.created_at + timedelta(hours=1)
    await drained(app, app.advance(3600))
    failed = await order.get()
    assert (failed.status, failed.error, failed.waits) == ("failed", "payment never came", ())
    assert failed.finished_at == before.created_at + timedelta(hours=1)


async def test_api_a_child_names_its_parent(app: Harness) -> None:
    await drained(app, app.start(Parent, id="parent"))
    assert (await app.get("parent.child")).parent_id == "parent"
    parent = await app.get("parent")
    assert parent.status == "awaiting_children"
    assert [(wait.kind, wait.name) for wait in parent.waits] == [("children", None)]


async def test_api_events_have_these_attributes_newest_last(app: Harness) -> None:
    order = await drained(app, app.start(Checkout, {"order": 1}))
    await drained(app, order.signal("payment_confirmed", 5))
    events = await app.events(order)
    assert all(isinstance(event, Event) for event in events)
    assert [event.type for event in events] == ["started", "await", "signal", "done"]
    assert [event.seq for event in events] == sorted(event.seq for event in events)
    assert {event.instance_id for event in events} == {order.id}
    assert events[0].data == {"definition": "Checkout", "version": 1}
    assert events[1].step == "ship"
    assert events[2].data == {"name": "payment_confirmed", "status": "woke"}
    assert all(event.at.tzinfo is not None for event in events)
    with pytest.raises(NotFound):
        await app.events("missing")


async def test_api_waits_show_who_waits_for_what(app: Harness) -> None:
    await app.start(Checkout, {"order": 1}, id="order")
    await app.start(Listener, id="listener")
    await drained(app, app.start(Parent, id="parent"))
    waits = {(wait.instance_id, wait.kind, wait.name) for wait in await app.waits()}
    assert waits == {
        ("order", "signal", "payment_confirmed"),
        ("listener", "broadcast", "open"),
        ("listener", "signal", "poke"),
        ("parent", "children", None),
        ("parent.child", "broadcast", "open"),
        ("parent.child", "signal", "poke"),
    }
    assert {wait.instance_id for wait in await app.waits(name="open")} == {"listener", "parent.child"}
    assert {wait.instance_id for wait in await app.waits(kind="children")} == {"parent"}
    assert await app.waits(name="open", kind="signal") == []
    await app.cancel("parent")
    assert {wait.instance_id for wait in await app.waits()} == {"order", "listener"}


# -- ends ------------------------------------------------------------------------------------------


async def test_api_result_returns_the_result_or_raises_how_it_ended(app: Harness) -> None:
    good, bad = await app.start_many([(Quick, {"n": 1}), (Quick, {"fail": True})])
    waiting = await drained(app, app.start(Listener))
    assert await app.result(good) == {"n": 1}
    with pytest.raises(InstanceFailed) as failed:
        await app.result(bad)
    assert (failed.value.id, failed.value.error) == (bad.id, "as asked")
    with pytest.raises(TimeoutError, match="its work continues"):
        await app.result(waiting, timeout=0.01)
    with pytest.raises(TimeoutError):
        await app.result(waiting, timeout=timedelta(milliseconds=1))
    await app.cancel(waiting, "enough")
    with pytest.raises(InstanceCancelled) as cancelled:
        await app.result(waiting)
    assert (cancelled.value.id, cancelled.value.reason) == (waiting.id, "enough")
    with pytest.raises(NotFound):
        await app.result("missing")


async def test_api_a_result_of_null_is_none(app: Harness) -> None:
    class Silent(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

    silent = await drained(app, app.start(Silent))
    assert await silent.result() is None
    assert (await silent.get()).result is None


async def test_api_retry_returns_the_instance_and_is_a_conflict_on_what_has_not_failed(app: Harness) -> None:
    bad = await app.start(Quick, {"fail": True}, correlation_key="key")
    with pytest.raises(Conflict) as conflict:
        await app.retry(bad)
    assert conflict.value.status == "runnable"
    await app.drain()
    retried = await app.retry("key")
    assert (retried.id, retried.status, retried.error, retried.finished_at) == (bad.id, "runnable", None, None)
    await app.drain()
    await app.start(Quick, id="other", correlation_key="key")
    with pytest.raises(Duplicate) as taken:
        await app.retry(bad)
    assert taken.value.holder == "other"
    assert (await bad.get()).status == "failed"
    with pytest.raises(NotFound):
        await app.retry("missing")


async def test_api_register_makes_known_now_or_when_the_app_opens(store: Store) -> None:
    early = Hark(store.url, **store.options)
    early.register(Quick)
    async with Hark(store.url, **store.options) as app:
        with pytest.raises(NotFound):
            await app.start("Quick")
        async with early:
            assert (await app.start("Quick")).id
            with pytest.raises(NotFound):
                await app.start("Listener")
            await early.register(Listener)
            assert (await app.start("Listener")).id


async def test_api_sweep_fires_what_is_due_without_a_worker(app: Harness) -> None:
    order = await app.start(Checkout, {"order": 1})
    await drained(app, app.start(Quick, id="delayed", delay=5))
    app.clock.now += 3600 * 1_000_000
    assert (await order.get()).status == "awaiting_signal"
    assert await app.sweep() is None
    assert (await order.get()).status == "runnable"
    assert await app.drain() == {"steps": 2, "stop": 1, "done": 1}


@pytest.mark.parametrize("limit", [None, "api"], ids=["at once", "with a rate limit"])
async def test_api_the_step_after_a_retry_has_attempt_zero_for_itself_and_in_the_store(
    store: Store, limit: str | None
) -> None:
    class Trier(Machine):
        @step
        async def start(self, ctx: Context) -> Retry | Next:
            return Retry(0) if ctx.attempt < 2 else Next(self.second, rate_limit=limit)

        @step
        async def second(self, ctx: Context) -> Done:
            return Done([ctx.attempt, (await app.get(ctx.id)).attempt])

    async with harness(store, Trier, rate_limits={"api": Rate(1, 60)}) as app:
        trier = await drained(app, app.start(Trier))
        assert await trier.result() == [0, 0]


async def test_api_an_unknown_option_of_a_start_is_refused(app: Harness) -> None:
    with pytest.raises(TypeError):
        app.start(Quick, prioritty=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidInput, match="no option prioritty"):
        app.start_many([Start(Quick, prioritty=1)])
