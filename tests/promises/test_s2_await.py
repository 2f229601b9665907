"""S2: Await parks on one name or a set; any match wakes, anything else stays for later."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from hark import Await, Broadcast, Context, Done, FunctionContext, InvalidInput, Machine, Next, step, workflow
from tests.promises.support_signals import Waiter, harness, seen
from tests.support.harness import drained
from tests.support.stores import Store


async def test_s2_any_name_of_the_set_wakes_the_instance(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start_many([(Waiter, {"names": ["a", "b", "c"]})] * 3))
        for name, waiter in zip("abc", await app.list(), strict=True):
            assert (await app.signal(waiter, name, 1)).status == "woke"
            assert await app.drain() == {"steps": 1, "done": 1}
            assert (await app.result(waiter))["awaited"] == [[name, 1]]


async def test_s2_fault_13_another_name_stays_and_does_not_wake(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["a", "b"]}, id="w"))
        assert (await app.signal("w", "c", 1)).status == "stored"
        assert await app.drain() == {"steps": 0}
        assert (await app.get("w")).status == "awaiting_signal"
        assert (await app.signal("w", "b", 2)).status == "woke"
        await app.drain()
        assert await app.result("w") == {
            "awaited": [["b", 2]], "all": [["c", 1], ["b", 2]], "timed_out": False, "attempt": 0,
        }  # fmt: skip


async def test_s2_a_signal_that_stayed_answers_the_await_that_asks_for_it(store: Store) -> None:
    class TwoQuestions(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("first", then=self.middle)

        @step
        async def middle(self, ctx: Context) -> Await:
            ctx.state["middle"] = seen(ctx)
            return Await("second", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([ctx.state["middle"]["awaited"], seen(ctx)["awaited"]])

    async with harness(store, TwoQuestions) as app:
        handle = await drained(app, app.start(TwoQuestions))
        assert (await app.signal(handle, "second", "early")).status == "stored"
        assert (await app.signal(handle, "first", "late")).status == "woke"
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert await handle.result() == [[["first", "late"]], [["second", "early"]]]


async def test_s2_awaited_is_in_order_and_all_shows_everything(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["a", "b"], "broadcasts": ["x"]}, id="w")
        for n, name in enumerate(["a", "z", "b", "a", "x"]):
            await app.signal("w", name, n)
        await app.drain()
        found = await app.result("w")
        assert found["awaited"] == [["a", 0], ["b", 2], ["a", 3]]
        assert found["all"] == [["a", 0], ["z", 1], ["b", 2], ["a", 3], ["x", 4]]


async def test_s2_a_step_that_no_await_led_to_was_handed_nothing(store: Store) -> None:
    class Onward(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await("a", then=self.woken)

        @step
        async def woken(self, ctx: Context) -> Next:
            return Next(self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx))

    async with harness(store, Onward) as app:
        handle = await app.start(Onward)
        await app.signal(handle, "b", 1)
        await drained(app, app.signal(handle, "a", 2))
        assert await handle.result() == {"awaited": [], "all": [["b", 1]], "timed_out": False, "attempt": 0}


async def test_s2_what_is_waited_for_can_be_seen(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await app.start(Waiter, {"names": ["b", "a"], "broadcasts": ["x"], "timeout": 60}, id="w")
        assert await app.waits() == []
        await app.drain()
        instance = await app.get("w")
        assert instance.status == "awaiting_signal"
        assert {(wait.kind, wait.name) for wait in instance.waits} == {
            ("signal", "a"), ("signal", "b"), ("broadcast", "x"),
        }  # fmt: skip
        assert {(wait.deadline - wait.since).total_seconds() for wait in instance.waits} == {60.0}
        assert [wait.instance_id for wait in await app.waits(name="a")] == ["w"]
        assert len(await app.waits(kind="broadcast")) == 1
        await drained(app, app.signal("w", "a"))
        assert await app.waits() == []


async def test_s2_the_same_name_twice_is_one_wait(store: Store) -> None:
    async with harness(store, Waiter) as app:
        await drained(app, app.start(Waiter, {"names": ["a", "a"]}, id="w"))
        assert len((await app.get("w")).waits) == 1
        await drained(app, app.signal("w", "a", 1))
        assert (await app.result("w"))["awaited"] == [["a", 1]]


@pytest.mark.parametrize("names", [["a", "b"], ("a", "b"), {"a", "b"}, frozenset(("b", "a"))], ids=type)
async def test_s2_a_list_of_names_awaits_each_of_them(store: Store, names: Collection[str]) -> None:
    class Listed(Machine):
        @step
        async def start(self, ctx: Context) -> Await:
            return Await(names, then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done(seen(ctx)["awaited"])

    async with harness(store, Listed) as app:
        for name in ("b", "a"):
            handle = await drained(app, app.start(Listed))
            assert {wait.name for wait in (await handle.get()).waits} == {"a", "b"}
            assert (await handle.signal(name, 1)).status == "woke"
            await app.drain()
            assert await handle.result() == [[name, 1]]


async def test_s2_a_function_waits_for_a_list_of_names_and_replays_it(store: Store) -> None:
    @workflow
    async def listed(ctx: FunctionContext) -> list[str]:
        first = await ctx.wait_for_signal(["a", Broadcast("b")])
        await ctx.sleep(1)
        second = await ctx.wait_for_signal({"x", "y", "z"}, timeout=60)
        await ctx.sleep(1)
        return [first.name, second.name]

    async with harness(store, listed, resident_functions=0) as app:  # every activation is a replay
        handle = await drained(app, app.start(listed))
        assert await app.broadcast("b") == 1
        await app.drain()
        await app.advance(1)
        await app.drain()
        assert (await handle.signal("y")).status == "woke"
        await app.drain()
        await app.advance(1)
        await app.drain()
        assert await handle.result() == ["b", "y"]


def test_s2_the_order_of_a_set_of_names_is_the_same_in_every_process() -> None:
    names = {f"name-{n}" for n in range(50)} | {Broadcast("b")}
    assert Await(names, then="end").names == (
        ("broadcast", "b"),
        *(("signal", n) for n in sorted(names - {Broadcast("b")})),
    )


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((["a"], ["b"]), 'as "a", "b" or as one list'),
        (("a", ["b"]), 'as "a", "b" or as one list'),
        (([["a"]],), 'as "a", "b" or as one list'),
        (([],), "would wait forever"),
        ((["a", 7],), "must be text, not 7"),
        (({"a": 1},), "must be text"),
        ((7,), "must be text, not 7"),
    ],
)
def test_s2_names_that_cannot_be_awaited_are_refused_with_the_right_way_to_give_them(given: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Await(*given, then="end")


def test_s2_an_empty_list_with_a_timeout_is_a_sleep() -> None:
    assert Await([], then="end", timeout=timedelta(seconds=1)).names == ()
