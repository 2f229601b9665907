"""S6: a timeout is a wake-up. It fires once, and a concurrent signal is not lost."""

import pytest

from hark.kernel.requests import Cancel, Deliver, StartInstances
from tests.support.stage import IN_BOTH_WAYS, Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, capacity, new, on, park, timer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@IN_BOTH_WAYS
@race(deep=True, every=True, more_than=30)
async def test_fault_20_a_signal_concurrent_with_the_timeout_wakes_once_and_is_not_lost(stage: Stage) -> Race:
    await stage.parked("x", on("paid", timeout=MINUTE))
    stage.clock.advance(MINUTE)
    delivery = Deliver(target="x", name="paid")
    yield Duel(part(sweep=True), part(delivery))
    content = await stage.content()
    kinds = content.kinds("x")
    woke = delivery.result.status == "woke"
    # The first of them woke it; the signal is stored in either case, and the timer does not fire after it.
    assert kinds == (["paid"] if woke else ["timer", "paid"])
    assert content.instances["x"].status == "runnable"
    assert (await stage.drain())[0].id == "x"


async def test_s6_a_signal_in_the_turn_of_its_deadline_wins(stage: Stage) -> None:
    for claim in (None, capacity("ours")):
        await stage.clear()
        await stage.parked("x", on("paid", timeout=MINUTE))
        stage.clock.advance(MINUTE)
        turn = await stage.one.run(Deliver(target="x", name="paid"), sweep=True, claim=claim)
        content = await stage.audited_content()
        assert content.kinds("x") == ["paid"]
        assert [w.fired_at for w in content.waits_of("x")] == [None]
        assert [row.name for got in turn.claims for row in got.inbox] == ["paid"] * len(turn.claims)


@race(deep=True)
async def test_fault_13_a_signal_of_another_name_does_not_keep_a_timeout_from_firing(stage: Stage) -> Race:
    await stage.parked("x", on("paid", timeout=MINUTE))
    stage.clock.advance(MINUTE)
    yield Duel(part(sweep=True), part(Deliver(target="x", name="other")))
    await stage.one.run(sweep=True)  # the first sweep may have skipped the locked row, which is still due
    content = await stage.audited_content()
    assert content.instances["x"].status == "runnable"
    assert sorted(content.kinds("x")) == ["other", "timer"]


@race(deep=True)
async def test_fault_61_two_concurrent_sweeps_fire_a_timer_once(stage: Stage) -> Race:
    await stage.parked("x", on("paid", timeout=MINUTE), on("refused", timeout=MINUTE))
    await stage.parked("y", timer(timeout=MINUTE))
    stage.clock.advance(MINUTE)
    yield Duel(part(sweep=True), part(sweep=True))
    content = await stage.content()
    for id in "xy":
        assert content.kinds(id) == ["timer"]
        assert content.instances[id].status == "runnable"


@race(deep=True)
async def test_m10_two_concurrent_sweeps_make_a_delayed_start_claimable_once(stage: Stage) -> Race:
    await stage.start("x", delay=MINUTE)
    stage.clock.advance(MINUTE)
    ours, theirs = capacity("ours"), capacity("theirs")
    first, second = yield Duel(part(sweep=True, claim=ours), part(sweep=True, claim=theirs))
    claims = [*first.claims, *second.claims, *await stage.drain()]
    assert [claim.id for claim in claims] == ["x"]


@race(deep=True)
async def test_x8_a_timeout_concurrent_with_a_cancel_ends_cancelled(stage: Stage) -> Race:
    await stage.parked("x", on("paid", timeout=MINUTE))
    stage.clock.advance(MINUTE)
    yield Duel(part(sweep=True), part(Cancel(target="x")))
    content = await stage.content()
    assert content.instances["x"].status == "cancelled"
    assert await stage.drain() == []


@race(deep=True)
async def test_s6_a_deadline_armed_during_a_sweep_fires(stage: Stage) -> Race:
    claim = await stage.executing("x")
    await stage.parked("y", timer(timeout=1000))
    past = on("paid", deadline=stage.clock.now - 1)
    begin = StartInstances(items=[new("z", at=stage.clock.now - 1)])
    yield Duel(part(park(claim, past), begin), part(sweep=True))
    assert {claim.id for claim in await stage.drain()} == {"x", "y", "z"}
    assert (await stage.audited_content()).kinds("x") == ["timer"]
