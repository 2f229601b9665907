"""S8, settlements: `ctx.resolve` and `ctx.reject` commit with the outcome, once, and wake the awakeable's owner.

The owner is parked directly, as an interpreter would park it.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hark import AlreadySettled, Context, Done, Machine, NotFound, Retry, step
from hark.model.decisions import Arm, NewAwakeable, Park
from hark.testing import Harness
from tests.promises.support_signals import Turns, count, event_types, harness
from tests.support.harness import drained
from tests.support.stores import Store

PROMISE = "prom_1YXNrZXI6MA"


class Asker(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        raise AssertionError("parked by hand, before it ran")

    @step
    async def answered(self, ctx: Context) -> Done:
        return Done([[row.kind, row.name, json.loads(row.payload)] for row in ctx._claim.inbox])


def asks(id: str = PROMISE, entry: int = 0) -> Park:
    arm = Arm("awakeable", f"wait-{id}", name=id)
    return Park((arm,), awakeables=(NewAwakeable(id, entry, title="May I?"),))


@asynccontextmanager
async def asked(store: Store, *definitions: type[Machine]) -> AsyncIterator[Harness]:
    """An app in which the instance `asker` waits for its awakeable."""
    async with harness(store, Asker, *definitions) as app, Turns(store, app.clock) as turns:
        await app.start(Asker, id="asker")
        await turns.commit(await turns.claim("Asker"), asks(), step="answered")
        assert (await app.awakeable(PROMISE)).status == "PENDING"
        yield app


def settler(*issues: Callable[[Context], Any], fail: bool = False) -> type[Machine]:
    class Settler(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            for issue in issues:
                issue(ctx)
            if fail:
                raise RuntimeError("after settling")
            return Retry() if ctx.attempt == 0 and ctx.state.get("again") else Done()

    return Settler


async def test_s8_resolve_commits_with_the_outcome_and_wakes_the_awakeables_owner(store: Store) -> None:
    machine = settler(lambda ctx: ctx.resolve(PROMISE, {"yes": True}))
    async with asked(store, machine) as app:
        await app.start(machine, id="settler")
        assert await app.drain() == {"steps": 2, "done": 2}
        settled = await app.awakeable(PROMISE)
        assert (settled.status, settled.payload, settled.answered_by) == ("RESOLVED", {"yes": True}, "settler")
        assert await app.result("asker") == [
            ["awakeable", PROMISE, {"status": "RESOLVED", "payload": {"yes": True}, "by": "settler"}]
        ]  # fmt: skip


async def test_s8_reject_commits_with_the_outcome_and_its_reason(store: Store) -> None:
    reason = "no, and for many reasons: " + "x" * 400
    machine = settler(lambda ctx: ctx.reject(PROMISE, reason, by="the boss"))
    async with asked(store, machine) as app:
        await drained(app, app.start(machine))
        settled = await app.awakeable(PROMISE)
        assert (settled.status, settled.error, settled.answered_by) == ("REJECTED", reason, "the boss")
        assert await app.result("asker") == [
            ["awakeable", PROMISE, {"status": "REJECTED", "error": reason, "by": "the boss"}]
        ]


async def test_s8_a_step_that_raises_settles_nothing(store: Store) -> None:
    machine = settler(lambda ctx: ctx.resolve(PROMISE, 1), fail=True)
    async with asked(store, machine) as app:
        await drained(app, app.start(machine))
        assert (await app.awakeable(PROMISE)).status == "PENDING"
        assert (await app.get("asker")).status == "awaiting_signal"
        assert await count(store, "inbox") == 0


async def test_s8_the_second_settlement_is_an_event_on_its_sender(store: Store) -> None:
    machine = settler(lambda ctx: ctx.resolve(PROMISE, 1), lambda ctx: ctx.reject(PROMISE, "too late"))
    async with asked(store, machine) as app:
        await drained(app, app.start(machine, {"again": True}, id="settler"))
        assert (await app.get("settler")).status == "done"
        assert (await app.awakeable(PROMISE)).payload == 1
        assert await count(store, "inbox", "kind = 'awakeable'") == 1
        refused = [event.data for event in await app.events("settler") if event.type == "unsettled"]
        assert len(refused) == 3  # the reject, and both of the step's second run
        assert all(data["awakeable"] == PROMISE and "RESOLVED" in data["error"] for data in refused)


async def test_s8_settling_a_missing_awakeable_is_an_event_on_the_sender(store: Store) -> None:
    machine = settler(lambda ctx: ctx.resolve("prom_1bm9ib2R5OjA", 1))
    async with harness(store, machine) as app:
        await drained(app, app.start(machine, id="settler"))
        assert (await app.get("settler")).status == "done"
        assert "unsettled" in await event_types(app, "settler")


async def test_s8_an_awakeable_settles_once_and_the_second_is_refused(store: Store) -> None:
    async with asked(store) as app:
        await app.resolve(PROMISE, "first", by="alice")
        with pytest.raises(AlreadySettled) as late:
            await app.reject(PROMISE, "second", by="bob")
        assert (late.value.status, late.value.by) == ("RESOLVED", "alice")
        assert await app.drain() == {"steps": 1, "done": 1}
        with pytest.raises(NotFound):
            await app.resolve("prom_1bm9ib2R5OjA")


async def test_s8_fault_69_a_signal_named_like_an_awakeable_settles_nothing(store: Store) -> None:
    async with asked(store) as app:
        assert (await app.signal("asker", PROMISE, {"status": "RESOLVED"})).status == "stored"
        assert await app.broadcast(PROMISE) == 0
        assert await app.drain() == {"steps": 0}
        assert (await app.awakeable(PROMISE)).status == "PENDING"
        await app.resolve(PROMISE, 1)
        assert await app.drain() == {"steps": 1, "done": 1}
