"""M8: Spawn starts children and parks atomically; the parent continues when all, or `join=k`, have ended."""

from typing import Any

import pytest

from hark import Await, Child, Context, Done, Machine, Next, Retry, Spawn, Stop, step
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.harness import drained, parked
from tests.support.stores import Store


class Leaf(Machine):
    """A child that ends as its input says, or waits for a signal."""

    @step
    async def start(self, ctx: Context) -> Any:
        match ctx.state:
            case {"wait": _}:
                return Await("end", then=self.end)
            case {"fail": reason}:
                return Stop(reason)
        return Done(ctx.state.get("n"))

    @step
    async def end(self, ctx: Context) -> Done:
        return Done("told")


def fan(*children: Child, join: Any = "all") -> type[Machine]:
    """A parent of these children that returns what it sees of them."""

    class Fan(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn(children, then=self.joined, join=join)

        @step
        async def joined(self, ctx: Context) -> Next:
            return Next(self.end, [[child.status, child.result, child.error] for child in ctx.children])

        @step
        async def end(self, ctx: Context) -> Done:
            assert ctx.children == [], "they belong to the step that joined them"
            return Done(ctx.state)

    return Fan


async def test_m8_spawn_starts_its_children_and_parks_the_parent(store: Store) -> None:
    parent = fan(Child(Leaf, {"wait": 1}, correlation_key="first"), Child("Leaf", {"n": 2}))
    async with harness(store, parent, Leaf) as app:
        top = await app.start(parent)
        assert await app.drain() == {"steps": 3, "await": 1, "done": 1, "spawn": 1}
        kept = await top.get()
        assert kept.status == "awaiting_children"
        assert [(wait.kind, wait.name) for wait in kept.waits] == [("children", None)]
        children = [i for i in await app.list() if i.parent_id == top.id]
        assert sorted(i.status for i in children) == ["awaiting_signal", "done"]
        await drained(app, app.signal("first", "end"))
        assert await top.result(timeout=0) == [["done", "told", None], ["done", 2, None]]


async def test_m8_children_are_in_the_order_of_the_spawn_whatever_their_ids(store: Store) -> None:
    ids = ["z", "a", "m", "B", "taken", "0"]
    parent = fan(*(Child(Leaf, {"n": id}, id=id) for id in ids), Child(Leaf, {"n": "made"}))
    async with harness(store, parent, Leaf) as app:
        await app.start(Leaf, id="taken")  # so a child with that id cannot start, and keeps its place
        top = await drained(app, app.start(parent))
        found = [result if status == "done" else status for status, result, _ in await top.result()]
        assert found == ["z", "a", "m", "B", "failed", "0", "made"]


async def test_m8_failed_and_cancelled_children_count_and_are_visible(store: Store) -> None:
    parent = fan(
        Child(Leaf, {"n": 1}), Child(Leaf, {"fail": "broken"}), Child(Leaf, {"wait": 1}, correlation_key="third")
    )
    async with parked(store, parent, Leaf) as (app, top):
        assert (await top.get()).status == "awaiting_children"
        await drained(app, app.cancel("third", "not needed"))
        assert await top.result(timeout=0) == [
            ["done", 1, None],
            ["failed", None, "broken"],
            ["cancelled", None, "not needed"],
        ]


async def test_m8_a_child_shows_its_id_definition_status_state_result_and_error(store: Store) -> None:
    class Looks(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(Leaf, {"n": 7}, id="leaf-7")], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Done:
            (child,) = ctx.children
            return Done([child.id, child.definition, child.status, child.state, child.result, child.error])

    async with parked(store, Looks, Leaf) as (_, looks):
        assert await looks.result(timeout=0) == ["leaf-7", "Leaf", "done", {"n": 7}, 7, None]


async def test_m8_join_k_continues_after_k_children_and_the_rest_keep_running(store: Store) -> None:
    parent = fan(*(Child(Leaf, {"wait": n}, correlation_key=f"leaf:{n}") for n in range(4)), join=2)
    async with parked(store, parent, Leaf) as (app, top):
        await drained(app, app.signal("leaf:3", "end"))
        assert (await top.get()).status == "awaiting_children"
        await drained(app, app.cancel("leaf:1"))
        seen = await top.result(timeout=0)
        assert [status for status, _, _ in seen] == ["awaiting_signal", "cancelled", "awaiting_signal", "done"]
        assert (await app.get("leaf:0")).status == "awaiting_signal", "its parent's end is not its own"
        await app.signal("leaf:0", "end")
        await app.signal("leaf:2", "end")
        assert await app.drain() == {"steps": 2, "done": 2}
        assert [event.type for event in await app.events(top)].count("joined") == 1


async def test_m8_a_cancel_of_a_parent_that_has_joined_ends_the_remaining_children(store: Store) -> None:
    class Patient(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(Leaf, {"wait": n}, correlation_key=f"leaf:{n}") for n in range(2)], self.joined, join=1)

        @step
        async def joined(self, ctx: Context) -> Await:
            return Await("go", then=self.start)

    async with parked(store, Patient, Leaf) as (app, top):
        await drained(app, app.signal("leaf:0", "end"))
        assert (await top.get()).status == "awaiting_signal"
        assert (await app.get("leaf:1")).status == "awaiting_signal"
        await top.cancel()
        assert (await app.get("leaf:1")).status == "cancelled"


async def test_m8_remaining_children_do_not_wake_a_later_wait(store: Store) -> None:
    class Twice(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            children = [Child(Leaf, {"n": 1}), Child(Leaf, {"wait": 1}, correlation_key="slow")]
            return Spawn(children, then=self.second, join=1)

        @step
        async def second(self, ctx: Context) -> Spawn:
            return Spawn([Child(Leaf, {"wait": 1}, correlation_key="last")], then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([child.result for child in ctx.children])

    async with parked(store, Twice, Leaf) as (app, twice):
        await drained(app, app.signal("slow", "end"))
        assert (await twice.get()).status == "awaiting_children", "that was a child of the spawn before"
        await drained(app, app.signal("last", "end"))
        assert await twice.result(timeout=0) == ["told"], "and is not among those of this one"


async def test_m8_an_empty_spawn_joins_immediately(store: Store) -> None:
    parent = fan()
    async with harness(store, parent) as app:
        top = await app.start(parent)
        assert await app.drain() == {"steps": 3, "done": 1, "next": 1, "spawn": 1}
        assert await top.result(timeout=0) == []


async def test_m8_a_child_that_cannot_start_is_listed_as_failed_and_counts(store: Store) -> None:
    parent = fan(
        Child(Leaf, {"n": 1}),
        Child(Leaf, {"n": 2}, correlation_key="held"),
        Child("Unknown"),
        Child("Leaf", version=9),
        Child(Leaf, {"n": 5}),
        Child(Leaf, {"n": 6}, correlation_key="twin"),
        Child(Leaf, {"n": 7}, correlation_key="twin"),
        Child(Leaf, {"n": 8}, id="taken"),
    )
    async with harness(store, parent, Leaf) as app:
        await app.start(Leaf, {"wait": 1}, id="taken")
        await app.start(Leaf, {"wait": 1}, correlation_key="held")
        top = await drained(app, app.start(parent))
        seen = await top.result(timeout=0)
        assert [(status, result) for status, result, _ in seen] == [
            ("done", 1),
            ("failed", None),
            ("failed", None),
            ("failed", None),
            ("done", 5),
            ("done", 6),
            ("failed", None),
            ("failed", None),
        ]
        reasons = [error for status, _, error in seen if status == "failed"]
        for reason, word in zip(reasons, ("'held'", "'Unknown'", "version 9", "'twin'", "'taken'"), strict=True):
            assert word in reason


async def test_m8_a_spawn_of_which_no_child_can_start_joins_immediately(store: Store) -> None:
    parent = fan(Child("Unknown"), Child("Unknown"), join=1)
    async with parked(store, parent) as (_, top):
        assert [status for status, _, _ in await top.result(timeout=0)] == ["failed", "failed"]


async def test_m8_a_child_takes_the_options_of_start_each_time_it_is_used(store: Store) -> None:
    late = Child(Leaf, {"n": 1}, queue="side", delay=60, step="end", priority=5)
    parent = fan(*[late] * 3)
    async with parked(store, parent, Leaf) as (app, top):
        children = [i for i in await app.list() if i.parent_id == top.id]
        assert [(i.queue, i.step, i.status) for i in children] == [("side", "end", "runnable")] * 3
        await drained(app, app.advance(60))
        assert await top.result(timeout=0) == [["done", "told", None]] * 3


async def test_m8_a_retry_of_the_joined_step_sees_the_children_again(store: Store) -> None:
    seen: list[int] = []

    class Tries(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(Leaf, {"n": 1}), Child(Leaf, {"n": 2})], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Any:
            seen.append(len(ctx.children))
            return Retry() if ctx.attempt == 0 else Done()

    async with harness(store, Tries, Leaf) as app:
        await drained(app, app.start(Tries))
        assert seen == [2, 2]


async def test_m8_a_signal_does_not_wake_a_parent_and_stays_for_later(store: Store) -> None:
    class Both(Machine):
        @step
        async def start(self, ctx: Context) -> Spawn:
            return Spawn([Child(Leaf, {"wait": 1}, correlation_key="leaf")], then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Await:
            assert [signal.name for signal in ctx.all] == ["word"]
            return Await("word", then=self.end)

        @step
        async def end(self, ctx: Context) -> Done:
            return Done([signal.payload for signal in ctx.awaited])

    async with parked(store, Both, Leaf) as (app, both):
        assert (await both.signal("word", 5)).status == "stored"
        assert await app.drain() == {"steps": 0}
        await drained(app, app.signal("leaf", "end"))
        assert await both.result(timeout=0) == [5]


async def test_m8_trees_join_from_the_leaves_up(store: Store) -> None:
    class Tree(Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            depth = ctx.state["depth"]
            if depth == 0:
                return Done(1)
            return Spawn([Child(Tree, {"depth": depth - 1})] * 3, then=self.joined)

        @step
        async def joined(self, ctx: Context) -> Done:
            return Done(sum(child.result for child in ctx.children))

    async with harness(store, Tree) as app, app.worker({"default": 20}):
        tree = await app.start(Tree, {"depth": 3})
        assert await tree.result(timeout=60) == 27
        assert len(await app.list(limit=1000)) == 40


async def test_m8_cancelling_a_parent_cancels_all_its_children() -> None:
    parent = fan(Child(Leaf, {"wait": 1}), Child(Leaf, {"wait": 1}))
    async with Harness(parent, Leaf) as app:
        top = await drained(app, app.start(parent))
        await top.cancel("enough")
        assert {i.status for i in await app.list()} == {"cancelled"}
        assert await app.waits() == []


@pytest.mark.parametrize("join", [0, 3, -1, True, "some", 1.0, None])
def test_m8_a_join_that_is_not_possible_is_refused(join: Any) -> None:
    with pytest.raises(ValueError, match="join="):
        Spawn([Child(Leaf), Child(Leaf)], then="x", join=join)
