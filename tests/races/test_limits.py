"""M7, M9: slots and tokens are never exceeded, and every blocked row is promoted in the end."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, Reclaim, Request, Retain
from hark.model.activation import Claim
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, advance, capacity, done, on, park, retry, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")
FREED: dict[str, Callable[[Claim], Request]] = {
    "done": done,
    "stop": stop,
    "retry": lambda claim: retry(claim, delay=MINUTE),
    "await": lambda claim: park(claim, on("never")),
    "next with another key": lambda claim: advance(claim, rekey=True, concurrency_key="other"),
    "next with a limit": lambda claim: advance(claim, rate_limit="rate"),
    "cancel": lambda claim: Cancel(target=claim.id),
    "reclaim": lambda claim: Reclaim(owners=["holder"]),
    "hand back": lambda claim: HandBack(claims=[claim]),
}


@pytest.fixture(params=FREED)
def free(request: pytest.FixtureRequest) -> Callable[[Claim], Request]:
    return FREED[request.param]


async def _run_all(stage: Stage, *wanted: str) -> None:
    """Run everything to its end, executing instances included; the wanted ones must have run."""
    executing = {row.lease_owner for row in (await stage.content()).instances.values() if row.lease_owner}
    turn = await stage.one.run(Reclaim(owners=sorted(executing)), sweep=True, claim=capacity("all", 10))
    ran = {claim.id for claim in turn.claims}
    for _ in range(30):
        if set(wanted) <= ran:
            return
        stage.clock.advance(500_000)
        turn = await stage.one.run(*(done(claim) for claim in turn.claims), sweep=True, claim=capacity("all", 10))
        ran |= {claim.id for claim in turn.claims}
    raise AssertionError(f"never ran: {set(wanted) - ran}")


@race()
async def test_m9_a_row_that_is_blocked_while_the_slot_is_freed_is_promoted(
    stage: Stage, free: Callable[[Claim], Request]
) -> Race:
    holder = await stage.executing("holder", owner="holder", concurrency_key="k")
    await stage.start("x", concurrency_key="k")
    yield Duel(part(free(holder)), part(claim=capacity("claimer", 3)))
    await _run_all(stage, "x")


async def test_m9_a_row_that_was_blocked_before_is_promoted_when_the_slot_is_freed(stage: Stage) -> None:
    async def prepare() -> Race:
        first = await stage.executing("a", concurrency_key="two:k")
        second = await stage.executing("b", concurrency_key="two:k")
        await stage.start("x", "y", concurrency_key="two:k")
        assert await stage.claim(room=3) == []
        assert {row.blocked_on for row in (await stage.audited_content()).instances.values()} == {None, "slot:two:k"}
        yield Duel(part(done(first), claim=capacity("ours")), part(done(second), claim=capacity("theirs")))

    await stage.explore(prepare, deep=True)
    await _run_all(stage, "x", "y")


async def test_m9_a_row_whose_bucket_another_turn_holds_is_left_for_the_next_turn(stage: Stage) -> None:
    await stage.one.run(done(await stage.executing("holder", concurrency_key="k")))
    await stage.start("x", concurrency_key="k")
    async with stage.eye.transaction():
        await stage.eye.execute("SELECT FROM buckets WHERE key = 'k' FOR UPDATE")
        turn = await stage.one.run(claim=capacity("worker"))
    assert (turn.claims, turn.pending.more) == ([], True)
    assert [claim.id for claim in await stage.claim()] == ["x"]


@pytest.mark.parametrize("known", [False, True])
@race()
async def test_m9_two_concurrent_claims_never_exceed_the_slots_of_a_key_with_a_new_bucket_or_an_old_one(
    stage: Stage, known: bool
) -> Race:
    if known:
        await stage.one.run(done(await stage.executing("before", concurrency_key="k")))
    await stage.start("x", "y", "z", concurrency_key="k")
    one, two = yield Duel(part(claim=capacity("ours", 2)), part(claim=capacity("theirs", 2)))
    assert len(one.claims) + len(two.claims) <= 1
    await _run_all(stage, "x", "y", "z")


@race()
async def test_m7_two_concurrent_claims_never_spend_a_token_twice(stage: Stage) -> Race:
    await stage.start("x", "y", "z", rate_limit="rate")
    one, two = yield Duel(part(claim=capacity("ours", 2)), part(claim=capacity("theirs", 2)))
    assert len(one.claims) + len(two.claims) <= 1
    await stage.drain()
    for _ in range(3):
        stage.clock.advance(11_000_000)
        await stage.drain()
        await stage.audited_content()
    rows = (await stage.content()).instances.values()
    assert [row.status for row in rows] == ["executing"] * 3


@race(deep=True)
async def test_m7_a_head_that_is_cancelled_while_another_turn_blocks_a_row_behind_it_holds_up_nothing(
    stage: Stage,
) -> Race:
    """The claim still sees the heavy head and makes the bucket due for it; the cancel waits for the bucket and makes it
    due for the row behind. In the other order the claim finds no head."""
    await stage.executing("first", rate_limit="rate", weight=1)
    await stage.start("heavy", rate_limit="rate", weight=1)
    assert await stage.claim(room=3) == []
    await stage.start("light", rate_limit="rate", weight=0.1)
    _, claiming = yield Duel(part(Cancel(target="heavy")), part(claim=capacity("ours", 2)))
    assert claiming.claims == []
    await stage.drain()
    await stage.audited_content()
    stage.clock.advance(1_100_000)  # a tenth of the time for the heavy one
    await stage.drain()
    assert (await stage.content()).instances["light"].status == "executing"


async def test_m9_two_concurrent_claims_that_insert_buckets_in_different_orders_do_not_deadlock(stage: Stage) -> None:
    """A refused row leads to another round of claims, which may need a bucket that the other turn has just inserted."""

    async def prepare() -> Race:
        await stage.executing("full-1", concurrency_key="f1")
        await stage.executing("full-2", concurrency_key="f2")
        for id, key in (("a", "f1"), ("b", "k1"), ("c", "f2"), ("d", "k2"), ("e", "k2"), ("f", "k1")):
            await stage.start(id, concurrency_key=key)
        yield Duel(part(claim=capacity("ours", 2)), part(claim=capacity("theirs", 2)))

    await stage.explore(prepare, deep=True)
    await _run_all(stage, *"abcdef")


@race(deep=True)
async def test_m9_two_workers_with_different_code_that_insert_buckets_in_different_orders_do_not_deadlock(
    stage: Stage,
) -> Race:
    """Neither reads the rows of the other, so that each comes to the new bucket of the other in its second round."""
    await stage.executing("full-1", concurrency_key="f1")
    await stage.executing("full-2", concurrency_key="f2")
    for version, keys in ((1, ("f1", "k1", "k2")), (2, ("f2", "k2", "k1"))):
        for key in keys:
            await stage.start(f"{key}-{version}", concurrency_key=key, version=version)
    yield Duel(part(claim=capacity("ours", 2, 1)), part(claim=capacity("theirs", 2, 2)))


@race(deep=True)
async def test_m9_two_turns_that_displace_instances_under_keys_do_not_deadlock(stage: Stage) -> Race:
    """Each locks the bucket of the other's key for a row that it refuses, and then gives a slot to more urgent work."""
    running = []
    for version, key in ((1, "k"), (2, "j")):
        await stage.start(f"runs-{key}", concurrency_key=key, version=version)
        running += (await stage.one.run(claim=capacity("worker", 1, version))).claims
    for key in ("k", "j"):
        await stage.start(f"blocked-{key}", concurrency_key=key)
    assert (await stage.one.run(claim=capacity("worker", 2))).claims == []
    for version, key in ((1, "j"), (2, "k")):
        await stage.start(f"refused-{key}", concurrency_key=key, version=version, priority=-1)
        await stage.start(f"urgent-{version}", version=version, priority=-1)
    ours, theirs = (advance(claim) for claim in running)
    yield Duel(part(ours, claim=capacity("ours", 0, 1)), part(theirs, claim=capacity("theirs", 0, 2)))


@race(deep=True)
async def test_m9_the_cancel_of_a_promoted_row_does_not_strand_the_next_blocked_one(stage: Stage) -> Race:
    holder = await stage.executing("holder", concurrency_key="k")
    await stage.start("x", concurrency_key="k")
    await stage.start("y", concurrency_key="k")
    assert await stage.claim(room=3) == []
    yield Duel(part(done(holder)), part(Cancel(target="x")))
    await _run_all(stage, "y")


async def test_fault_32_a_promoted_row_that_no_worker_has_code_for_does_not_keep_the_slot_for_ever(
    stage: Stage,
) -> None:
    """A rolling deploy: the worker of the old version has left; its blocked row is promoted and no worker claims it."""
    holder = await stage.executing("holder", concurrency_key="k")
    await stage.start("old", concurrency_key="k", version=2)
    assert (await stage.one.run(claim=capacity("gone", version=2))).claims == []
    await stage.start("new", concurrency_key="k")
    assert await stage.claim() == []
    await stage.one.run(done(holder))
    assert {
        row.id: row.blocked_on for row in (await stage.audited_content()).instances.values() if row.status == "runnable"
    } == {
        "old": None,
        "new": "slot:k",
    }
    await _run_all(stage, "new")


@race(deep=True)
async def test_m9_a_promotion_that_meets_a_row_locked_by_a_delivery_is_repeated(stage: Stage) -> Race:
    holder = await stage.executing("holder", concurrency_key="k")
    await stage.start("x", concurrency_key="k")
    assert await stage.claim(room=3) == []
    yield Duel(part(done(holder)), part(Deliver(target="x", name="hello")))
    await _run_all(stage, "x")


@pytest.mark.parametrize("blocked", [False, True])
@race()
async def test_m9_retention_does_not_delete_a_bucket_that_is_in_use(stage: Stage, blocked: bool) -> Race:
    holder = await stage.executing("holder", concurrency_key="k")
    if not blocked:
        await stage.one.run(done(holder))
    stage.clock.advance(MINUTE)
    await stage.start("x", "y", concurrency_key="k")
    sweep_away = Retain(before=stage.clock.now, ids=[holder.id])
    yield Duel(part(sweep_away), part(claim=capacity("ours", 2)))
    await _run_all(stage, "x", "y")


@race(deep=True)
async def test_m9_an_instance_that_runs_ahead_keeps_its_slot_while_others_claim(stage: Stage) -> Race:
    holder = await stage.executing("holder", concurrency_key="k")
    await stage.start("x", concurrency_key="k")
    onward: Commit = advance(holder)
    advancing, claiming = yield Duel(part(onward, claim=capacity("ours")), part(claim=capacity("theirs")))
    assert onward.result is True
    assert claiming.claims == []
    holder.run_ahead(onward.decision, advancing.now, None)
    await stage.one.run(done(holder))
    await _run_all(stage, "x")
