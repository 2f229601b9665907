"""M8, X8: ends of children are counted exactly; a cancel reaches the whole tree, also children started during it."""

import pytest

from hark.kernel.requests import Cancel, Deliver, Reclaim, RetryInstance
from hark.kernel.result import TurnResult
from hark.model.errors import Conflict
from tests.support.stage import Duel, Stage, part
from tests.support.turns import capacity, done, new, on, park, spawn, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_m8_two_children_that_end_concurrently_are_counted_exactly(stage: Stage) -> None:
    for end in (done, stop):

        async def prepare(end: object = end) -> Duel:
            first, second = await stage.family("parent", "a", "b")

            async def check(one: TurnResult, two: TurnResult) -> None:
                content = await stage.content()
                assert content.instances["parent"].status == "runnable"
                assert content.kinds("parent") == ["children"]
                assert [w.remaining for w in content.waits_of("parent")] == [0]

            return Duel(part(end(first)), part(end(second)), check)  # type: ignore[operator]

        await stage.explore(prepare, deep=True)


async def test_m8_a_join_of_one_is_answered_once_although_two_children_end_concurrently(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, second, _ = await stage.family("parent", "a", "b", "c", join=1)

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.kinds("parent") == ["children"]
            assert [w.remaining for w in content.waits_of("parent")] == [-1]
            [claim] = await stage.claim()
            assert sorted(child.id for child in claim.children) == ["a", "b", "c"]

        return Duel(part(done(first)), part(done(second)), check)

    await stage.explore(prepare, deep=True)


async def test_m8_two_ended_children_do_not_answer_a_join_of_three(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, second, _ = await stage.family("parent", "a", "b", "c")

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["parent"].status == "awaiting_children"
            assert [w.remaining for w in content.waits_of("parent")] == [1]

        return Duel(part(done(first)), part(stop(second)), check)

    await stage.explore(prepare, deep=True)


async def test_m8_a_child_ends_while_its_sibling_is_quarantined(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, _ = await stage.family("parent", "a", "b")
        await stage.eye.execute("UPDATE instances SET crashes = 2, lease_owner = 'dead' WHERE id = 'b'")

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["parent"].status == "runnable"
            assert content.kinds("parent") == ["children"]

        return Duel(part(done(first)), part(Reclaim(owners=["dead"])), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_child_ends_while_its_parent_is_cancelled(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, _ = await stage.family("parent", "a", "b")
        ending = done(first)

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["parent"].status == "cancelled"
            assert content.instances["b"].status == "cancelled"
            assert content.instances["a"].status == ("cancelled" if ending.fenced else "done")

        return Duel(part(ending), part(Cancel(target="parent")), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_child_that_ends_while_it_is_cancelled_counts_once(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, _ = await stage.family("parent", "a", "b")
        ending, cancel = done(first), Cancel(target="a")

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert ending.fenced != isinstance(cancel.result, Conflict)
            assert [w.remaining for w in content.waits_of("parent")] == [1]

        return Duel(part(ending), part(cancel), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_spawn_between_the_plan_and_the_lock_of_a_cancel_leaves_no_orphan(stage: Stage) -> None:
    async def prepare() -> Duel:
        claim = await stage.executing("parent")
        fan = spawn(claim, [new("a"), new("b")])

        async def check(one: TurnResult, two: TurnResult) -> None:
            rows = (await stage.content()).instances
            assert {row.status for row in rows.values()} == {"cancelled"}
            assert len(rows) == (1 if fan.fenced else 3)
            assert await stage.drain() == []

        return Duel(part(fan), part(Cancel(target="parent")), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_grandchild_started_during_a_cancel_is_cancelled_too(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, second = await stage.family("root", "a", "b")
        fans = [spawn(first, [new("a1"), new("a2")]), spawn(second, [new("b1")])]

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert {row.status for row in (await stage.content()).instances.values()} == {"cancelled"}
            assert await stage.drain() == []

        return Duel(part(*fans), part(Cancel(target="root")), check)

    await stage.explore(prepare, deep=True)


async def test_x8_two_concurrent_cancels_in_one_tree_do_not_deadlock(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, _ = await stage.family("a-root", "m", "z")
        await stage.one.run(spawn(first, [new("b"), new("y")]))
        await stage.claim(room=5)
        above, below = Cancel(target="a-root"), Cancel(target="m")

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert {row.status for row in (await stage.content()).instances.values()} == {"cancelled"}
            assert above.result == "a-root"

        return Duel(part(above), part(below), check)

    await stage.explore(prepare, deep=True)


async def test_s4_the_end_of_a_child_while_its_parent_fails_is_in_the_inbox_of_the_retry(stage: Stage) -> None:
    async def prepare() -> Duel:
        [child] = await stage.family("parent", "a", also=[on("poke")])
        await stage.one.run(Deliver(target="parent", name="poke"))
        [claim] = await stage.claim()

        async def check(one: TurnResult, two: TurnResult) -> None:
            await stage.one.run(RetryInstance(target="parent"))
            content = await stage.audited_content()
            assert content.kinds("parent") == ["poke", "children"]
            assert [w.remaining for w in content.waits_of("parent") if w.kind == "children"] == [0]

        return Duel(part(stop(claim)), part(done(child)), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_child_ends_while_its_parent_is_retried(stage: Stage) -> None:
    async def prepare() -> Duel:
        [child] = await stage.family("parent", "a", also=[on("poke")])
        await stage.one.run(Deliver(target="parent", name="poke"))
        [claim] = await stage.claim()
        await stage.one.run(stop(claim))

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["parent"].status == "runnable"
            assert content.kinds("parent") == ["poke", "children"]

        return Duel(part(RetryInstance(target="parent")), part(done(child)), check)

    await stage.explore(prepare, deep=True)


async def test_m8_a_child_ends_while_its_parent_parks_again_on_the_same_join(stage: Stage) -> None:
    """The parent was woken by a signal and parks again; the join that it keeps is answered meanwhile."""

    async def prepare() -> Duel:
        [child] = await stage.family("parent", "a", also=[on("poke")])
        await stage.one.run(Deliver(target="parent", name="poke"))
        [claim] = await stage.claim()
        [poke] = [wait.id for wait in claim.waits if wait.kind == "signal"]

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["parent"].status == "runnable"
            assert "children" in content.kinds("parent")

        return Duel(
            part(park(claim, on("poke"), disarm=(poke,))), part(done(child)), check, seen=[s.seq for s in claim.inbox]
        )

    await stage.explore(prepare, deep=True)


async def test_x8_a_cancel_from_above_counts_for_a_failed_parent_in_between(stage: Stage) -> None:
    """The children of the failed parent are cancelled with their grandparent; its retry finds that in the inbox."""

    async def prepare() -> Duel:
        [middle] = await stage.family("root", "middle")
        fan = spawn(middle, [new("leaf")])
        fan.decision.move.arm += (on("poke"),)
        await stage.one.run(fan)
        await stage.one.run(Deliver(target="middle", name="poke"))
        [middle] = [claim for claim in await stage.claim(room=2) if claim.id == "middle"]
        await stage.one.run(stop(middle))

        async def check(cancelling: TurnResult, retrying: TurnResult) -> None:
            content = await stage.content()
            if (
                content.instances["middle"].status == "runnable"
            ):  # otherwise the retry came first, and the cancel reached it too
                assert content.kinds("middle") == ["poke", "children"]
            assert content.instances["leaf"].status == "cancelled"

        return Duel(part(Cancel(target="root")), part(RetryInstance(target="middle")), check)

    await stage.explore(prepare, deep=True)


async def test_fault_75_a_retried_child_ends_again_and_does_not_count_twice(stage: Stage) -> None:
    async def prepare() -> Duel:
        first, second, _ = await stage.family("parent", "a", "b", "c")
        await stage.one.run(stop(first))
        await stage.one.run(RetryInstance(target="a"))
        [again] = await stage.claim("again")
        assert again.id == "a"

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert [w.remaining for w in content.waits_of("parent")] == [1]

        return Duel(part(done(again)), part(done(second)), check)

    await stage.explore(prepare, deep=True)


async def test_fault_74_a_cancel_concurrent_with_a_claim_wins(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.start("x", concurrency_key="k")

        async def check(claiming: TurnResult, cancelling: TurnResult) -> None:
            for claim in claiming.claims:
                late = done(claim)
                await stage.two.run(late)
                assert late.fenced
            assert (await stage.content()).instances["x"].status == "cancelled"
            await stage.start("y", concurrency_key="k")
            assert [claim.id for claim in await stage.drain()] == ["y"], "the cancel frees the slot"

        return Duel(part(claim=capacity("ours")), part(Cancel(target="x")), check)

    await stage.explore(prepare, deep=True)
