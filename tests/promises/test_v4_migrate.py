"""V4: live instances move to another version of their definition."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from hark import (
    Await,
    Context,
    Done,
    FunctionContext,
    Hark,
    InvalidInput,
    InvalidMigration,
    Machine,
    NotFound,
    Start,
    step,
    workflow,
)
from hark.engine.bulk.bulk_request import Change
from hark.engine.bulk.migrate_page import PageResult
from tests.support.harness import drained, harness, held
from tests.support.stores import Store


@dataclass
class Order:
    order: int


@dataclass
class OrderInCurrency:
    order: int
    currency: str


def with_currency(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "currency": "EUR"}


def typed(old: Order) -> OrderInCurrency:
    if old.order == 13:
        raise ValueError("unlucky")
    return OrderInCurrency(old.order, "EUR")


class Checkout(Machine, name="checkout", version=1):
    State = Order

    @step
    async def start(self, ctx: Context[Order]) -> Any:
        return Await("paid", then=self.ship)

    @step
    async def ship(self, ctx: Context[Order]) -> Any:
        return Done({"version": 1})


class Checkout2(Machine, name="checkout", version=2):
    State = OrderInCurrency

    @step
    async def start(self, ctx: Context[OrderInCurrency]) -> Any:
        return Await("paid", then=self.send)

    @step
    async def send(self, ctx: Context[OrderInCurrency]) -> Any:
        return Done({"version": 2, "currency": ctx.state.currency, "paid": ctx.awaited[0].payload})


async def test_v4_machines_continue_with_the_new_version_and_keep_their_waits_and_inbox(store: Store) -> None:
    async with harness(store, Checkout, Checkout2) as app:
        orders = [await app.start(Checkout, {"order": n}, correlation_key=f"order:{n}") for n in range(5)]
        await app.drain()
        await app.signal("order:0", "other", 1)
        moved = await app.migrate(
            {"definition": "checkout"}, to_version=2, state=with_currency, steps={"ship": "send"}, by="ann"
        )
        await app.drain()
        assert await moved.result() == {"done": 5, "skipped": 0, "failed": 0}
        for n, order in enumerate(orders):
            assert (await order.get()).version == 2
            await app.signal(f"order:{n}", "paid", n)
        await app.drain()
        assert [await order.result() for order in orders] == [
            {"version": 2, "currency": "EUR", "paid": n} for n in range(5)
        ]
        event = next(event for event in await app.events(orders[0]) if event.type == "migrated")
        assert event.data == {"earlier": 1, "version": 2, "bulk": moved.id, "by": "ann"}


async def test_v4_a_preview_says_what_would_happen_and_changes_nothing(store: Store) -> None:
    async with harness(store, Checkout, Checkout2) as app:
        orders = [await app.start(Checkout, {"order": n}) for n in (1, 2, 13)]
        done = await app.start(Checkout, {"order": 3}, correlation_key="done")
        await app.drain()
        await drained(app, app.signal("done", "paid"))
        before = await app.list(), await app.events(limit=1000)
        wanted = {"definition": "checkout"}
        found = await app.migrate(wanted, to_version=2, state=typed, steps={"ship": "send"}, preview=True)
        assert (found.count, set(found.receivers), found.skipped) == (2, {order.id for order in orders[:2]}, 0)
        [problem] = found.problems
        assert problem.startswith(orders[2].id)
        assert "ValueError: unlucky" in problem
        assert (await app.list(), await app.events(limit=1000)) == before
        assert (await done.get()).version == 1


async def test_v4_what_cannot_be_moved_is_counted_and_named_and_stays_as_it_is(store: Store) -> None:
    async with harness(store, Checkout, Checkout2) as app:
        orders = [await app.start(Checkout, {"order": n}) for n in (1, 13)]
        await app.start(Checkout2, {"order": 4, "currency": "USD"})
        await app.drain()
        moved = await app.migrate({"definition": "checkout"}, to_version=2, state=typed, steps={"ship": "send"})
        await app.drain()
        assert await moved.result() == {"done": 1, "skipped": 1, "failed": 1}
        assert [(await order.get()).version for order in orders] == [2, 1]
        assert "unlucky" in (await moved.get()).progress["problems"][orders[1].id]
        await app.signal(orders[1], "paid")
        await app.drain()
        assert await orders[1].result() == {"version": 1}


async def test_v4_one_instance_that_cannot_be_moved_raises_with_the_reasons(store: Store) -> None:
    async with harness(store, Checkout, Checkout2) as app:
        order = await drained(app, app.start(Checkout, {"order": 13}, correlation_key="order:13"))
        with pytest.raises(InvalidMigration, match="has no step 'ship'") as caught:
            await app.migrate(order, to_version=2)
        assert [problem.element for problem in caught.value.problems] == ["ship", "ship"]
        with pytest.raises(InvalidMigration, match="unlucky"):
            await app.migrate("order:13", to_version=2, steps={"ship": "send"}, state=typed)
        with pytest.raises(InvalidMigration, match="there is no such step"):
            await app.migrate({"definition": "checkout"}, to_version=2, steps={"ship": "sned"})
        assert len(await app.list()) == 1
        again = await drained(app, app.migrate(order, to_version=1))
        assert await again.result() == {"done": 0, "skipped": 1, "failed": 0}
        await app.cancel(order)
        with pytest.raises(InvalidMigration, match="it is cancelled"):
            await app.migrate(order, to_version=2)


async def test_v4_malformed_arguments_are_refused(store: Store) -> None:
    def local(state: Any) -> Any:
        return state

    async with harness(store, Checkout, Checkout2, adds(1), adds(2)) as app:
        order = await app.start(Checkout, {"order": 1})
        function = await app.start("adds", version=1)
        for target, options, text in (
            (order, {"state": local}, "top level of a module"),
            (order, {"state": "json:nope"}, "cannot be imported"),
            (order, {"state": "no_such_module:f"}, "cannot be imported"),
            (order, {"state": is_async}, "is an async function"),
            (order, {"steps": ["ship"]}, "give a dict"),
            (order, {"elements": {"a": "b"}}, "is for processes"),
            (function, {"steps": {"a": "b"}}, "are for machines"),
            (order, {"to_version": "2"}, "to_version"),
            ({"status": "held"}, {}, "Name the definition"),
            ({"definition": "checkout", "name": "x"}, {}, "no filter 'name'"),
        ):
            with pytest.raises(InvalidInput, match=text):
                await app.migrate(target, **{"to_version": 2, **options})
        for target, options in ((order, {"to_version": 9}), ("nobody", {"to_version": 2})):
            with pytest.raises(NotFound):
                await app.migrate(target, **options)
        assert len(await app.list()) == 2


def adds(version: int, *more: str, asks: str = "go") -> Any:
    @workflow(name="adds", version=version)
    async def code(ctx: FunctionContext) -> Any:
        first = await ctx.run(lambda: "first", name="first")
        said = (await ctx.wait_for_signal(asks)).payload
        return [version, first, said, *[await ctx.run(lambda name=name: name, name=name) for name in more]]

    return code


async def test_v4_a_function_moves_if_the_new_code_fits_its_journal(store: Store) -> None:
    async with harness(store, adds(1), adds(2, "more")) as app:
        waiting = await drained(app, app.start("adds", version=1))
        await drained(app, app.migrate(waiting, to_version=2))
        await drained(app, app.signal(waiting, "go", "yes"))
        assert await waiting.result() == [2, "first", "yes", "more"]


async def test_v4_a_function_does_not_move_to_code_that_would_be_held(store: Store) -> None:
    async with harness(store, adds(1), adds(2, asks="another")) as app:
        waiting = await drained(app, app.start("adds", version=1))
        with pytest.raises(InvalidMigration, match=r"a wait for .*go") as refused:
            await app.migrate(waiting, to_version=2)
        assert "held" not in str(refused.value)  # it goes on with its own version
        await drained(app, app.signal(waiting, "go", "yes"))
        assert await waiting.result() == [1, "first", "yes"]


async def test_v4_a_held_instance_goes_on_with_the_version_it_is_moved_to(store: Store) -> None:
    class Renamed(Machine, name="checkout", version=1):
        State = Order

        @step
        async def start(self, ctx: Context[Order]) -> Any:
            return Done()

    async with harness(store, Checkout) as app:
        order = await drained(app, app.start(Checkout, {"order": 1}, correlation_key="order:1"))
    async with harness(store, Renamed, Checkout2) as app:
        await app.signal("order:1", "paid", 7)
        await held(app, order.id)
        await app.migrate("order:1", to_version=2, state=with_currency, steps={Checkout.ship: Checkout2.send})
        await app.drain()
        assert await app.result("order:1") == {"version": 2, "currency": "EUR", "paid": 7}


def after(text: str) -> Any:
    """Version 2 of `adds`, which does something else behind what it waits for."""

    @workflow(name="adds", version=2)
    async def code(ctx: FunctionContext) -> Any:
        await ctx.run(lambda: "first", name="first")
        ctx.wait_for_signal("go")
        if text == "exit":
            sys.exit(3)
        raise ValueError(text)

    return code


@pytest.mark.parametrize(("text", "reason"), [("a bug", "ValueError: a bug"), ("exit", "SystemExit: 3")])
async def test_v4_a_function_does_not_move_to_code_that_would_fail_at_once(
    store: Store, text: str, reason: str
) -> None:
    async with harness(store, adds(1), after(text)) as app:
        waiting = await drained(app, app.start("adds", version=1))
        with pytest.raises(InvalidMigration, match=f"it would fail as soon as it runs next: {reason}"):
            await app.migrate(waiting, to_version=2)
        await drained(app, app.signal(waiting, "go", "yes"))
        assert await waiting.result() == [1, "first", "yes"]


class Plain(Machine, name="plain", version=1):
    @step
    async def start(self, ctx: Context[Any]) -> Any:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context[Any]) -> Any:
        return Done(ctx.state)


class Plain2(Plain, name="plain", version=2):
    pass


async def test_v4_an_instance_does_not_become_one_of_another_kind(store: Store) -> None:
    @workflow(name="plain", version=2)
    async def function(ctx: FunctionContext) -> None:
        await ctx.wait_for_signal("go")

    async with harness(store, Plain, function) as app:
        one = await drained(app, app.start(Plain, {"n": 1}, version=1))
        with pytest.raises(InvalidMigration, match="it is a machine, and version 2 of 'plain' is a workflow"):
            await app.migrate(one, to_version=2)


def exits(old: dict[str, Any]) -> dict[str, Any]:
    if old["n"] == 13:
        sys.exit("unlucky")
    return old


def cancels(old: dict[str, Any]) -> dict[str, Any]:
    if old["n"] == 13:
        raise asyncio.CancelledError("unlucky")
    return old


def forgets(old: dict[str, Any]) -> dict[str, Any] | None:
    old["unlucky"] = True
    return None if old["n"] == 13 else old


async def is_async(old: Any) -> Any:
    return old


@pytest.mark.parametrize("function", [exits, cancels, forgets])
async def test_v4_a_state_function_that_exits_or_returns_nothing_leaves_its_instance_alone(
    store: Store, function: Any
) -> None:
    async with harness(store, Plain, Plain2) as app:
        bad = await app.start(Plain, {"n": 13})
        good = await drained(app, app.start(Plain, {"n": 1}))
        found = await app.migrate({"definition": "plain"}, to_version=2, state=function, preview=True)
        assert (found.count, len(found.problems)) == (1, 1)
        moved = await drained(app, app.migrate({"definition": "plain"}, to_version=2, state=function))
        assert await moved.result() == {"done": 1, "skipped": 0, "failed": 1}
        assert function.__name__ in (await moved.get()).progress["problems"][bad.id]
        assert ((await bad.get()).version, (await bad.get()).state) == (1, {"n": 13})
        assert (await good.get()).version == 2


async def test_v4_a_worker_that_cannot_import_the_state_function_leaves_the_move_to_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with harness(store, Plain, Plain2) as app:
        await drained(app, app.start(Plain, {"n": 1}))
        moved = await app.migrate({"definition": "plain"}, to_version=2, state=forgets)
        with monkeypatch.context() as patch:
            patch.delattr("tests.promises.test_v4_migrate.forgets")
            await app.drain()
            assert "cannot be imported" in (await moved.get()).progress["waits"]
        await app.advance(1)
        await app.drain()
        assert await moved.result() == {"done": 1, "skipped": 0, "failed": 0}


async def test_v4_what_was_moved_before_a_crash_counts_also_if_it_has_ended_since(store: Store) -> None:
    async with harness(store, Plain, Plain2) as app:
        one = await drained(app, app.start(Plain, {"n": 1}))
        moved = await drained(app, app.migrate(one, to_version=2))
        await drained(app, app.signal(one, "go"))
        again = await app._bulk_work().migrate(Change(2), [one.id], moved.id, None)
        assert (again.done, again.skipped, again.ended) == (1, 0, 0)


async def test_v4_many_instances_that_execute_are_tried_again_page_by_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    async def page(store: Any, ask: Any, migrator: Any, change: Any, ids: list[str], *rest: Any) -> PageResult:
        sizes.append(len(ids))
        return PageResult(busy=ids) if sum(sizes) <= 450 else PageResult(done=len(ids))

    monkeypatch.setattr("hark.engine.bulk.migrate_page.migrate_page", page)
    async with harness(store, Plain, Plain2) as app:
        await app.start_many([Start(Plain, {"n": n}) for n in range(450)])
        await app.drain()
        moved = await drained(app, app.migrate({"definition": "plain"}, to_version=2))
        await app.advance(1)
        await app.drain()
        assert await moved.result() == {"done": 450, "skipped": 0, "failed": 0}
    assert sizes == [200, 200, 50, 200, 200, 50]


async def test_v4_a_failed_machine_is_moved_and_then_retried_with_the_new_version(store: Store) -> None:
    async with harness(store, Failing, Failing2) as app:
        order = await drained(app, app.start(Failing, {"n": 1}))
        assert (await order.get()).status == "failed"
        moved = await drained(app, app.migrate({"definition": "failing", "status": "failed"}, to_version=2))
        assert await moved.result() == {"done": 1, "skipped": 0, "failed": 0}
        assert (await order.get()).status == "failed"
        await drained(app, app.retry(order))
        assert await order.result() == 2


class Failing(Machine, name="failing"):
    @step
    async def start(self, ctx: Context[Any]) -> Any:
        raise ValueError("no")


class Failing2(Machine, name="failing", version=2):
    @step
    async def start(self, ctx: Context[Any]) -> Any:
        return Done(2)


async def test_v4_an_instance_that_executes_is_refused_alone_and_tried_again_in_bulk(store: Store) -> None:
    blocking, release = asyncio.Event(), asyncio.Event()

    class Slow(Machine, name="slow"):
        @step
        async def start(self, ctx: Context[Any]) -> Any:
            blocking.set()
            await release.wait()
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context[Any]) -> Any:
            return Done(1)

    class Slow2(Slow, name="slow", version=2):
        @step
        async def end(self, ctx: Context[Any]) -> Any:
            return Done(2)

    async with Hark(store.url, **store.options) as app:
        app.register(Slow, Slow2)
        async with app.worker():
            one = await app.start(Slow)
            await blocking.wait()
            with pytest.raises(InvalidMigration, match="executes a step"):
                await app.migrate(one, to_version=2)
            moved = await app.migrate({"definition": "slow"}, to_version=2)
            await moved.wait_for("awaiting_signal", timeout=30)
            release.set()
            assert await moved.result(timeout=30) == {"done": 1, "skipped": 0, "failed": 0}
            await one.signal("go")
            assert await one.result(timeout=30) == 2


async def test_v4_many_instances_are_moved_page_by_page_and_none_twice(store: Store) -> None:
    async with harness(store, Checkout, Checkout2) as app:
        await app.start_many([Start(Checkout, {"order": n}) for n in range(450)])
        await app.drain()
        moved = await app.migrate({"definition": "checkout"}, to_version=2, state=with_currency, steps={"ship": "send"})
        await app.drain()
        assert await moved.result() == {"done": 450, "skipped": 0, "failed": 0}
        events = await app.events(limit=10_000)
        assert sum(event.type == "migrated" for event in events) == 450
