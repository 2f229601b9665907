"""M11, S9: of two concurrent starts with the same name, one gets it and the other an error with its holder."""

import pytest

from hark.kernel.requests import Deliver, RetryInstance, SignalWithStart, StartInstances
from hark.model.errors import Duplicate
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import done, new, on, park, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _joint(id: str, key: str = "order:1", **options: str) -> SignalWithStart:
    return SignalWithStart(item=new(id, correlation_key=key), name="paid", **options)


@race(deep=True)
async def test_m11_of_two_concurrent_starts_with_one_key_one_starts_and_one_is_a_duplicate(stage: Stage) -> Race:
    starts = [StartInstances(items=[new(id, correlation_key="order:1")]) for id in ("a", "b")]
    yield Duel(part(starts[0]), part(starts[1]))
    [winner] = (await stage.content()).instances
    answers = [start.result[0] for start in starts]
    [refused] = [answer for answer in answers if isinstance(answer, Duplicate)]
    assert winner in answers
    assert refused.holder == winner


@race(deep=True)
async def test_m11_concurrent_starts_with_one_id_or_a_key_equal_to_an_id_are_refused(stage: Stage) -> Race:
    by_id, by_key = StartInstances(items=[new("a")]), StartInstances(items=[new("b", correlation_key="a")])
    yield Duel(part(by_id), part(by_key))
    [winner] = (await stage.content()).instances
    refused = by_key.result[0] if winner == "a" else by_id.result[0]
    assert isinstance(refused, Duplicate)
    assert refused.holder == winner


@race(deep=True)
async def test_fault_33_two_batches_with_the_same_new_keys_in_reverse_order_do_not_deadlock(stage: Stage) -> Race:
    keys = [f"key-{n}" for n in range(6)]
    ours = StartInstances(items=[new(f"a-{key}", correlation_key=key) for key in keys])
    theirs = StartInstances(items=[new(f"b-{key}", correlation_key=key) for key in reversed(keys)])
    yield Duel(part(ours), part(theirs))
    rows = (await stage.content()).instances
    assert sorted(row.correlation_key for row in rows.values()) == keys
    refused = [answer for answer in (*ours.result, *theirs.result) if isinstance(answer, Duplicate)]
    assert {answer.holder for answer in refused} == rows.keys()


@race()
async def test_fault_33_turns_of_single_starts_in_reverse_order_do_not_deadlock(stage: Stage) -> Race:
    """As a turn collects them from many callers, with ends and deliveries of the same rows in between."""
    claims = [await stage.executing(id, correlation_key=f"key-{id}") for id in "abc"]
    ours = [
        *(done(claim) for claim in claims),
        *(StartInstances(items=[new(f"n{n}", correlation_key=f"k{n}")]) for n in "12"),
    ]
    theirs = [
        *(StartInstances(items=[new(f"m{n}", correlation_key=f"k{n}")]) for n in "21"),
        *(Deliver(target=f"key-{id}", name="hello") for id in "cba"),
    ]
    yield Duel(part(*ours), part(*theirs))
    rows = (await stage.content()).instances
    assert [rows[id].status for id in "abc"] == ["done"] * 3
    assert sorted(rows.keys() - {"a", "b", "c"}) in (["m1", "m2"], ["n1", "n2"])


@race(deep=True)
async def test_s9_two_concurrent_signal_with_start_of_one_key_start_one_instance_and_deliver_both_signals(
    stage: Stage,
) -> Race:
    joints = [_joint("a"), _joint("b")]
    yield Duel(part(joints[0]), part(joints[1]))
    content = await stage.content()
    [id] = content.instances
    assert [joint.result for joint in joints] == [id, id]
    assert content.kinds(id) == ["paid", "paid"]


@race(deep=True)
async def test_fault_16_two_concurrent_signal_with_start_of_one_dedup_key_deliver_once(stage: Stage) -> Race:
    joints = [_joint("a", dedup_key="evt"), _joint("b", dedup_key="evt")]
    yield Duel(part(joints[0]), part(joints[1]))
    content = await stage.content()
    [id] = content.instances
    assert [joint.result for joint in joints] == [id, id]
    assert content.kinds(id) == ["paid"]


@race(deep=True)
async def test_s9_signal_with_start_concurrent_with_the_end_of_the_holder_reaches_it_or_starts_another(
    stage: Stage,
) -> Race:
    claim = await stage.executing("a", correlation_key="order:1")
    joint = _joint("b")
    yield Duel(part(done(claim)), part(joint))
    content = await stage.content()
    assert joint.result in ("a", "b")
    assert content.kinds(joint.result) == ["paid"]
    assert ("b" in content.instances) == (joint.result == "b")
    assert content.instances["a"].status == "done"


@race(deep=True)
async def test_s9_a_redelivery_concurrent_with_the_end_of_its_holder_starts_nothing(stage: Stage) -> Race:
    await stage.one.run(_joint("a", dedup_key="evt"))
    [claim] = await stage.claim()
    joint = _joint("b", dedup_key="evt")
    yield Duel(part(done(claim)), part(joint))
    content = await stage.content()
    assert content.instances.keys() == {"a"}
    assert joint.result == "a"
    assert len(content.signals) == 1


@race(deep=True)
async def test_fault_75_a_retry_concurrent_with_a_start_of_its_key_leaves_one_holder(stage: Stage) -> Race:
    await stage.one.run(stop(await stage.executing("a", correlation_key="order:1")))
    revive, start = RetryInstance(target="a"), StartInstances(items=[new("b", correlation_key="order:1")])
    yield Duel(part(revive), part(start))
    rows = (await stage.content()).instances
    if isinstance(revive.result, Duplicate):
        assert revive.result.holder == "b"
        assert (rows["a"].status, rows["b"].status) == ("failed", "runnable")
    else:
        assert start.result[0].holder == "a"
        assert rows.keys() == {"a"}
        assert rows["a"].status == "runnable"


@race(deep=True)
async def test_fault_75_a_retry_concurrent_with_a_signal_with_start_of_its_key_leaves_one_holder(stage: Stage) -> Race:
    await stage.one.run(stop(await stage.executing("a", correlation_key="order:1")))
    revive, joint = RetryInstance(target="a"), _joint("b")
    yield Duel(part(revive), part(joint))
    content = await stage.content()
    assert content.kinds(joint.result) == ["paid"]
    assert isinstance(revive.result, Duplicate) == (joint.result == "b")
    assert len(content.instances) == (2 if joint.result == "b" else 1)


@race(deep=True)
async def test_x8_of_two_concurrent_retries_one_is_refused(stage: Stage) -> Race:
    claim = await stage.executing("a", correlation_key="order:1")
    await stage.one.run(stop(claim))
    revives = [RetryInstance(target="a"), RetryInstance(target="order:1")]
    yield Duel(part(revives[0]), part(revives[1]))
    assert sorted(isinstance(revive.result, str) for revive in revives) == [False, True]
    assert (await stage.content()).instances["a"].epoch == claim.epoch + 2


@race(deep=True)
async def test_s1_a_signal_by_key_reaches_the_old_or_the_new_holder(stage: Stage) -> Race:
    """The old holder ends and a new one starts, in two commits, while a signal to their key is being delivered."""
    claim = await stage.executing("a", correlation_key="order:1")
    delivery = Deliver(target="order:1", name="paid")
    await stage.one.run(done(claim))
    yield Duel(part(StartInstances(items=[new("b", correlation_key="order:1")])), part(delivery))
    content = await stage.content()
    if isinstance(delivery.result, Exception):
        assert content.signals == []
    else:
        assert delivery.result.instance_id == "b"
        assert content.kinds("b") == ["paid"]


@race(deep=True)
async def test_s9_signal_with_start_concurrent_with_the_park_of_its_holder_wakes_it(stage: Stage) -> Race:
    claim = await stage.executing("a", correlation_key="order:1")
    joint = _joint("b")
    yield Duel(part(park(claim, on("paid"))), part(joint))
    content = await stage.content()
    assert content.instances.keys() == {"a"}
    assert content.instances["a"].status == "runnable"
    assert content.kinds("a") == ["paid"]
