"""S3, S4, S5: a signal that arrives before, during or after an outcome is not lost, and is not handed out twice."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver
from hark.model.errors import NoTarget
from tests.support.stage import IN_BOTH_WAYS, Duel, Part, Race, Stage, part, race
from tests.support.turns import MINUTE, advance, capacity, done, handed, on, park, retry, stop, timer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("id", ["x", "01900000-0000-7000-8000-000000000000"], ids=["id given", "id made"])
@IN_BOTH_WAYS
@race(deep=True, every=True, more_than=40)
async def test_fault_1_and_3_a_delivery_at_any_statement_of_a_park_wakes_the_instance(stage: Stage, id: str) -> Race:
    claim = await stage.executing(id)
    delivery = Deliver(target=id, name="paid")
    yield Duel(part(park(claim, on("paid"))), part(delivery))
    content = await stage.content()
    assert content.instances[id].status == "runnable"
    assert content.kinds(id) == ["paid"]
    assert delivery.result.status in ("woke", "stored")


@race()
async def test_s3_a_key_that_has_the_shape_of_an_id_is_found_while_its_holder_parks(stage: Stage) -> Race:
    key = "01900000-0000-7000-8000-000000000001"
    claim = await stage.executing("x", correlation_key=key)
    deliveries = [Deliver(target=key, name="paid", payload=f'"{n}"') for n in "ab"]
    yield Duel(part(park(claim, on("paid"))), part(*deliveries))
    assert {delivery.result.instance_id for delivery in deliveries} == {"x"}
    [claim] = await stage.claim()
    assert [row.payload for row in claim.inbox] == ['"a"', '"b"']


OTHERS: dict[str, Callable[[], Part]] = {
    "a signal": lambda: part(Deliver(target="x", name="paid")),
    "a timeout": lambda: part(sweep=True),
    "a cancel": lambda: part(Cancel(target="x")),
    "another that claims": lambda: part(Deliver(target="x", name="paid"), claim=capacity("theirs")),
    "a sweeper that claims": lambda: part(sweep=True, claim=capacity("theirs")),
}


@IN_BOTH_WAYS
@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@race()
async def test_s3_a_delivery_that_claims_in_its_turn_concurrent_with_all_that_wakes_or_ends_the_instance(
    stage: Stage, other: Callable[[], Part]
) -> Race:
    """An instance that is woken in a turn with a free slot is claimed directly from its park."""
    await stage.parked("x", on("paid", timeout=MINUTE))
    stage.clock.advance(MINUTE)
    delivery = Deliver(target="x", name="paid")
    delivering, meeting = yield Duel(part(delivery, claim=capacity("ours")), other())
    claims = [*delivering.claims, *meeting.claims]
    assert len(claims) <= 1
    row = (await stage.content()).instances["x"]
    if isinstance(delivery.result, NoTarget):
        assert row.status == "cancelled"
    elif row.status == "executing":
        assert row.epoch == claims[0].epoch
        assert {r.kind for r in claims[0].inbox} <= {"signal", "timer"}
    else:
        assert row.status in ("runnable", "cancelled")


@race(deep=True)
async def test_fault_13_a_signal_of_another_name_does_not_wake_a_park(stage: Stage) -> Race:
    claim = await stage.executing("x")
    yield Duel(part(park(claim, on("paid"), on("refunded"))), part(Deliver(target="x", name="other")))
    content = await stage.content()
    assert content.instances["x"].status == "awaiting_signal"
    assert content.kinds("x") == ["other"]


@race(deep=True)
async def test_fault_7_a_step_that_awaits_again_does_not_spin_and_is_woken_by_a_later_signal(stage: Stage) -> Race:
    await stage.parked("x", on("item"))
    await stage.one.run(Deliver(target="x", name="item"))
    [claim] = await stage.claim()
    [first] = handed(claim)
    yield Duel(part(park(claim, on("item"))), part(Deliver(target="x", name="item")), seen=[first])
    content = await stage.content()
    assert content.instances["x"].status == "runnable"
    assert content.kinds("x") == ["item", "item"]


async def test_fault_7_a_step_that_awaits_again_without_a_new_signal_stays_parked(stage: Stage) -> None:
    await stage.parked("x", on("item"))
    await stage.one.run(Deliver(target="x", name="item"))
    [claim] = await stage.claim()
    await stage.one.run(park(claim, on("item")))
    content = await stage.audited_content(seen=handed(claim))
    assert content.instances["x"].status == "awaiting_signal"
    assert content.kinds("x") == ["item"]


async def test_fault_8_a_signal_with_a_lower_seq_that_commits_later_wakes_the_instance(stage: Stage) -> None:
    """The signals handed to a step are a set: with a high-water mark this one would never wake it."""
    await stage.parked("x", on("item"))
    seq = await stage.eye.fetchval("SELECT nextval(pg_get_serial_sequence('inbox', 'seq'))")
    await stage.one.run(Deliver(target="x", name="item"))
    [claim] = await stage.claim()
    assert seq < min(handed(claim))
    await stage.eye.execute(
        "INSERT INTO inbox (seq, instance_id, kind, name, payload, at) OVERRIDING SYSTEM VALUE "
        "VALUES ($1, 'x', 'signal', 'item', 'null', 0)",
        seq,
    )
    await stage.one.run(park(claim, on("item")))
    assert (await stage.audited_content(seen=handed(claim))).instances["x"].status == "runnable"


@race(deep=True)
async def test_fault_9_a_signal_that_arrives_during_a_step_survives_its_outcome(stage: Stage) -> Race:
    await stage.parked("x", on("item"))
    await stage.one.run(Deliver(target="x", name="item"))
    [claim] = await stage.claim()
    advancing, _ = yield Duel(part(advance(claim)), part(Deliver(target="x", name="item")))
    content = await stage.content()
    assert content.kinds("x") == ["item"]
    assert content.inbox("x")[0].seq not in handed(claim)
    [before, late] = [s for s in content.signals if s.instance_id == "x"]
    assert before.consumed_at is not None
    assert late.consumed_at is None
    # It ran ahead with the signal, or its row says that it has signals.
    assert [row.seq for row in advancing.inboxes.get("x", ())] in ([], [late.seq])
    assert content.instances["x"].has_inbox_rows


@race(deep=True)
async def test_fault_10_a_retry_consumes_nothing_even_if_signals_arrive_meanwhile(stage: Stage) -> Race:
    await stage.parked("x", on("item"))
    await stage.one.run(Deliver(target="x", name="item"))
    [claim] = await stage.claim()
    yield Duel(part(retry(claim, delay=5_000_000)), part(Deliver(target="x", name="item")))
    content = await stage.content()
    assert content.kinds("x") == ["item", "item"]
    assert content.instances["x"].due_at is not None, "its delay is not over"


@pytest.mark.parametrize("end", [done, stop])
@race(deep=True)
async def test_fault_12_a_delivery_concurrent_with_the_end_is_stored_before_it_or_refused(
    stage: Stage, end: Callable[..., Commit]
) -> Race:
    claim = await stage.executing("x")
    delivery = Deliver(target="x", name="late")
    yield Duel(part(end(claim)), part(delivery))
    stored = [s for s in (await stage.content()).signals if s.instance_id == "x"]
    if isinstance(delivery.result, NoTarget):
        assert stored == []
    else:
        assert delivery.result.status == "stored"
        assert len(stored) == 1


@race(deep=True)
async def test_fault_14_signals_of_two_senders_are_both_stored_and_one_of_them_wakes(stage: Stage) -> Race:
    await stage.parked("x", on("item"))
    ours = [Deliver(target="x", name="item", payload=f'"{n}"') for n in "ab"]
    theirs = [Deliver(target="x", name="item", payload=f'"{n}"') for n in "cd"]
    yield Duel(part(*ours), part(*theirs))
    assert [d.result.status for d in (*ours, *theirs)].count("woke") == 1
    [claim] = await stage.claim()
    got = "".join(row.payload.strip('"') for row in claim.inbox)
    assert got in ("abcd", "cdab")


@IN_BOTH_WAYS
@race(deep=True)
async def test_fault_16_two_concurrent_signals_with_one_dedup_key_are_one_row_and_both_calls_succeed(
    stage: Stage,
) -> Race:
    await stage.parked("x", on("paid"))
    sends = [Deliver(target="x", name="paid", dedup_key="evt-7") for _ in range(2)]
    yield Duel(part(sends[0]), part(sends[1]))
    assert sorted(send.result.status for send in sends) == ["duplicate", "woke"]
    assert (await stage.content()).kinds("x") == ["paid"]


@race(deep=True)
async def test_fault_18_a_redelivery_concurrent_with_the_consumption_is_a_duplicate(stage: Stage) -> Race:
    await stage.parked("x", on("paid"))
    await stage.one.run(Deliver(target="x", name="paid", dedup_key="evt-7"))
    [claim] = await stage.claim()
    again = Deliver(target="x", name="paid", dedup_key="evt-7")
    yield Duel(part(park(claim, timer(timeout=1000), effects=[])), part(again), seen=handed(claim))
    assert again.result.status == "duplicate"
    assert len((await stage.content()).signals) == 1
