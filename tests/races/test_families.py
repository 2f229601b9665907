"""M8, X8: ends of children are counted exactly; a cancel reaches the whole tree, also children started during it."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, Reclaim, RetryInstance
from hark.model.errors import Conflict
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import capacity, done, new, on, park, spawn, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("end", [done, stop])
@race(deep=True)
async def test_m8_two_children_that_end_concurrently_are_counted_exactly(
    stage: Stage, end: Callable[..., Commit]
) -> Race:
    first, second = await stage.family("parent", "a", "b")
    yield Duel(part(end(first)), part(end(second)))
    content = await stage.content()
    assert content.instances["parent"].status == "runnable"
    assert content.kinds("parent") == ["children"]
    assert [w.remaining for w in content.waits_of("parent")] == [0]


@race(deep=True)
async def test_m8_a_join_of_one_is_answered_once_although_two_children_end_concurrently(stage: Stage) -> Race:
    first, second, _ = await stage.family("parent", "a", "b", "c", join=1)
    yield Duel(part(done(first)), part(done(second)))
    content = await stage.content()
    assert content.kinds("parent") == ["children"]
    assert [w.remaining for w in content.waits_of("parent")] == [-1]
    [claim] = await stage.claim()
    assert sorted(child.id for child in claim.children) == ["a", "b", "c"]


@race(deep=True)
async def test_m8_two_ended_children_do_not_answer_a_join_of_three(stage: Stage) -> Race:
    first, second, _ = await stage.family("parent", "a", "b", "c")
    yield Duel(part(done(first)), part(stop(second)))
    content = await stage.content()
    assert content.instances["parent"].status == "awaiting_children"
    assert [w.remaining for w in content.waits_of("parent")] == [1]


@race(deep=True)
async def test_m8_a_child_ends_while_its_sibling_is_quarantined(stage: Stage) -> Race:
    first, _ = await stage.family("parent", "a", "b")
    await stage.eye.execute("UPDATE instances SET crashes = 2, lease_owner = 'dead' WHERE id = 'b'")
    yield Duel(part(done(first)), part(Reclaim(owners=["dead"])))
    content = await stage.content()
    assert content.instances["parent"].status == "runnable"
    assert content.kinds("parent") == ["children"]


@race(deep=True)
async def test_x8_a_child_ends_while_its_parent_is_cancelled(stage: Stage) -> Race:
    first, _ = await stage.family("parent", "a", "b")
    ending = done(first)
    yield Duel(part(ending), part(Cancel(target="parent")))
    content = await stage.content()
    assert content.instances["parent"].status == "cancelled"
    assert content.instances["b"].status == "cancelled"
    assert content.instances["a"].status == ("cancelled" if ending.fenced else "done")


@race(deep=True)
async def test_x8_a_child_that_ends_while_it_is_cancelled_counts_once(stage: Stage) -> Race:
    first, _ = await stage.family("parent", "a", "b")
    ending, cancel = done(first), Cancel(target="a")
    yield Duel(part(ending), part(cancel))
    content = await stage.content()
    assert ending.fenced != isinstance(cancel.result, Conflict)
    assert [w.remaining for w in content.waits_of("parent")] == [1]


@race(deep=True)
async def test_x8_a_spawn_between_the_plan_and_the_lock_of_a_cancel_leaves_no_orphan(stage: Stage) -> Race:
    claim = await stage.executing("parent")
    fan = spawn(claim, [new("a"), new("b")])
    yield Duel(part(fan), part(Cancel(target="parent")))
    rows = (await stage.content()).instances
    assert {row.status for row in rows.values()} == {"cancelled"}
    assert len(rows) == (1 if fan.fenced else 3)
    assert await stage.drain() == []


@race(deep=True)
async def test_x8_a_grandchild_started_during_a_cancel_is_cancelled_too(stage: Stage) -> Race:
    first, second = await stage.family("root", "a", "b")
    fans = [spawn(first, [new("a1"), new("a2")]), spawn(second, [new("b1")])]
    yield Duel(part(*fans), part(Cancel(target="root")))
    assert {row.status for row in (await stage.content()).instances.values()} == {"cancelled"}
    assert await stage.drain() == []


@race(deep=True)
async def test_x8_two_concurrent_cancels_in_one_tree_do_not_deadlock(stage: Stage) -> Race:
    first, _ = await stage.family("a-root", "m", "z")
    await stage.one.run(spawn(first, [new("b"), new("y")]))
    await stage.claim(room=5)
    above, below = Cancel(target="a-root"), Cancel(target="m")
    yield Duel(part(above), part(below))
    assert {row.status for row in (await stage.content()).instances.values()} == {"cancelled"}
    assert above.result == "a-root"


@race(deep=True)
async def test_s4_the_end_of_a_child_while_its_parent_fails_is_in_the_inbox_of_the_retry(stage: Stage) -> Race:
    [child] = await stage.family("parent", "a", also=[on("poke")])
    await stage.one.run(Deliver(target="parent", name="poke"))
    [claim] = await stage.claim()
    yield Duel(part(stop(claim)), part(done(child)))
    await stage.one.run(RetryInstance(target="parent"))
    content = await stage.audited_content()
    assert content.kinds("parent") == ["poke", "children"]
    assert [w.remaining for w in content.waits_of("parent") if w.kind == "children"] == [0]


@race(deep=True)
async def test_x8_a_child_ends_while_its_parent_is_retried(stage: Stage) -> Race:
    [child] = await stage.family("parent", "a", also=[on("poke")])
    await stage.one.run(Deliver(target="parent", name="poke"))
    [claim] = await stage.claim()
    await stage.one.run(stop(claim))
    yield Duel(part(RetryInstance(target="parent")), part(done(child)))
    content = await stage.content()
    assert content.instances["parent"].status == "runnable"
    assert content.kinds("parent") == ["poke", "children"]


@race(deep=True)
async def test_m8_a_child_ends_while_its_parent_parks_again_on_the_same_join(stage: Stage) -> Race:
    """The parent was woken by a signal and parks again; the join that it keeps is answered meanwhile."""
    [child] = await stage.family("parent", "a", also=[on("poke")])
    await stage.one.run(Deliver(target="parent", name="poke"))
    [claim] = await stage.claim()
    [poke] = [wait.id for wait in claim.waits if wait.kind == "signal"]
    yield Duel(part(park(claim, on("poke"), disarm=(poke,))), part(done(child)), seen=[s.seq for s in claim.inbox])
    content = await stage.content()
    assert content.instances["parent"].status == "runnable"
    assert "children" in content.kinds("parent")


@race(deep=True)
async def test_x8_a_cancel_from_above_counts_for_a_failed_parent_in_between(stage: Stage) -> Race:
    """The children of the failed parent are cancelled with their grandparent; its retry finds that in the inbox."""
    [middle] = await stage.family("root", "middle")
    fan = spawn(middle, [new("leaf")])
    fan.decision.move.arm += (on("poke"),)
    await stage.one.run(fan)
    await stage.one.run(Deliver(target="middle", name="poke"))
    [middle] = [claim for claim in await stage.claim(room=2) if claim.id == "middle"]
    await stage.one.run(stop(middle))
    yield Duel(part(Cancel(target="root")), part(RetryInstance(target="middle")))
    content = await stage.content()
    if (
        content.instances["middle"].status == "runnable"
    ):  # otherwise the retry came first, and the cancel reached it too
        assert content.kinds("middle") == ["poke", "children"]
    assert content.instances["leaf"].status == "cancelled"


@race(deep=True)
async def test_fault_75_a_retried_child_ends_again_and_does_not_count_twice(stage: Stage) -> Race:
    first, second, _ = await stage.family("parent", "a", "b", "c")
    await stage.one.run(stop(first))
    await stage.one.run(RetryInstance(target="a"))
    [again] = await stage.claim("again")
    assert again.id == "a"
    yield Duel(part(done(again)), part(done(second)))
    content = await stage.content()
    assert [w.remaining for w in content.waits_of("parent")] == [1]


@race(deep=True)
async def test_fault_74_a_cancel_concurrent_with_a_claim_wins(stage: Stage) -> Race:
    await stage.start("x", concurrency_key="k")
    claiming, _ = yield Duel(part(claim=capacity("ours")), part(Cancel(target="x")))
    for claim in claiming.claims:
        late = done(claim)
        await stage.two.run(late)
        assert late.fenced
    assert (await stage.content()).instances["x"].status == "cancelled"
    await stage.start("y", concurrency_key="k")
    assert [claim.id for claim in await stage.drain()] == ["y"], "the cancel frees the slot"
