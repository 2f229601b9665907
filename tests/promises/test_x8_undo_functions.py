"""X8: the undos of a durable function run in reverse order when it fails or is cancelled, unless that is forced."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hark import (
    FunctionContext,
    InstanceCancelled,
    InstanceFailed,
    Workflow,
    workflow,
)  # fmt: skip
from hark.kernel.requests import Reclaim
from tests.promises.support_signals import Gate, Turns, count, event_types, rows, statuses
from tests.support.harness import drained, harness, held, parked
from tests.support.inspect import everything, until
from tests.support.stores import Store


class World:
    """What was done and undone, in order; and what fails how often."""

    def __init__(self) -> None:
        self.log: list[Any] = []
        self.fails: dict[str, int] = {}
        self.stuck: asyncio.Event | None = None  # set by an async undo, which then never ends

    def _do(self, what: str) -> None:
        left = self.fails.get(what, 0)
        if left:
            self.fails[what] = left - 1
            self.log.append(f"{what} failed")
            raise ValueError(f"{what} does not work")
        self.log.append(what)

    async def make(self, what: str) -> dict[str, str]:
        self._do(what)
        return {"made": what}

    def make_in_thread(self, what: str) -> dict[str, str]:
        self._do(what)
        return {"made": what}

    async def remove(self, made: dict[str, str]) -> None:
        if self.stuck:
            self.stuck.set()
            await asyncio.Event().wait()
        self._do(f"-{made['made']}")

    def remove_in_thread(self, made: dict[str, str]) -> str:
        self._do(f"-{made['made']}")
        return "removed"


@pytest.fixture
def world() -> World:
    return World()


def three_runs(world: World, then: Callable[[FunctionContext], Any]) -> Workflow[..., Any]:
    """Three runs, of which the middle one has no undo; then what the test wants."""

    @workflow
    async def order(ctx: FunctionContext) -> Any:
        await ctx.run(world.make, "a", undo=world.remove)
        await ctx.run(world.make, "b")
        await ctx.run(world.make_in_thread, "c", undo=world.remove_in_thread)
        return await then(ctx)

    return order


@workflow
async def sleeper(ctx: FunctionContext) -> None:
    await ctx.wait_for_signal("never")


async def _signal(ctx: FunctionContext) -> Any:
    return (await ctx.wait_for_signal("paid")).payload


WAITS: dict[str, Callable[[FunctionContext], Any]] = {
    "signal": _signal,
    "awakeable": lambda ctx: _awakeable(ctx),
    "child": lambda ctx: ctx.call(sleeper, id="child"),
    "sleep": lambda ctx: ctx.sleep(60),
    "all of them": lambda ctx: ctx.gather(_awakeable(ctx), ctx.call(sleeper, id="child"), ctx.sleep(60)),
}


async def _awakeable(ctx: FunctionContext) -> Any:
    return await (await ctx.awakeable(title="Go on?"))


@pytest.mark.parametrize("wait", WAITS)
async def test_x8_a_cancel_runs_the_undos_in_reverse_with_their_results(store: Store, world: World, wait: str) -> None:
    order = three_runs(world, WAITS[wait])
    async with parked(store, order, sleeper, id="o") as (app, _):
        cancelling = await app.cancel("o", "out of stock")
        assert (cancelling.status, cancelling.step, cancelling.cancel_reason) == ("runnable", "undo", "out of stock")
        assert await count(store, "waits") == 0
        assert await count(store, "awakeables", "status = 'PENDING'") == 0
        if wait in ("child", "all of them"):
            assert await statuses(app, "child") == ["cancelled"]
        assert world.log == ["a", "b", "c"]
        await app.drain()
        found = await app.get("o")
        assert (found.status, found.error, found.cancel_reason) == ("cancelled", "out of stock", None)
        assert world.log == ["a", "b", "c", "-c", "-a"]
        assert (await event_types(app, "o"))[-1] == "cancelled"
        assert "undo_failed" not in await event_types(app, "o")
        with pytest.raises(InstanceCancelled):
            await app.result("o")


async def test_x8_a_function_that_fails_undoes_and_then_fails_with_its_error(store: Store, world: World) -> None:
    async def fail(ctx: FunctionContext) -> None:
        raise RuntimeError("no ship today")

    order = three_runs(world, fail)
    async with parked(store, order, id="o") as (app, _):
        found = await app.get("o")
        assert (found.status, found.error) == ("failed", "RuntimeError: no ship today")
        assert world.log == ["a", "b", "c", "-c", "-a"]
        with pytest.raises(InstanceFailed, match="no ship today"):
            await app.result("o")


async def test_x8_a_failed_run_without_a_result_is_not_undone(store: Store, world: World) -> None:
    async def fourth(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "d", undo=world.remove)

    world.fails["d"] = 1
    order = three_runs(world, fourth)
    async with parked(store, order, id="o") as (app, _):
        assert world.log == ["a", "b", "c", "d failed", "-c", "-a"]
        assert "d does not work" in ((await app.get("o")).error or "")


async def test_x8_a_function_that_is_done_undoes_nothing(store: Store, world: World) -> None:
    order = three_runs(world, _signal)
    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.signal("o", "paid", 42))
        assert await app.result("o") == 42
        assert world.log == ["a", "b", "c"]


async def test_x8_a_result_that_cannot_be_stored_is_a_failure_that_undoes(store: Store, world: World) -> None:
    async def unstorable(ctx: FunctionContext) -> object:
        return object()

    order = three_runs(world, unstorable)
    async with parked(store, order, id="o") as (app, _):
        assert await statuses(app, "o") == ["failed"]
        assert world.log[3:] == ["-c", "-a"]


@pytest.mark.parametrize("after", ["a failure", "a cancel"])
async def test_x8_an_undo_is_retried_like_its_run(store: Store, world: World, after: str) -> None:
    """Between two attempts the instance is parked: it holds no slot."""

    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a", undo=world.remove)
        await ctx.run(world.make, "b", undo=world.remove, retries=2, backoff=10)
        await ctx.wait_for_signal("go")
        raise RuntimeError("enough")

    world.fails["-b"] = 2
    async with parked(store, order, id="o") as (app, _):
        await (app.signal("o", "go") if after == "a failure" else app.cancel("o", "enough"))
        await app.drain()
        assert await statuses(app, "o") == ["awaiting_signal"]
        [wait] = await app.waits()
        assert (wait.kind, wait.place) == ("timer", "1+1")
        await drained(app, app.advance(10))
        assert world.log == ["a", "b", "-b failed", "-b failed"]
        assert [wait.place for wait in await app.waits()] == ["1+2"]
        await drained(app, app.advance(20))
        assert world.log[4:] == ["-b", "-a"]
        found = await app.get("o")
        assert found.status == ("failed" if after == "a failure" else "cancelled")
        assert found.error == ("RuntimeError: enough" if after == "a failure" else "enough")
        assert await count(store, "waits") == 0
        assert await count(store, "inbox", "consumed_at IS NULL") == 0


@pytest.mark.parametrize("after", ["a failure", "a cancel"])
async def test_x8_an_undo_that_fails_is_recorded_and_the_others_run(store: Store, world: World, after: str) -> None:
    async def end(ctx: FunctionContext) -> None:
        await ctx.wait_for_signal("go")
        raise RuntimeError("enough")

    world.fails["-c"] = 1
    order = three_runs(world, end)
    async with parked(store, order, id="o") as (app, _):
        await (app.signal("o", "go") if after == "a failure" else app.cancel("o", "enough"))
        await app.drain()
        assert world.log[3:] == ["-c failed", "-a"]
        found = await app.get("o")
        assert (found.status, found.error) == (
            ("failed", "RuntimeError: enough") if after == "a failure" else ("cancelled", "enough")
        )
        [failed] = [event for event in await app.events("o", limit=1000) if event.type == "undo_failed"]
        assert failed.step == "undo make_in_thread"
        assert "-c does not work" in str(failed.data)


async def test_x8_a_crash_between_two_undos_repeats_none_that_is_recorded(store: Store, world: World) -> None:
    """Each undo commits alone. What a worker leaves when it stops is continued by the next one."""
    order = three_runs(world, _signal)
    async with parked(store, order, id="o") as (app, _):
        await app.cancel("o", "enough")
        world.stuck = asyncio.Event()
        async with app.worker(grace=0):
            await world.stuck.wait()  # the first undo is recorded, the second executes
            assert await rows(store, "SELECT kind, entry FROM journal WHERE kind = 'undo'") == [("undo", 2)]
        world.stuck = None
        assert world.log == ["a", "b", "c", "-c"]
        await app.drain()
        assert world.log == ["a", "b", "c", "-c", "-a"]
        assert await statuses(app, "o") == ["cancelled"]


async def test_x8_a_failed_function_keeps_its_error_over_a_crash_in_its_undo(store: Store, world: World) -> None:
    """The code reads something else when it is replayed: the recorded error counts."""
    message = ["first"]

    async def fail(ctx: FunctionContext) -> None:
        raise RuntimeError(message[0])

    order = three_runs(world, fail)
    async with harness(store, order) as app:
        world.stuck = asyncio.Event()
        await app.start(order, id="o")
        async with app.worker(grace=0):
            await world.stuck.wait()
        message[0], world.stuck = "second", None
        await app.drain()
        assert (await app.get("o")).error == "RuntimeError: first"
        assert world.log[3:] == ["-c", "-a"]


async def test_x8_a_forced_cancel_of_a_function_undoes_nothing(store: Store, world: World) -> None:
    order = three_runs(world, _signal)
    async with parked(store, order, id="o") as (app, _):
        found = await app.cancel("o", "now", force=True)
        assert (found.status, found.error) == ("cancelled", "now")
        assert await app.drain() == {"steps": 0}
        assert world.log == ["a", "b", "c"]


async def test_x8_a_forced_cancel_ends_an_undo_that_executes(store: Store, world: World) -> None:
    gate, told = Gate(), asyncio.Event()

    async def hold(made: Any) -> None:
        try:
            await gate.hold()
        finally:
            told.set()

    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a", undo=world.remove)
        await ctx.run(world.make, "b", undo=hold)
        await ctx.wait_for_signal("go")

    async with harness(store, order) as app, app.worker():
        await (await app.start(order, id="o")).wait_for("awaiting_signal", timeout=30)
        await app.cancel("o")
        await gate.reached.wait()
        assert (await app.cancel("o", "now", force=True)).status == "cancelled"
        await asyncio.wait_for(told.wait(), 30)
        assert "-a" not in world.log


async def test_x8_before_its_first_result_with_an_undo_a_cancel_is_immediate(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a")
        await ctx.wait_for_signal("go")
        await ctx.run(world.make, "b", undo=world.remove)
        await ctx.wait_for_signal("go")

    async with harness(store, order) as app:
        await app.start(order, id="o")
        await drained(app, app.start(order, id="p"))
        assert (await app.cancel("o")).status == "cancelled"
        await drained(app, app.signal("p", "go"))
        assert (await app.cancel("p")).cancel_reason == "cancelled"
        await app.drain()
        assert world.log == ["a", "a", "b", "-b"]


@pytest.mark.parametrize("how", ["async", "thread"])
async def test_x8_a_run_in_flight_at_the_cancel_has_no_result_to_undo(store: Store, world: World, how: str) -> None:
    """An async run is cancelled, a thread runs to its end; either way the result is dropped."""
    inside, leave, left = threading.Event(), threading.Event(), threading.Event()

    async def wait() -> str:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return "never"

    def wait_in_thread() -> str:
        inside.set()
        leave.wait(60)
        left.set()
        return "too late"

    async def executing(ctx: FunctionContext) -> None:
        await ctx.run(wait if how == "async" else wait_in_thread, undo=world.remove)

    order = three_runs(world, executing)
    async with harness(store, order) as app, app.worker({"default": 1}):
        await app.start(order, id="o")
        await until(inside.is_set, "the run to begin")
        await app.cancel("o", "enough")
        with pytest.raises(InstanceCancelled):
            await app.result("o", timeout=30)
        leave.set()
        await until(left.is_set, "the run to end")
        assert world.log == ["a", "b", "c", "-c", "-a"]


async def test_x8_an_undo_gets_the_typed_result_of_its_run(store: Store) -> None:
    given: list[Any] = []

    async def reserve(count: int) -> Reservation:
        return Reservation(f"r{count}", count)

    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(reserve, 2, undo=lambda reservation: given.append(reservation))
        await ctx.wait_for_signal("go")

    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.cancel("o"))
        assert given == [Reservation("r2", 2)]


async def test_x8_what_an_undo_returns_is_dropped(store: Store) -> None:
    called: list[str] = []

    async def reserve() -> str:
        return "r1"

    def release(id: str) -> object:
        called.append(id)
        return object()  # not JSON: a response of an HTTP library, for example

    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(reserve, undo=release, retries=3)
        await ctx.wait_for_signal("go")

    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.cancel("o"))
        assert called == ["r1"]
        assert await statuses(app, "o") == ["cancelled"]
        assert "undo_failed" not in await event_types(app, "o")


async def test_x8_an_undo_that_uses_the_context_fails_and_says_so(store: Store) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        async def release(id: str) -> None:
            await ctx.signal("other", "release", id)

        await ctx.run(str, "r1", undo=release)
        await ctx.wait_for_signal("go")

    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.cancel("o"))
        [failed] = [event for event in await app.events("o", limit=1000) if event.type == "undo_failed"]
        assert "ctx was used outside of workflow order" in failed.data["message"]
        assert await statuses(app, "o") == ["cancelled"]


@dataclass
class Reservation:
    id: str
    count: int


async def test_x8_concurrent_runs_are_undone_in_reverse_order_of_completion(store: Store, world: World) -> None:
    first_done = asyncio.Event()

    async def slow() -> dict[str, str]:
        await first_done.wait()
        return await world.make("slow")

    async def quick() -> dict[str, str]:
        return await world.make("quick")

    @workflow
    async def order(ctx: FunctionContext) -> None:
        async def then() -> None:
            await ctx.run(quick, undo=world.remove)
            first_done.set()

        await ctx.gather(ctx.run(slow, undo=world.remove), then())
        raise RuntimeError("enough")

    async with parked(store, order, id="o"):
        assert world.log == ["quick", "slow", "-slow", "-quick"]


async def test_x8_runs_beside_one_that_failed_are_undone_if_the_function_waits_for_them(
    store: Store, world: World
) -> None:
    gate = Gate()

    async def make_late() -> dict[str, str]:
        await gate.hold()
        return await world.make("late")

    async def fail() -> None:
        gate.open.set()
        raise ValueError("no")

    @workflow
    async def order(ctx: FunctionContext) -> None:
        beside = ctx.run(make_late, undo=world.remove), ctx.run(fail)
        for found in await ctx.gather(*beside, return_exceptions=True):
            if isinstance(found, Exception):
                raise found

    async with parked(store, order, id="o") as (app, _):
        assert world.log == ["late", "-late"]
        assert await statuses(app, "o") == ["failed"]


async def test_x8_a_finished_run_that_first_gave_up_is_undone_too(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a")
        await ctx.first(ctx.run(world.make, "b", undo=world.remove), ctx.run(world.make, "c", undo=world.remove))
        raise RuntimeError("enough")

    async with parked(store, order, id="o"):
        done = [line for line in world.log if not line.startswith("-")]
        assert world.log[len(done) :] == [f"-{what}" for what in reversed(done) if what != "a"]


async def test_x8_a_failing_function_withdraws_what_it_waits_for_before_it_undoes(store: Store) -> None:
    """Open awakeables are cancelled and called children too, which undo their own runs."""
    world = World()

    @workflow
    async def child(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "child", undo=world.remove)
        await ctx.wait_for_signal("go")

    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a", undo=world.remove)
        question = await ctx.awakeable()
        call = ctx.call(child, id="child")
        await ctx.wait_for_signal("go")
        assert question
        assert call
        raise RuntimeError("enough")

    async with parked(store, order, child, id="o") as (app, _):
        await drained(app, app.signal("o", "go"))
        assert await statuses(app, "o", "child") == ["failed", "cancelled"]
        assert (await app.get("child")).error == "its parent no longer waits for it"
        assert sorted(world.log) == ["-a", "-child", "a", "child"]
        assert [a.status for a in await app.awakeables()] == ["CANCELLED"]
        assert await count(store, "waits") == 0


async def test_x8_a_cancel_of_a_tree_of_functions_undoes_each_of_them(store: Store, world: World) -> None:
    @workflow
    async def child(ctx: FunctionContext, name: str) -> None:
        await ctx.run(world.make, name, undo=world.remove)
        if name == "child":
            await ctx.call(child, {"name": "grandchild"}, id="grandchild")
        await ctx.wait_for_signal("go")

    @workflow
    async def parent(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "parent", undo=world.remove)
        await ctx.call(child, {"name": "child"}, id="child")

    async with parked(store, parent, child, id="parent") as (app, _):
        await app.cancel("parent", "enough")
        assert await statuses(app, "parent", "child", "grandchild") == ["runnable"] * 3
        await app.drain()
        assert await statuses(app, "parent", "child", "grandchild") == ["cancelled"] * 3
        assert sorted(world.log[3:]) == ["-child", "-grandchild", "-parent"]


async def test_x8_a_called_child_is_undone_before_its_parent_learns_that_it_was_cancelled(
    store: Store, world: World
) -> None:
    @workflow
    async def child(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "child", undo=world.remove)
        await ctx.wait_for_signal("go")

    @workflow
    async def parent(ctx: FunctionContext) -> str:
        try:
            await ctx.call(child, id="child")
        except Exception as error:
            return f"{error} {world.log[-1]}"
        return "done"

    async with parked(store, parent, child, id="parent") as (app, _):
        await drained(app, app.cancel("child", "enough"))
        assert "enough -child" in await app.result("parent")


async def test_x8_cancelling_a_function_again_changes_nothing(store: Store, world: World) -> None:
    order = three_runs(world, _signal)
    async with parked(store, order, id="o") as (app, _):
        await app.cancel("o", "first")
        before = await everything(store)
        assert (await app.cancel("o", "second")).cancel_reason == "first"
        assert await everything(store) == before
        await app.drain()
        assert (await app.get("o")).error == "first"


async def test_x8_a_cancel_while_a_failed_function_undoes_ends_it_as_cancelled(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a", undo=world.remove)
        await ctx.run(world.make, "b", undo=world.remove, retries=1, backoff=10)
        await ctx.run(world.make, "c", undo=world.remove)
        raise RuntimeError("enough")

    world.fails["-b"] = 1
    async with parked(store, order, id="o") as (app, _):
        assert world.log[3:] == ["-c", "-b failed"]
        await drained(app, app.cancel("o", "not wanted"))
        assert world.log[5:] == ["-b", "-a"]
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "not wanted")


async def test_x8_a_retry_after_an_undo_starts_from_the_beginning(store: Store, world: World) -> None:
    """Nothing of the undone attempt counts: its signals return to the inbox; awakeables and random numbers are new."""
    uuids: list[str] = []

    @workflow
    async def order(ctx: FunctionContext) -> Any:
        uuids.append(str(ctx.uuid()))
        await ctx.run(world.make, "a", undo=world.remove)
        paid = await ctx.wait_for_signal("paid")
        question = await ctx.awakeable()
        answer = await question
        await ctx.run(world.make, "b")
        return [paid.payload, answer]

    world.fails["b"] = 1
    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.signal("o", "paid", 42))
        [first] = await app.awakeables()
        await drained(app, app.resolve(first.id, "yes"))
        assert await statuses(app, "o") == ["failed"]
        assert world.log == ["a", "b failed", "-a"]
        assert await rows(store, "SELECT on_cancel FROM instances") == [(None,)]
        await drained(app, app.retry("o"))
        assert world.log == ["a", "b failed", "-a", "a"]  # it has its signal, and asks again
        second = next(a for a in await app.awakeables() if a.status == "PENDING")
        assert second.id != first.id
        await drained(app, app.resolve(second.id, "again"))
        assert await app.result("o") == [42, "again"]
        assert world.log == ["a", "b failed", "-a", "a", "b"]
        assert len(set(uuids)) == 2


async def test_x8_a_retry_after_an_undo_can_be_undone_again(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(world.make, "a", undo=world.remove)
        await ctx.run(world.make, "b", undo=world.remove)
        await ctx.run(world.make, "c")

    world.fails["c"] = 2
    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.retry("o"))
        assert world.log == ["a", "b", "c failed", "-b", "-a"] * 2
        await drained(app, app.retry("o"))
        assert await statuses(app, "o") == ["done"]


async def test_x8_continue_as_new_drops_the_undos_of_its_visit(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext, page: int) -> Any:
        if page == 0:
            await ctx.run(world.make, "a", undo=world.remove)
            return ctx.continue_as_new({"page": 1})
        if page == 1:
            await ctx.wait_for_signal("go")
            await ctx.run(world.make, "b", undo=world.remove)
        await ctx.wait_for_signal("go")
        return None

    async with harness(store, order) as app:
        await app.start(order, {"page": 0}, id="o")
        await drained(app, app.start(order, {"page": 0}, id="p"))
        assert (await app.cancel("o")).status == "cancelled"
        await drained(app, app.signal("p", "go"))
        await drained(app, app.cancel("p"))
        assert world.log == ["a", "a", "b", "-b"]


async def test_x8_finally_blocks_start_nothing_when_a_function_is_undone(store: Store, world: World) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        try:
            await ctx.run(world.make, "a", undo=world.remove)
            await ctx.wait_for_signal("go")
        finally:
            world.log.append("finally")
            await ctx.run(world.make, "b", undo=world.remove)

    async with parked(store, order, id="o") as (app, _):
        await drained(app, app.cancel("o"))
        assert [line for line in world.log if line != "finally"] == ["a", "-a"]
        assert await statuses(app, "o") == ["cancelled"]


async def test_x8_v3_an_undo_that_cannot_be_found_again_is_held_and_fixed_code_continues_it(
    store: Store, world: World
) -> None:
    """The code has changed. The fixed code undoes what is left."""

    async def changed(ctx: FunctionContext) -> None:
        await ctx.sleep(1)

    order = three_runs(world, _signal)
    async with parked(store, order, id="o") as (app, _):
        await app.cancel("o", "enough")
    async with harness(store, workflow(name="order")(changed)) as app:
        found = await held(app, "o")
        assert found.cancel_reason == "enough"
        assert "NonDeterministic" in (found.error or "")
        assert world.log == ["a", "b", "c"]
    async with harness(store, order) as app:
        await app.drain()
        found = await app.get("o")
        assert (found.status, found.error) == ("cancelled", "enough")
        assert world.log == ["a", "b", "c", "-c", "-a"]


async def test_x8_an_undo_added_to_the_code_counts_for_results_that_are_recorded(store: Store, world: World) -> None:
    def order_with(undo: Any) -> Workflow[..., Any]:
        @workflow
        async def order(ctx: FunctionContext) -> None:
            await ctx.run(world.make, "a", undo=undo)
            await ctx.wait_for_signal("go")
            await ctx.wait_for_signal("go")

        return order

    async with harness(store, order_with(None)) as app:
        await drained(app, app.start("order", id="o"))
    async with harness(store, order_with(world.remove)) as app:
        await drained(app, app.signal("o", "go"))
        await drained(app, app.cancel("o"))
        assert world.log == ["a", "-a"]


async def test_x8_a_quarantined_undo_of_a_function_is_continued_by_a_retry(store: Store, world: World) -> None:
    order = three_runs(world, _signal)
    async with harness(store, order) as app, Turns(store, app.clock) as turns:
        await drained(app, app.start(order, id="o"))
        await app.cancel("o", "enough")
        for _ in range(5):
            await turns.claim("order")
            await turns.run(Reclaim(owners=["by-hand"]))
        found = await app.get("o")
        assert (found.status, found.cancel_reason) == ("failed", "enough")
        assert "a retry continues the undo" in (found.error or "")
        await drained(app, app.retry("o"))
        assert world.log[3:] == ["-c", "-a"]
        assert await statuses(app, "o") == ["cancelled"]


async def test_x8_an_undo_is_a_function(store: Store) -> None:
    @workflow
    async def order(ctx: FunctionContext) -> None:
        await ctx.run(print, undo="remove")  # type: ignore[call-overload]

    async with parked(store, order, id="o") as (app, _):
        assert "undo='remove': give a function that takes the result of the run" in ((await app.get("o")).error or "")
