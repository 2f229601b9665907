"""D7: why an instance waits: for what, since when, what would wake it, what blocks it, and near misses."""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hark import (
    Await,
    Broadcast,
    Child,
    Context,
    Done,
    FunctionContext,
    Hark,
    InstanceFailed,
    Machine,
    NoTarget,
    NotFound,
    Rate,
    Retry,
    Spawn,
    Stop,
    Why,
    step,
    workflow,
)
from hark.kernel.requests import Deliver, Message, Publish, Retain
from hark.model.decisions import Arm, NewAwakeable, NewInstance, Park
from hark.testing import Harness
from tests.promises.support_signals import Turns, count, harness, outcome, rows
from tests.support.harness import drained, parked
from tests.support.inspect import counted, until
from tests.support.stores import Store

SECOND = 1_000_000


class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("paid", then=self.end, timeout=3600)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Market(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("warm_up", then=self.ready)

    @step
    async def ready(self, ctx: Context) -> Await:
        return Await(Broadcast("open"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Parent(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Order, None, id="slow"), Child(Quick, None, id="quick")], then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


@workflow
async def deploy(ctx: FunctionContext) -> None:
    await (await ctx.awakeable(title="Deploy?", schema={"type": "boolean"}))
    await ctx.sleep(60)


class Again(Machine):
    @step
    async def start(self, ctx: Context) -> Retry:
        return Retry(60)


class Broken(Machine):
    @step
    async def start(self, ctx: Context) -> Stop:
        return Stop("out of paper")


def reasons(why: Why) -> list[str]:
    return [miss.reason for miss in why.misses]


# -- what it waits for -------------------------------------------------------------------------------


async def test_d7_why_names_the_signal_the_deadline_and_the_command(store: Store) -> None:
    async with parked(store, Order, correlation_key="order: 42's") as (app, order):
        why = await app.why(order)
        assert (why.id, why.status, why.step, why.correlation_key) == (
            order.id,
            "awaiting_signal",
            "end",
            "order: 42's",
        )
        [wait] = why.waits
        assert (wait.kind, wait.name) == ("signal", "paid")
        assert wait.deadline is not None
        assert (wait.deadline - wait.since).total_seconds() == 3600
        assert why.since == wait.since
        assert wait.wake is not None
        words = shlex.split(wait.wake)
        assert words == ["hark", "signal", "order: 42's", "paid"]
        assert (await app.signal(*words[2:])).status == "woke"
        assert why.misses == ()
        assert "signal 'paid'" in why.text


async def test_d7_every_wait_kind_says_what_would_wake_it(store: Store) -> None:
    now = [1_000 * SECOND]
    async with Turns(store, lambda: now[0]) as turns:
        await turns.register("m")
        await turns.start("m", "i")
        arms = (
            Arm("signal", "w1", name="go"),
            Arm("broadcast", "w2", name="open"),
            Arm("message", "w3", name="payment", key="order-42"),
            Arm("timer", "w4", "nap", timeout=10 * SECOND),
            Arm("awakeable", "w5", "door", name="prom_1x"),
            Arm("children", "w6", children=(NewInstance("m", "{}", "child", named=True),), join=1),
        )
        claim = await turns.claim("m")
        await turns.commit(claim, Park(arms, awakeables=(NewAwakeable("prom_1x", 0),)), step="woken")
    async with Harness(url=store.url, **store.options) as app:
        why = await app.why("i")
        assert {wait.kind: wait.wake for wait in why.waits} == {
            "signal": "hark signal i go",
            "broadcast": "hark broadcast open",
            "message": "hark message payment order-42",
            "timer": None,
            "awakeable": "hark awakeable resolve prom_1x",
            "children": "hark instance why child",
        }
        notes = {wait.kind: wait.note for wait in why.waits}
        assert notes["children"] == "1 still to end of: child (runnable at start)"
        assert "by itself" in (notes["timer"] or "")


async def test_d7_the_wait_for_an_awakeable_shows_its_title(store: Store) -> None:
    async with Harness(deploy, url=store.url, **store.options) as app:
        run = await drained(app, app.start(deploy, id="run"))
        [wait] = (await app.why(run)).waits
        assert (wait.kind, wait.wake) == ("awakeable", f"hark awakeable resolve {wait.name} --payload true")
        assert wait.note == f"Deploy? The answer has to match a schema: hark awakeable show {wait.name}"
        await drained(app, app.resolve(str(wait.name), True))
        assert (await app.why(run)).status == "awaiting_signal"  # a sleep
        assert [wait.kind for wait in (await app.why(run)).waits] == ["timer"]


async def test_d7_why_names_the_unfinished_child(store: Store) -> None:
    async with parked(store, Parent, Order, Quick) as (app, parent):
        [wait] = (await app.why(parent)).waits
        assert wait.note == "1 still to end of: slow (awaiting_signal at end)"


async def test_d7_a_fired_wait_is_not_shown(store: Store) -> None:
    async with parked(store, Order) as (app, order):
        await app.signal(order, "paid")
        why = await app.why(order)
        assert (why.status, why.waits, why.misses) == ("runnable", (), ())


async def test_d7_why_of_a_missing_instance_is_not_found(store: Store) -> None:
    async with harness(store) as app:
        with pytest.raises(NotFound):
            await app.why("nobody")


async def is_parked(app: Hark, id: str) -> bool:
    return (await app.get(id)).status == "awaiting_signal"


# -- what blocks it ----------------------------------------------------------------------------------


@asynccontextmanager
async def asleep(store: Store, *definitions: type[Machine], **options: object) -> AsyncIterator[Hark]:
    """An app without a worker, its definitions recorded."""
    app = Hark(store.url, **store.options, **options)  # type: ignore[arg-type]
    await app.register(*definitions)
    async with app:
        yield app


async def test_d7_why_says_that_no_worker_has_the_code(store: Store) -> None:
    async with asleep(store, Order) as app:
        order = await app.start("Order")
        [blocker] = (await app.why(order)).blockers
        assert blocker.reason == "no_worker"
        assert "hark worker --app" in blocker.text


async def test_d7_why_of_a_parked_instance_also_reports_a_missing_worker(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app:
        async with app.worker():
            order = await app.start(Order)
            await until(lambda: is_parked(app, order.id), "the park")
            assert (await app.why(order)).blockers == ()
        assert [blocker.reason for blocker in (await app.why(order)).blockers] == ["no_worker"]


async def test_d7_a_delay_and_a_retry_say_until_when(store: Store) -> None:
    async with harness(store, Again, Order) as app:
        later = await app.start(Order, delay=100)
        again = await drained(app, app.start(Again))
        for instance, seconds in ((later, 100), (again, 60)):
            blocker = next(o for o in (await app.why(instance)).blockers if o.reason == "delayed")
            assert blocker.until is not None
            assert (blocker.until - (await instance.get()).created_at).total_seconds() == pytest.approx(seconds, abs=1)


async def test_d7_an_instance_blocked_on_a_concurrency_key_names_its_holder(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("m")
        await turns.start("m", "first", "second", concurrency_key="tenant:1")
        assert (await turns.claim("m")).id == "first"
        assert await turns.nobody_runs("m")
    async with asleep(store) as app:
        blockers = {blocker.reason: blocker.text for blocker in (await app.why("second")).blockers}
        assert "held by first" in blockers["concurrency"]
        lost = (await app.why("first")).blockers
        assert [blocker.reason for blocker in lost] == ["lease_lost"]
        assert "hark timeout check" in lost[0].text


async def test_d7_an_instance_blocked_on_a_rate_limit_says_when_tokens_are_available(store: Store) -> None:
    async with harness(store, Quick, rate_limits={"api": Rate(allowed=1, period=60)}) as app:
        handles = [await app.start(Quick, rate_limit="api") for _ in range(2)]
        await app.drain()
        [waiting] = [handle for handle in handles if (await handle.get()).status == "runnable"]
        blocker = next(o for o in (await app.why(waiting)).blockers if o.reason == "rate_limit")
        assert blocker.until is not None


async def test_d7_why_of_a_finished_instance_says_how_it_ended_and_what_to_do(store: Store) -> None:
    async with harness(store, Broken, Quick, Order) as app:
        broken, quick, order = await app.start(Broken), await app.start(Quick), await app.start(Order)
        await app.drain()
        await app.cancel(order, "no stock")
        with pytest.raises(InstanceFailed):
            await app.result(broken)
        assert f"hark instance retry {broken.id}" in (await app.why(broken)).text
        assert "out of paper" in (await app.why(broken)).text
        assert "is done" in (await app.why(quick)).text
        assert "no stock" in (await app.why(order)).text


# -- near misses -------------------------------------------------------------------------------------


async def test_d7_a_signal_with_another_name_in_the_inbox_is_a_near_miss(store: Store) -> None:
    async with parked(store, Order, correlation_key="order:42") as (app, _):
        for _ in range(3):
            await app.signal("order:42", "payed")
        [miss] = (await app.why("order:42")).misses
        assert (miss.reason, miss.name, miss.count) == ("other_name", "payed", 3)


async def test_d7_a_signal_with_the_same_name_for_an_unknown_key_is_a_near_miss(store: Store) -> None:
    async with parked(store, Order, correlation_key="order:42") as (app, _):
        with pytest.raises(NoTarget):
            await app.signal("order:24", "paid")
        [miss] = (await app.why("order:42")).misses
        assert (miss.reason, miss.target, miss.name) == ("other_target", "order:24", "paid")


async def test_d7_a_signal_with_the_same_name_to_another_instance_is_a_near_miss(store: Store) -> None:
    async with harness(store, Order) as app:
        await app.start(Order, correlation_key="order:42")
        await drained(app, app.start(Order, correlation_key="order:43"))
        await drained(app, app.signal("order:43", "paid"))
        [miss] = (await app.why("order:42")).misses
        assert (miss.reason, miss.target) == ("other_target", "order:43")
        assert "took it" in miss.text


async def test_d7_a_signal_to_an_earlier_holder_of_the_key_is_a_near_miss(store: Store) -> None:
    async with parked(store, Order, correlation_key="order:42") as (app, _):
        await app.cancel("order:42")
        with pytest.raises(NoTarget):
            await app.signal("order:42", "paid")
        assert reasons(await app.why("order:42")) == ["too_late"]
        await app.advance(1)
        await drained(app, app.start(Order, correlation_key="order:42"))
        [miss] = (await app.why("order:42")).misses
        assert (miss.reason, miss.name) == ("too_early", "paid")


async def test_d7_a_duplicate_signal_is_a_near_miss(store: Store) -> None:
    async with parked(store, Order, correlation_key="order:42") as (app, _):
        await app.signal("order:42", "viewed", dedup_key="evt-7")
        assert (await app.signal("order:42", "paid", dedup_key="evt-7")).status == "duplicate"
        await app.signal_with_start(Order, "order:42", "paid", dedup_key="evt-7")
        misses = {miss.reason: miss for miss in (await app.why("order:42")).misses}
        assert (misses["duplicate"].name, misses["duplicate"].count) == ("paid", 2)
        assert misses["other_name"].name == "viewed"


async def test_d7_a_broadcast_for_a_signal_wait_is_a_near_miss_and_vice_versa(store: Store) -> None:
    async with harness(store, Order, Market) as app:
        order, market = await app.start(Order), await app.start(Market, correlation_key="market")
        await app.drain()
        assert await app.broadcast("open") == 0
        await drained(app, app.signal("market", "warm_up"))
        assert await app.broadcast("paid") == 0
        await app.signal(market, "open")
        assert [(m.reason, m.kind) for m in (await app.why(order)).misses] == [("other_kind", "broadcast")]
        assert {(m.reason, m.kind) for m in (await app.why(market)).misses} == {
            ("other_kind", "signal"),
            ("other_name", "signal"),  # warm_up, which a second Await did not consume
            ("too_early", "broadcast"),
        }


async def test_d7_messages_with_another_name_key_or_time_are_near_misses(store: Store) -> None:
    now = [1_000 * SECOND]
    async with Turns(store, lambda: now[0]) as turns:
        await turns.register("m")
        await turns.start("m", "i")
        claim = await turns.claim("m")
        now[0] += SECOND
        await turns.run(Message(name="payment", key="order-42"))
        now[0] += SECOND
        await turns.run(outcome(claim, Park((Arm("message", "w", name="payment", key="order-42"),)), step="s"))
        now[0] += SECOND
        await turns.run(Message(name="payment", key="order-24"), Message(name="refund", key="order-42"))
    async with Harness(url=store.url, **store.options) as app:
        found = {(miss.reason, miss.name, miss.target) for miss in (await app.why("i")).misses}
        assert found == {
            ("too_early", "payment", "order-42"),
            ("other_target", "payment", "order-24"),
            ("other_name", "refund", "order-42"),
        }


# -- how near misses are stored ----------------------------------------------------------------------


async def test_d7_all_near_misses_of_a_turn_are_one_statement_and_a_turn_without_any_has_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Turns(store) as turns:
        await turns.register("m")
        await turns.start("m", "i")
        with counted(store, monkeypatch) as sent:
            await turns.run(Deliver(target="i", name="x"), Publish(name="y"))
            assert "insert_misses" not in sent
            await turns.run(*(Deliver(target=f"nobody-{n}", name="x") for n in range(50)), Message(name="a", key="b"))
            assert sent.count("insert_misses") == 1
        assert await count(store, "misses") == 51


async def test_d7_a_turn_that_is_rolled_back_records_no_near_miss(store: Store) -> None:
    async with Turns(store) as turns:
        turn = await turns.open_turn(Deliver(target="nobody", name="x"))
        await turn.tx.rollback()
        assert await count(store, "misses") == 0


async def test_d7_retention_trims_near_misses_to_the_newest_thousands(store: Store) -> None:
    now = [1_000 * SECOND]
    async with Turns(store, lambda: now[0]) as turns:
        for _ in range(3):
            await turns.run(*(Deliver(target="nobody", name="x") for _ in range(2000)))
        now[0] += SECOND
        await turns.run(Deliver(target="nobody", name="last"))
        retain = Retain(before=0)
        await turns.run(retain)
        assert retain.more
        await turns.run(retain)
        assert not retain.more
        assert await count(store, "misses") == 5000
        retain = Retain(before=now[0], size=10_000)
        await turns.run(retain)
        assert await rows(store, "SELECT name FROM misses") == [("last",)]
