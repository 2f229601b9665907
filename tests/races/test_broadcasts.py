"""B1: an instance that subscribes during a broadcast is consistently in or out, and receives it at most once."""

import pytest

from hark.kernel.requests import Cancel, Deliver, Publish
from hark.model.decisions import SendBroadcast
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import advance, capacity, done, on, park

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _news(name: str = "news") -> object:
    return on(name, "broadcast")


@race(deep=True)
async def test_fault_60_an_instance_that_subscribes_during_a_broadcast_is_in_or_out_as_the_count_says(
    stage: Stage,
) -> Race:
    claim = await stage.executing("x")
    await stage.parked("y", _news())
    publish = Publish(name="news")
    yield Duel(part(park(claim, _news())), part(publish))
    content = await stage.content()
    assert content.kinds("y") == ["broadcast"]
    assert publish.result == 1 + len(content.inbox("x"))
    assert content.instances["x"].status == ("runnable" if content.inbox("x") else "awaiting_signal")


@race(deep=True)
async def test_fault_60_an_instance_that_subscribes_again_is_always_in(stage: Stage) -> Race:
    """A wait exists until the commit of the outcome that replaces it: the instance subscribes at every moment."""
    await stage.parked("x", _news(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [claim] = await stage.claim()
    publish = Publish(name="news")
    yield Duel(part(park(claim, _news(), on("poke"))), part(publish), seen=[s.seq for s in claim.inbox])
    content = await stage.content()
    assert publish.result == 1
    assert content.instances["x"].status == "runnable"
    assert content.kinds("x") == ["poke", "broadcast"]


@race(deep=True)
async def test_fault_60_an_instance_that_advances_during_a_broadcast_receives_it_if_it_was_counted(
    stage: Stage,
) -> Race:
    await stage.parked("x", _news(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [claim] = await stage.claim()
    publish = Publish(name="news")
    yield Duel(part(advance(claim)), part(publish))
    assert (await stage.content()).kinds("x") == ["broadcast"] * publish.result


@race(deep=True)
async def test_fault_57_a_broadcast_concurrent_with_the_end_of_a_subscriber_reaches_the_others(stage: Stage) -> Race:
    for id in "abc":
        await stage.parked(id, _news())
    publish = Publish(name="news")
    yield Duel(part(Cancel(target="b")), part(publish))
    content = await stage.content()
    assert [content.kinds(id) for id in "ac"] == [["broadcast"]] * 2
    assert publish.result == 2 + len(content.inbox("b"))


@race(deep=True)
async def test_b1_two_concurrent_broadcasts_both_reach_every_subscriber(stage: Stage) -> Race:
    for id in "abc":
        await stage.parked(id, _news(), _news("alarm"))
    first, second = Publish(name="news"), Publish(name="alarm")
    yield Duel(part(first), part(second))
    assert (first.result, second.result) == (3, 3)
    content = await stage.content()
    assert [len(content.inbox(id)) for id in "abc"] == [2, 2, 2]


@race(deep=True)
async def test_fault_19_a_broadcast_sent_twice_with_one_dedup_key_is_delivered_once_and_both_calls_return_its_count(
    stage: Stage,
) -> Race:
    for id in "ab":
        await stage.parked(id, _news())
    sends = [Publish(name="news", dedup_key="evt") for _ in range(2)]
    yield Duel(part(sends[0]), part(sends[1]))
    assert [send.result for send in sends] == [2, 2]
    content = await stage.content()
    assert [content.kinds(id) for id in "ab"] == [["broadcast"]] * 2


@race(deep=True)
async def test_fault_54_instances_that_broadcast_to_each_other_do_not_deadlock(stage: Stage) -> Race:
    claims = {}
    for id in "ab":
        await stage.parked(id, _news(), on("poke"))
    await stage.one.run(*(Deliver(target=id, name="poke") for id in "ab"))
    claims = {claim.id: claim for claim in await stage.claim(room=2)}
    throws = [advance(claims[id], SendBroadcast("news", "null")) for id in "ba"]
    yield Duel(part(throws[0]), part(throws[1]))
    content = await stage.content()
    # When the second commits, the first has advanced to a step that waits for nothing.
    assert sorted(len(content.inbox(id)) for id in "ab") == [1, 2]


async def test_b1_an_instance_that_runs_ahead_in_the_turn_of_a_broadcast_has_no_waits_any_more(stage: Stage) -> None:
    """The sender commits in the same turn as a subscriber that advances and is claimed again immediately."""
    await stage.parked("x", _news(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [claim] = await stage.claim()
    thrower = await stage.executing("y")
    turn = await stage.one.run(
        advance(claim, rekey=True, concurrency_key="k"),
        done(thrower, SendBroadcast("news", "null")),
        claim=capacity("ours", 3),
    )
    [again] = turn.claims
    assert (again.id, again.waits) == ("x", [])
    assert [row.kind for row in again.inbox] == ["broadcast"], "it subscribed until its outcome was committed"
