"""Messages and fresh waits against concurrent turns: a message has one receiver, a broadcast is in or out."""

import pytest

from hark.kernel.requests import Cancel, Deliver, Message, Publish, RetryInstance
from hark.model.errors import Duplicate, NoTarget
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import advance, on, park, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _paid(**options: object) -> object:
    return on("paid", "message", key="order-1", **options)


def _news(**options: object) -> object:
    return on("news", "broadcast", fresh=True, **options)


@race(deep=True)
async def test_of_two_instances_that_wait_for_a_message_at_once_one_is_refused(stage: Stage) -> Race:
    x, y = await stage.executing("x"), await stage.executing("y")
    parks = park(x, _paid()), park(y, _paid())
    yield Duel(part(parks[0]), part(parks[1]))
    refused = [commit for commit in parks if commit.fenced]
    assert [type(commit.result) for commit in refused] == [Duplicate]
    message = Message(name="paid", key="order-1")
    await stage.one.run(message)
    assert message.result == ({"x", "y"} - {refused[0].claim.id}).pop() == refused[0].result.holder


@race(deep=True)
async def test_a_wait_for_a_message_that_its_holder_gives_up_is_taken_or_refused(stage: Stage) -> Race:
    await stage.parked("x", _paid(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [holder] = await stage.claim()
    taking = park(await stage.executing("y"), _paid())
    yield Duel(part(advance(holder)), part(taking))
    message = Message(name="paid", key="order-1")
    await stage.one.run(message)
    if taking.fenced:
        assert isinstance(taking.result, Duplicate)
        assert isinstance(message.result, NoTarget)
    else:
        assert message.result == "y"


@race(deep=True)
async def test_a_retry_and_another_instance_do_not_both_wait_for_a_message(stage: Stage) -> Race:
    await stage.parked("x", _paid(), on("poke"))
    await stage.one.run(Deliver(target="x", name="poke"))
    [failing] = await stage.claim()
    await stage.one.run(stop(failing))
    retried, taking = RetryInstance(target="x"), park(await stage.executing("y"), _paid())
    yield Duel(part(retried), part(taking))
    content = await stage.content()
    holders = [wait.instance_id for wait in content.waits if wait.kind == "message" and wait.closed_at is None]
    assert holders == (["x"] if taking.fenced else ["y"])
    assert (retried.result == "x") is taking.fenced


@race(deep=True)
async def test_two_messages_to_two_places_of_an_instance_are_both_received(stage: Stage) -> Race:
    await stage.parked("x", _paid(), _paid())
    messages = [Message(name="paid", key="order-1") for _ in range(2)]
    yield Duel(part(messages[0]), part(messages[1]))
    assert [message.result for message in messages] == ["x", "x"]
    inbox = (await stage.content()).inbox("x")
    assert len({row.wait_id for row in inbox}) == len(inbox) == 2


@race(deep=True)
async def test_a_message_against_a_cancel_is_received_or_has_no_receiver(stage: Stage) -> Race:
    await stage.parked("x", _paid(answers_each=True))
    message = Message(name="paid", key="order-1")
    yield Duel(part(message), part(Cancel(target="x")))
    assert message.result == "x" or isinstance(message.result, NoTarget)


@race(deep=True)
async def test_fault_60_a_fresh_wait_that_is_armed_during_a_broadcast_is_in_or_out_as_the_count_says(
    stage: Stage,
) -> Race:
    claim = await stage.executing("x")
    publish = Publish(name="news")
    yield Duel(part(park(claim, _news())), part(publish))
    content = await stage.content()
    assert publish.result == len(content.inbox("x"))
    assert content.instances["x"].status == ("runnable" if content.inbox("x") else "awaiting_signal")


@race(deep=True)
async def test_a_fresh_wait_receives_one_of_two_concurrent_broadcasts_and_one_that_stays_both(stage: Stage) -> Race:
    await stage.parked("x", _news())
    await stage.parked("y", _news(answers_each=True))
    sends = [Publish(name="news") for _ in range(2)]
    yield Duel(part(sends[0]), part(sends[1]))
    content = await stage.content()
    assert (len(content.inbox("x")), len(content.inbox("y"))) == (1, 2)
    assert sum(send.result for send in sends) == 3
