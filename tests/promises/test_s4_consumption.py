"""S4: consumption is by received id. Progress consumes what the step was handed, and nothing else."""

import asyncio
from typing import Any

import pytest

from hark import Await, Child, Context, Done, Machine, Next, NoTarget, Spawn, Stop, step
from tests.promises.support_signals import Gate, Waiter, count, harness, rows, seen
from tests.support.harness import drained
from tests.support.stores import Store

UNCONSUMED = "SELECT name, payload FROM inbox WHERE consumed_at IS NULL ORDER BY seq"


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


def progressing(outcome: Any, gate: Gate | None = None) -> type[Machine]:
    class Progress(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.work)

        @step
        async def work(self, ctx: Context) -> Any:
            if gate is not None:
                await gate.hold()
            return outcome

        @step
        async def after(self, ctx: Context) -> Await:
            ctx.state["after"] = seen(ctx)
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([ctx.state["after"], seen(ctx)])

    return Progress


PROGRESS = {"next": Next("after"), "spawn": Spawn([Child(Leaf)], then="after")}


@pytest.mark.parametrize("outcome", PROGRESS)
async def test_s4_progress_consumes_exactly_what_the_step_was_handed(store: Store, outcome: str) -> None:
    machine = progressing(PROGRESS[outcome])
    async with harness(store, machine, Leaf) as app:
        handle = await app.start(machine)
        await app.signal(handle, "go", 1)
        await app.signal(handle, "other", 2)
        await drained(app, app.signal(handle, "go", 3))
        assert (await handle.get()).step == "end"
        assert (await handle.get()).state["after"]["all"] == [["other", 2]]
        assert await rows(store, UNCONSUMED) == [("other", "2")]
        assert (await app.signal(handle, "go", 4)).status == "woke"
        await app.drain()
        assert (await handle.result())[1]["awaited"] == [["go", 4]]


@pytest.mark.parametrize("outcome", PROGRESS)
async def test_s4_fault_9_a_late_signal_survives_the_step_that_was_not_handed_it(store: Store, outcome: str) -> None:
    gate = Gate()
    machine = progressing(PROGRESS[outcome], gate)
    async with harness(store, machine, Leaf) as app:
        handle = await app.start(machine)
        await app.signal(handle, "go", "handed")
        draining = asyncio.create_task(app.drain())
        await gate.reached.wait()
        assert (await app.signal(handle, "go", "late")).status == "stored"
        gate.open.set()
        await draining
        after, end = await handle.result()
        assert after == {"awaited": [], "all": [["go", "late"]], "timed_out": False, "attempt": 0}
        assert end["awaited"] == [["go", "late"]]


async def test_s4_a_second_await_consumes_nothing(store: Store) -> None:
    class Twice(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("a", then=self.middle)

        @step
        async def middle(self, ctx: Context) -> Await:
            return Await("b", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx))

    async with harness(store, Twice) as app:
        handle = await app.start(Twice)
        await drained(app, app.signal(handle, "a", 1))
        assert await rows(store, UNCONSUMED) == [("a", "1")]
        await drained(app, app.signal(handle, "b", 2))
        assert (await handle.result())["all"] == [["a", 1], ["b", 2]]
        assert (await handle.result())["awaited"] == [["b", 2]]


@pytest.mark.parametrize("end", ["done", "failed"])
async def test_s4_after_a_terminal_outcome_there_is_no_inbox(store: Store, end: str) -> None:
    class Endings(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done | Stop:
            return Done() if end == "done" else Stop("no")

    async with harness(store, Endings) as app:
        handle = await app.start(Endings)
        await app.signal(handle, "other", 1)
        await drained(app, app.signal(handle, "go", 2))
        assert (await handle.get()).status == end
        assert (await handle.get()).waits == ()
        assert await app.waits() == []
        with pytest.raises(NoTarget):
            await app.signal(handle, "go", 3)
        assert await count(store, "inbox") == 2


@pytest.mark.parametrize("how", ["stop", "raise"])
async def test_s4_retry_restores_the_inbox_as_it_was_before_the_failing_outcome(store: Store, how: str) -> None:
    fixed = asyncio.Event()

    class Fails(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("first", then=self.middle)

        @step
        async def middle(self, ctx: Context) -> Next:
            return Next(self.ask)

        @step
        async def ask(self, ctx: Context) -> Await:
            return Await("a", "b", then=self.work)

        @step
        async def work(self, ctx: Context) -> Done | Stop:
            if fixed.is_set():
                return Done(seen(ctx))
            if how == "raise":
                raise RuntimeError("broken")
            return Stop("broken")

    async with harness(store, Fails) as app:
        handle = await app.start(Fails)
        for n, name in enumerate(["first", "x", "a", "y", "b"]):
            await app.signal(handle, name, n)
        await app.drain()
        assert (await handle.get()).status == "failed"
        assert (await handle.get()).step == "work"
        for _ in range(2):  # it may fail again, and nothing is lost by that
            await drained(app, app.retry(handle))
            assert (await handle.get()).status == "failed"
        fixed.set()
        await app.retry(handle)
        assert await app.drain() == {"steps": 1, "done": 1}
        assert await handle.result() == {
            "awaited": [["a", 2], ["b", 4]], "all": [["x", 1], ["a", 2], ["y", 3], ["b", 4]],
            "timed_out": False, "attempt": 0,
        }  # fmt: skip


async def test_s4_what_was_consumed_before_the_failure_stays_consumed(store: Store) -> None:
    class Later(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("go", then=self.took)

        @step
        async def took(self, ctx: Context) -> Next:
            return Next(self.fail)

        @step
        async def fail(self, ctx: Context) -> Stop:
            return Stop(f"{len(ctx.all)} in the inbox")

    async with harness(store, Later) as app:
        handle = await app.start(Later)
        await drained(app, app.signal(handle, "go"))
        await drained(app, app.retry(handle))
        assert (await handle.get()).error == "0 in the inbox"


async def test_s4_two_instances_do_not_share_an_inbox(store: Store) -> None:
    async with harness(store, Waiter) as app:
        for id in ("one", "two"):
            await app.start(Waiter, {"names": ["go"]}, id=id)
        await drained(app, app.signal("one", "go", 1))
        assert (await app.get("two")).status == "awaiting_signal"
        await drained(app, app.signal("two", "go", 2))
        assert (await app.result("two"))["all"] == [["go", 2]]
