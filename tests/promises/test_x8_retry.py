"""X8: a retry runs a failed instance again from its failed step, or is refused and nothing changes."""

import asyncio
from typing import Any

import pytest

from hark import Await, Child, Conflict, Context, Done, Duplicate, Machine, NotFound, Spawn, Stop, step
from hark.kernel.requests import Deliver, RetryInstance, StartInstances
from hark.model.decisions import Arm, Finish, NewInstance, Park
from tests.promises.support_signals import (
    Turns,
    Waiter,
    count,
    event_types,
    harness,
    seen,
    statuses,
    until_blocked,
)  # fmt: skip
from tests.support.harness import drained
from tests.support.inspect import everything
from tests.support.stores import Store

GO = {"names": ["go"]}


class Quick(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


class Fragile(Machine):
    """After the signal `go`, fails until it is fixed."""

    fixed = False

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.work)

    @step
    async def work(self, ctx: Context) -> Done | Stop:
        return Done(seen(ctx)) if type(self).fixed else Stop("broken")


@pytest.fixture(autouse=True)
def _broken() -> None:
    Fragile.fixed = False


async def test_x8_a_retry_runs_the_failed_step_again_with_its_inbox_and_waits(store: Store) -> None:
    async with harness(store, Fragile) as app:
        await app.start(Fragile, id="f")
        await app.signal("f", "note", 1)
        await drained(app, app.signal("f", "go", 2))
        assert (await app.get("f")).error == "broken"
        Fragile.fixed = True
        retried = await app.retry("f")
        assert (retried.status, retried.step, retried.error, retried.attempt) == ("runnable", "work", None, 0)
        assert retried.finished_at is None
        assert (await app.signal("f", "note", 3)).status == "stored"
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await app.result("f") == {
            "awaited": [["go", 2]], "all": [["note", 1], ["go", 2], ["note", 3]], "timed_out": False, "attempt": 0,
        }  # fmt: skip
        assert "retried" in await event_types(app, "f")


async def test_x8_only_a_failed_instance_can_be_retried(store: Store) -> None:
    async with harness(store, Quick, Waiter, Fragile) as app:
        await app.start(Quick, id="done")
        await drained(app, app.start(Waiter, GO, id="awaiting_signal"))
        await app.start(Waiter, GO, id="cancelled")
        await app.cancel("cancelled")
        await app.start(Quick, id="runnable")
        for id in ("done", "awaiting_signal", "cancelled", "runnable"):
            with pytest.raises(Conflict) as refused:
                await app.retry(id)
            assert refused.value.status == id
        with pytest.raises(NotFound):
            await app.retry("nobody")
        await _fail(app, "f")
        replies = [app.retry("f"), app.retry("f")]
        assert (await replies[0]).status == "runnable"
        with pytest.raises(Conflict):
            await replies[1]


async def _fail(app: Any, id: str, **options: Any) -> None:
    await app.start(Fragile, id=id, **options)
    await drained(app, app.signal(id, "go"))
    assert (await app.get(id)).status == "failed"


async def test_x8_fault_75_a_retry_whose_key_is_taken_is_a_duplicate_and_nothing_changes(store: Store) -> None:
    async with harness(store, Fragile, Waiter) as app:
        await _fail(app, "old", correlation_key="k")
        await app.start(Waiter, GO, id="new", correlation_key="k")
        before = await everything(store)
        with pytest.raises(Duplicate) as taken:
            await app.retry("old")
        assert taken.value.holder == "new"
        assert await everything(store) == before
        await app.cancel("new")
        Fragile.fixed = True
        assert (await app.retry("old")).status == "runnable"
        with pytest.raises(Duplicate) as held:
            await app.start(Waiter, GO, correlation_key="k")
        assert held.value.holder == "old"
        assert (await app.signal("k", "note")).instance_id == "old"


async def test_x8_of_two_failed_holders_of_one_key_only_one_can_be_retried(store: Store) -> None:
    async with harness(store, Fragile) as app:
        await _fail(app, "one", correlation_key="k")
        await _fail(app, "two", correlation_key="k")
        replies = [app.retry("one"), app.retry("two")]
        assert (await replies[0]).status == "runnable"
        with pytest.raises(Duplicate) as taken:
            await replies[1]
        assert taken.value.holder == "one"
        assert (await app.get("two")).status == "failed"


async def test_x8_two_concurrent_retries_get_the_same_reason(store: Store) -> None:
    async with harness(store, Fragile, Waiter) as app:
        await _fail(app, "old", correlation_key="k")
        await app.start(Waiter, GO, id="new", correlation_key="k")
        for reply in [app.retry("old"), app.retry("old")]:
            with pytest.raises(Duplicate):
                await reply
        await app.cancel("new")
        replies = [app.retry("old"), app.retry("old")]
        assert (await replies[0]).status == "runnable"
        with pytest.raises(Conflict, match="'old' is runnable") as late:
            await replies[1]
        assert late.value.status == "runnable"


async def test_x8_a_retry_of_the_holder_of_a_forever_key(store: Store) -> None:
    async with harness(store, Fragile) as app:
        await _fail(app, "f", correlation_key="k", correlation_scope="forever")
        assert (await app.retry("f")).status == "runnable"


@pytest.mark.parametrize("first", ["start", "retry"])
async def test_x8_a_retry_and_a_start_of_its_key_are_serialised(pg_store: Store, first: str) -> None:
    async with Turns(pg_store) as one, Turns(pg_store) as two:
        await one.register("M")
        await one.start("M", "old", correlation_key="k")
        await one.commit(await one.claim("M"), Finish("failed", error="broken"))
        await two.run()
        retry, start = (
            RetryInstance(target="old"),
            StartInstances(items=[NewInstance("M", "{}", "new", correlation_key="k")]),
        )
        turn = await one.open_turn(start if first == "start" else retry)
        meeting = asyncio.create_task(two.run(retry if first == "start" else start))
        await until_blocked(pg_store, two)
        await turn.tx.commit()
        await meeting
        if first == "start":
            assert start.result == ["new"]
            assert (type(retry.result), retry.result.holder) == (Duplicate, "new")
        else:
            assert retry.result == "old"
            assert (type(start.result[0]), start.result[0].holder) == (Duplicate, "old")
        assert await count(pg_store, "instances", "holds_key") == 1


class Parent(Machine):
    """Waits for some of its children, and can fail afterwards."""

    @step
    async def start(self, ctx: Context) -> Spawn:
        children = [Child(Fragile, id="fragile"), Child(Waiter, GO, id="waiter")]
        return Spawn(children, then=self.joined, join=ctx.state["join"])

    @step
    async def joined(self, ctx: Context) -> Done | Stop:
        found = {child.id: child.status for child in ctx.children}
        return Stop("the parent is broken") if ctx.state.get("fail") and not Fragile.fixed else Done(found)


async def test_x8_a_child_that_ends_again_does_not_count_twice(store: Store) -> None:
    async with harness(store, Parent, Fragile, Waiter) as app:
        await drained(app, app.start(Parent, {"join": 2}, id="parent"))
        for _ in range(3):  # it fails again and again, and only the first end counts
            if (await app.get("fragile")).status == "failed":
                await app.retry("fragile")
            else:
                await app.signal("fragile", "go")
            await app.drain()
        Fragile.fixed = True
        await drained(app, app.retry("fragile"))
        assert await statuses(app, "fragile", "parent") == ["done", "awaiting_children"]
        await drained(app, app.signal("waiter", "go"))
        assert await app.result("parent") == {"fragile": "done", "waiter": "done"}
        assert (await event_types(app, "parent")).count("joined") == 1


async def test_x8_a_retried_child_that_is_cancelled_does_not_count_twice(store: Store) -> None:
    async with harness(store, Parent, Fragile, Waiter) as app:
        await drained(app, app.start(Parent, {"join": 2}, id="parent"))
        await drained(app, app.signal("fragile", "go"))
        await app.retry("fragile")
        await drained(app, app.cancel("fragile"))
        assert await statuses(app, "fragile", "parent") == ["cancelled", "awaiting_children"]


async def test_x8_fault_75_a_child_whose_parent_continued_is_retried_alone(store: Store) -> None:
    async with harness(store, Parent, Fragile, Waiter) as app:
        await drained(app, app.start(Parent, {"join": 1}, id="parent"))
        await drained(app, app.signal("fragile", "go"))
        assert await app.result("parent") == {"fragile": "failed", "waiter": "awaiting_signal"}
        before = await event_types(app, "parent")
        Fragile.fixed = True
        await drained(app, app.retry("fragile"))
        await drained(app, app.signal("waiter", "go"))
        assert await statuses(app, "fragile", "waiter", "parent") == ["done"] * 3
        assert await event_types(app, "parent") == before


async def test_x8_a_retried_parent_has_its_children_again(store: Store) -> None:
    """A child ended while the parent was failed; it is visible, and causes no second join."""
    async with harness(store, Parent, Fragile, Waiter) as app:
        await drained(app, app.start(Parent, {"join": 1, "fail": True}, id="parent"))
        await drained(app, app.signal("fragile", "go"))
        assert (await app.get("parent")).error == "the parent is broken"
        assert (await app.get("waiter")).status == "awaiting_signal"  # a failure is not a cancel
        await drained(app, app.signal("waiter", "go"))
        Fragile.fixed = True
        await app.retry("parent")
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await app.result("parent") == {"fragile": "failed", "waiter": "done"}
        assert (await event_types(app, "parent")).count("joined") == 1


async def test_x8_children_that_end_while_the_parent_is_failed_are_not_lost(store: Store) -> None:
    """At the kernel level: it failed with another join still open."""
    async with Turns(store) as turns:
        await turns.register("M", "C")
        await turns.start("M", "m")
        child = NewInstance("C", "{}", "c")
        park = Park((Arm("children", "w-c", place="child", children=(child,), join=1), Arm("signal", "w-s", name="go")))
        await turns.commit(await turns.claim("M"), park)
        await turns.run(Deliver(target="m", name="go"))
        await turns.commit(await turns.claim("M"), Finish("failed", error="broken"))
        await turns.commit(await turns.claim("C"), Finish("done"))
        await turns.run(RetryInstance(target="m"))
        claim = await turns.claim("M")
        assert [(row.kind, row.wait_id) for row in claim.inbox] == [("signal", None), ("children", "w-c")]
        assert {wait.id: wait.remaining for wait in claim.waits} == {"w-c": 0, "w-s": None}
