"""B4: a kept message has exactly one receiver, whatever arms a wait or sends it at the same time."""

import pytest

from hark.kernel.requests import Cancel, Deliver, Message, Retain, RetryInstance
from hark.model.errors import Duplicate
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, advance, on, park, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _paid(**options: object) -> object:
    return on("paid", "message", key="order-1", **options)


def _sent(payload: str = "1", dedup_key: str | None = None) -> Message:
    return Message(name="paid", key="order-1", payload=payload, ttl=10**12, dedup_key=dedup_key)


async def _kept(stage: Stage) -> int:
    return int(await stage.eye.fetchval("SELECT count(*) FROM messages WHERE receiver IS NULL"))


async def _received(stage: Stage) -> list[str]:
    found = await stage.eye.fetch(
        "SELECT payload FROM inbox WHERE kind = 'message' AND consumed_at IS NULL ORDER BY seq"
    )
    return [payload for (payload,) in found]


@race(deep=True)
async def test_b4_a_message_that_is_sent_while_a_wait_for_it_is_armed_is_received(stage: Stage) -> Race:
    claim = await stage.executing("x")
    message = _sent()
    yield Duel(part(park(claim, _paid(), on("go"))), part(message))
    content = await stage.content()
    assert (await _received(stage), await _kept(stage)) == (["1"], 0)
    assert content.instances["x"].status == "runnable"
    assert message.result in ("x", None)


@race(deep=True)
async def test_b4_of_two_instances_that_arm_a_wait_for_a_kept_message_one_receives_it(stage: Stage) -> Race:
    await stage.one.run(_sent())
    parks = [park(await stage.executing(id), _paid()) for id in "xy"]
    yield Duel(part(parks[0]), part(parks[1]))
    assert (await _received(stage), await _kept(stage)) == (["1"], 0)
    # The wait of the first has its answer: the second one may wait for the next message.
    assert not any(commit.fenced for commit in parks)
    later = _sent("2")
    await stage.one.run(later)
    [waiting] = [row.id for row in (await stage.content()).instances.values() if later.result == row.id]
    assert (await stage.content()).kinds(waiting) == ["message"]


@race(deep=True)
async def test_b4_two_messages_that_are_kept_at_once_are_both_received(stage: Stage) -> Race:
    messages = [_sent("1"), _sent("2")]
    yield Duel(part(messages[0]), part(messages[1]))
    await stage.parked("x", _paid(answers_each=True))
    assert sorted(await _received(stage)) == ["1", "2"]


@race(deep=True)
async def test_b4_of_two_messages_with_one_dedup_key_one_is_kept(stage: Stage) -> Race:
    messages = [_sent("1", "a"), _sent("2", "a")]
    yield Duel(part(messages[0]), part(messages[1]))
    assert [message.result for message in messages] == [None, None]
    assert await _kept(stage) == 1


@race(deep=True)
async def test_b4_a_repeated_message_against_the_turn_that_takes_the_first_is_not_received_twice(stage: Stage) -> Race:
    await stage.one.run(_sent("1", "a"))
    claim = await stage.executing("x")
    again = _sent("2", "a")
    yield Duel(part(park(claim, _paid(), _paid())), part(again))
    assert await _received(stage) == ["1"]
    assert again.result in ("x", None)
    once_more = _sent("3", "a")
    await stage.one.run(once_more)
    assert once_more.result == "x"


@race()
async def test_b4_a_message_against_the_retry_of_its_receiver_is_received(stage: Stage) -> Race:
    await stage.parked("x", _paid(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [failing] = await stage.claim()
    await stage.one.run(stop(failing))
    message = _sent()
    yield Duel(part(RetryInstance(target="x")), part(message))
    assert (await _received(stage), await _kept(stage)) == (["1"], 0)


@race()
async def test_b4_a_message_against_the_end_of_its_receiver_is_received_or_kept(stage: Stage) -> Race:
    await stage.parked("x", _paid())
    message = _sent()
    yield Duel(part(Cancel(target="x")), part(message))
    assert await _kept(stage) == (1 if message.result is None else 0)


@race()
async def test_b4_a_wait_that_its_holder_gives_up_and_another_instance_takes_over_gets_the_message(
    stage: Stage,
) -> Race:
    await stage.parked("x", _paid(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [holder] = await stage.claim()
    await stage.one.run(advance(holder))
    await stage.one.run(_sent())
    taking = park(await stage.executing("y"), _paid())
    message = _sent("2")
    yield Duel(part(taking), part(message))
    assert not isinstance(taking.result, Duplicate)
    assert (await _received(stage), await _kept(stage)) == (["1"], 1)


@race()
async def test_fault_62_the_removal_of_what_is_over_leaves_what_is_taken_at_the_same_time(stage: Stage) -> Race:
    over = _sent("over", "a")
    over.ttl = MINUTE
    await stage.one.run(over)
    stage.clock.advance(3 * MINUTE)
    await stage.one.run(_sent("2", "b"))
    claim = await stage.executing("x")
    yield Duel(part(Retain(before=0)), part(park(claim, _paid())))
    assert (await _received(stage), await _kept(stage)) == (["2"], 0)
