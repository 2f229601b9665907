"""Call turns beside other turns: they lock in the same order, and read only what the lock protects.

A call cannot be stopped in its middle, but it waits for locks there. So the other turn stops at each of its statements,
and the call runs until it waits or ends. Tests of other files run in both ways too: see `IN_BOTH_WAYS`.
"""

import pytest

from hark.kernel.requests import Cancel, Deliver, Reclaim, Retain, SettleAwakeable, StartInstances
from hark.model.decisions import NewAwakeable, Settle
from hark.model.errors import AlreadySettled, NoTarget
from hark.model.names import awakeable_id
from hark.views import instance_views
from tests.support.inspect import until
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, advance, asked, capacity, done, new, on, park

pytestmark = pytest.mark.asyncio(loop_scope="module")
IDS = ("a", "b", "c")


@pytest.fixture
def call_turns() -> bool:
    return True


def _signals(ids: tuple[str, ...]) -> list[Deliver]:
    return [Deliver(target=id, name="go") for id in ids]


async def _all_parked(stage: Stage) -> None:
    for id in IDS:
        await stage.parked(id, on("go"))


@pytest.mark.parametrize("other", ["call", "full"])
@race(deep=True)
async def test_turns_that_lock_several_rows_in_opposite_orders_do_not_deadlock(stage: Stage, other: str) -> Race:
    await _all_parked(stage)
    ours, theirs = _signals(IDS), _signals(IDS[::-1])
    # What is not a signal or an answer makes it a full turn.
    more = [] if other == "call" else [StartInstances(items=[new("d")])]
    yield Duel(part(*ours), part(*theirs, *more))
    for mine, yours in zip(ours, reversed(theirs), strict=True):
        assert {mine.result.status, yours.result.status} == {"woke", "stored"}
    assert [(await stage.content()).kinds(id) for id in IDS] == [["go", "go"]] * 3


@race(deep=True)
async def test_turns_that_deliver_and_claim_in_opposite_orders_claim_each_row_once(stage: Stage) -> Race:
    await _all_parked(stage)
    ours, theirs = _signals(IDS), _signals(IDS[::-1])
    one, two = yield Duel(part(*ours, claim=capacity("ours", 3)), part(*theirs, claim=capacity("theirs", 3)))
    claims = [*one.claims, *two.claims]
    assert sorted(claim.id for claim in claims) == list(IDS)
    rows = (await stage.content()).instances
    assert all(rows[claim.id].epoch == claim.epoch for claim in claims)


async def test_a_call_locks_its_rows_in_the_order_of_their_ids(stage: Stage) -> None:
    await _all_parked(stage)
    async with stage.eye.transaction():
        await stage.eye.execute("SELECT FROM instances WHERE id = 'b' FOR UPDATE")
        call = stage.one.act(part(*_signals(IDS[::-1])))
        assert await call.run() == "blocked"
        free = await stage.eye.fetch("SELECT id FROM instances ORDER BY id FOR UPDATE SKIP LOCKED")
        assert [id for (id,) in free] == ["b", "c"]
    await call.finish()


async def test_a_claim_in_one_call_does_not_wait_for_a_row_that_another_turn_holds(stage: Stage) -> None:
    await stage.start("a", "b")
    async with stage.eye.transaction():
        await stage.eye.execute("SELECT FROM instances WHERE id = 'a' FOR UPDATE")
        call = stage.one.act(part(claim=capacity("ours", 2)))
        assert await call.run() == "done"
        assert [claim.id for claim in (await call.finish()).claims] == ["b"]


async def test_a_call_that_waits_for_a_lock_then_reads_what_the_other_turn_has_changed(stage: Stage) -> None:
    """It waits in the middle: behind a park, it finds the wait; behind an end, it finds the end."""
    for outcome in (lambda claim: park(claim, on("go")), done):
        await stage.clear()
        claim = await stage.executing("x")
        other = stage.one.act(part(outcome(claim)))
        await other.before("commit")
        delivery = Deliver(target="x", name="go")
        call = stage.two.act(part(delivery))
        assert await call.run() == "blocked"
        assert call.sent == ["begin", "call_turn"]
        await other.finish()
        await call.finish()
        content = await stage.audited_content()
        if isinstance(delivery.result, NoTarget):
            assert content.instances["x"].status == "done"
        else:
            assert (delivery.result.status, content.instances["x"].status) == ("woke", "runnable")
            assert call.sent == ["begin", "call_turn", "commit"]


@race(deep=True)
async def test_a_signal_by_key_concurrent_with_the_end_of_the_holder_comes_first_or_is_refused(stage: Stage) -> Race:
    await stage.parked("x", on("go"), correlation_key="order")
    delivery = Deliver(target="order", name="go")
    yield Duel(part(Cancel(target="x")), part(delivery, claim=capacity("ours")))
    content = await stage.content()
    assert content.instances["x"].status == "cancelled"
    assert len(content.signals) == (0 if isinstance(delivery.result, NoTarget) else 1)


@race(deep=True, every=True)
async def test_an_answer_that_is_validated_between_two_calls_settles_once(stage: Stage) -> Race:
    """The first call locks the instance and returns the schema; the second one settles."""
    id = awakeable_id("x", 0)
    question = NewAwakeable(id, 0, schema='{"type": "integer"}')
    await stage.one.run(park(await stage.executing("x"), on(id, "awakeable"), awakeables=(question,)))
    answers = [SettleAwakeable(settle=Settle(id, "RESOLVED", payload=n)) for n in "12"]
    yield Duel(part(answers[0]), part(answers[1], claim=capacity("ours")))
    [refused] = [answer.result for answer in answers if isinstance(answer.result, AlreadySettled)]
    [settled] = [answer.result for answer in answers if answer.result is not refused]
    content = await stage.content()
    assert (content.awakeables[id].status, content.kinds("x")) == ("RESOLVED", ["awakeable"])
    assert await stage.eye.fetchval("SELECT payload FROM awakeables") == settled.payload


async def test_fault_43_an_answer_that_begins_in_time_meets_the_timeout(stage: Stage) -> None:
    id = awakeable_id("x", 0)
    for stop, status in (("call_turn", "TIMEOUT"), ("commit", "RESOLVED")):
        await stage.clear()
        question, wait = asked(id, timeout=MINUTE)
        await stage.one.run(park(await stage.executing("x"), wait, awakeables=(question,)))
        answer = SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1"))
        call = stage.one.act(part(answer))
        await call.before(stop)
        stage.clock.advance(MINUTE)
        await stage.two.run(sweep=True)
        await call.finish()
        await stage.two.run(sweep=True)
        content = await stage.audited_content()
        assert (content.awakeables[id].status, content.kinds("x")) == (status, ["awakeable"])
        assert isinstance(answer.result, AlreadySettled) == (status == "TIMEOUT")


@race(deep=True)
async def test_x2_a_claim_fences_the_outcome_of_the_worker_that_had_the_row_before(stage: Stage) -> Race:
    late = done(await stage.executing("x", owner="dead"))
    await stage.one.run(Reclaim(owners=["dead"]))
    _, claiming = yield Duel(part(late), part(claim=capacity("ours")))
    assert late.fenced
    [claim] = claiming.claims or await stage.claim()
    row = (await stage.content()).instances["x"]
    assert (row.status, row.epoch) == ("executing", claim.epoch)


@race(deep=True)
async def test_m5_a_claim_concurrent_with_a_reclaim_gets_the_row_after_it_or_not_at_all(stage: Stage) -> Race:
    await stage.executing("x", owner="dead")
    await stage.start("y")
    _, claiming = yield Duel(part(Reclaim(owners=["dead"])), part(claim=capacity("ours", 2)))
    claims = [*claiming.claims, *await stage.drain()]
    assert sorted(claim.id for claim in claims) == ["x", "y"]
    assert (await stage.content()).instances["x"].crashes == 1


@race(deep=True)
async def test_x8_a_cancel_concurrent_with_a_claim_wins(stage: Stage) -> Race:
    await stage.start("x")
    claiming, _ = yield Duel(part(claim=capacity("ours")), part(Cancel(target="x")))
    for claim in claiming.claims:
        late = done(claim)
        await stage.two.run(late)
        assert late.fenced
    assert (await stage.content()).instances["x"].status == "cancelled"


@race(deep=True)
async def test_x7_a_signal_concurrent_with_the_deletion_of_old_signals_is_kept(stage: Stage) -> Race:
    await stage.parked("x", on("go"))
    await stage.one.run(Deliver(target="x", name="go", dedup_key="old"))
    [claim] = await stage.claim()
    await stage.one.run(advance(claim))
    claim.run_ahead(advance(claim).decision, stage.clock.now, [])
    await stage.one.run(park(claim, on("go")))
    stage.clock.advance(10 * MINUTE)
    delivery = Deliver(target="x", name="go", dedup_key="new")
    yield Duel(part(Retain(before=stage.clock.now - MINUTE)), part(delivery))
    content = await stage.content()
    assert [s.dedup_key for s in content.inbox("x")] == ["new"]
    assert {s.dedup_key for s in content.signals} == {"old", "new"}


async def test_fault_71_a_reader_does_not_skip_the_events_of_a_call_that_commits_later(stage: Stage) -> None:
    """A younger turn commits while the call waits for a lock, and while it has not committed yet."""
    await stage.parked("x", on("go"))
    cursor = (await instance_views.events_after(stage.two.store, (0, 0), 100))[-1].cursor
    holder = stage.eye.transaction()
    await holder.start()
    await stage.eye.execute("SELECT FROM instances WHERE id = 'x' FOR UPDATE")
    call = stage.one.act(part(Deliver(target="x", name="go")))
    assert await call.up_to("commit") == "blocked"
    await stage.two.run(StartInstances(items=[new("quick")]))
    assert await instance_views.events_after(stage.two.store, cursor, 100) == []
    await holder.rollback()
    await call.before("commit")
    await stage.two.run(StartInstances(items=[new("quicker")]))
    assert await instance_views.events_after(stage.two.store, cursor, 100) == []
    await call.finish()

    async def has_read_all() -> bool:
        found = await instance_views.events_after(stage.two.store, cursor, 100)
        return [event.instance_id for event in found] == ["x", "quick", "quicker"]

    await until(has_read_all, "all events to be read, in the order of their transactions")
