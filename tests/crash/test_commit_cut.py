"""The connection is cut at COMMIT: the outcome is read from the database, never guessed; nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hark import Await, Child, Context, Done, Hark, Machine, Next, Spawn, step
from tests.support.inspect import query
from tests.support.proxy import Accident, Delayed, Proxy, cut_after, cut_before
from tests.support.stores import Store


class Counter(Machine):
    """Counts the signals it receives, one at a time."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("tick", "stop", then=self.told)

    @step
    async def told(self, ctx: Context) -> Next | Done:
        if any(signal.name == "stop" for signal in ctx.awaited):
            return Done([signal.payload for signal in ctx.awaited if signal.name == "tick"])
        return Await("tick", "stop", then=self.told)


class Sender(Machine):
    """An outcome with effects of its own: a signal, a start and two children."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.send)

    @step
    async def send(self, ctx: Context) -> Spawn:
        ctx.signal("counter", "tick", "effect")
        ctx.start(Leaf)
        return Spawn([Child(Leaf), Child(Leaf)], then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.children))


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


@pytest.fixture
async def proxy(pg_store: Store) -> AsyncIterator[Proxy]:
    async with Proxy(pg_store.url) as proxy:
        yield proxy


@pytest.fixture
async def app(proxy: Proxy, pg_store: Store) -> AsyncIterator[Hark]:
    # Calls that are transactions of their own have no COMMIT: see test_call_turn_cut.py.
    async with Hark(proxy.url, lease=3.0, one_call_turns=False, **pg_store.options) as app:
        await app.register(Counter, Sender, Leaf)
        yield app


@pytest.mark.parametrize("accident", [cut_before, cut_after])
async def test_fault_37_a_signal_whose_commit_was_cut_is_stored_once(
    app: Hark, proxy: Proxy, pg_store: Store, accident: Accident
) -> None:
    await app.start(Counter, id="counter")
    proxy.at_commit(accident)
    delivery = await app.signal("counter", "tick", 1)
    assert proxy.accidents == 1
    assert delivery.status == "stored"
    assert await query(pg_store, "SELECT name, payload FROM inbox") == [("tick", "1")]


@pytest.mark.parametrize("accident", [cut_before, cut_after])
async def test_fault_37_a_start_whose_commit_was_cut_is_no_duplicate_of_itself(
    app: Hark, proxy: Proxy, accident: Accident
) -> None:
    proxy.at_commit(accident)
    handle = await app.start(Counter, id="counter", correlation_key="the-counter")
    assert proxy.accidents == 1
    assert (await app.get("the-counter")).id == handle.id


@pytest.mark.parametrize("accident", [cut_before, cut_after])
async def test_fault_70_a_turn_sent_again_after_an_unknown_commit_is_applied_once(
    app: Hark, proxy: Proxy, pg_store: Store, accident: Accident
) -> None:
    """An outcome with effects, whose turn also carries a delivery and a claim."""
    async with app.worker():
        counter, sender = await app.start(Counter, id="counter"), await app.start(Sender, id="sender")
        while len(await app.waits()) < 3:
            await asyncio.sleep(0.01)
        proxy.at_commit(accident)  # the delivery, and the claim of the instance it wakes
        await app.signal("sender", "go")
        proxy.at_commit(accident)  # the outcome with its effects
        assert await sender.result(timeout=30) == 2
        assert proxy.accidents == 2
        await app.signal("counter", "stop")
        assert await counter.result(timeout=30) == ["effect"]
        assert len(await app.list(definition="Leaf")) == 3
    assert await query(pg_store, "SELECT max(attempt), max(crashes) FROM instances") == [(0, 0)]


async def test_fault_37_a_commit_still_in_progress_is_awaited(app: Hark, proxy: Proxy, pg_store: Store) -> None:
    await app.start(Counter, id="counter")
    late = Delayed()
    proxy.at_commit(late)
    asked = app.signal("counter", "tick", 1)
    while not await is_asking(pg_store):
        await asyncio.sleep(0.01)
    assert not asked.done()
    late.let_go.set()
    assert (await asked).status == "stored"
    assert await query(pg_store, "SELECT name, payload FROM inbox") == [("tick", "1")]


async def is_asking(store: Store) -> Any:
    """Has the clerk reconnected while its old transaction is still open?"""
    return await query(
        store,
        "SELECT 1 FROM pg_stat_activity WHERE application_name = 'hark clerk' AND query LIKE '%pg_xact_status%'",
    )
