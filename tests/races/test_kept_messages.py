"""B4: a kept message has exactly one receiver, whatever arms a wait or sends it at the same time."""

import pytest

from hark.kernel.requests import Cancel, Deliver, Message, Retain, RetryInstance
from hark.kernel.result import TurnResult
from hark.model.errors import Duplicate
from tests.support.stage import Duel, Stage, part
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


async def test_b4_a_message_that_is_sent_while_a_wait_for_it_is_armed_is_received(stage: Stage) -> None:
    async def prepare() -> Duel:
        claim = await stage.executing("x")
        message = _sent()

        async def check(arming: TurnResult, sending: TurnResult) -> None:
            content = await stage.content()
            assert (await _received(stage), await _kept(stage)) == (["1"], 0)
            assert content.instances["x"].status == "runnable"
            assert message.result in ("x", None)

        return Duel(part(park(claim, _paid(), on("go"))), part(message), check)

    await stage.explore(prepare, deep=True)


async def test_b4_of_two_instances_that_arm_a_wait_for_a_kept_message_one_receives_it(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.one.run(_sent())
        parks = [park(await stage.executing(id), _paid()) for id in "xy"]

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert (await _received(stage), await _kept(stage)) == (["1"], 0)
            # The wait of the first has its answer: the second one may wait for the next message.
            assert not any(commit.fenced for commit in parks)
            later = _sent("2")
            await stage.one.run(later)
            [waiting] = [row.id for row in (await stage.content()).instances.values() if later.result == row.id]
            assert (await stage.content()).kinds(waiting) == ["message"]

        return Duel(part(parks[0]), part(parks[1]), check)

    await stage.explore(prepare, deep=True)


async def test_b4_two_messages_that_are_kept_at_once_are_both_received(stage: Stage) -> None:
    async def prepare() -> Duel:
        messages = [_sent("1"), _sent("2")]

        async def check(one: TurnResult, two: TurnResult) -> None:
            await stage.parked("x", _paid(answers_each=True))
            assert sorted(await _received(stage)) == ["1", "2"]

        return Duel(part(messages[0]), part(messages[1]), check)

    await stage.explore(prepare, deep=True)


async def test_b4_of_two_messages_with_one_dedup_key_one_is_kept(stage: Stage) -> None:
    async def prepare() -> Duel:
        messages = [_sent("1", "a"), _sent("2", "a")]

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert [message.result for message in messages] == [None, None]
            assert await _kept(stage) == 1

        return Duel(part(messages[0]), part(messages[1]), check)

    await stage.explore(prepare, deep=True)


async def test_b4_a_repeated_message_against_the_turn_that_takes_the_first_is_not_received_twice(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.one.run(_sent("1", "a"))
        claim = await stage.executing("x")
        again = _sent("2", "a")

        async def check(arming: TurnResult, sending: TurnResult) -> None:
            assert await _received(stage) == ["1"]
            assert again.result in ("x", None)
            once_more = _sent("3", "a")
            await stage.one.run(once_more)
            assert once_more.result == "x"

        return Duel(part(park(claim, _paid(), _paid())), part(again), check)

    await stage.explore(prepare, deep=True)


async def test_b4_a_message_against_the_retry_of_its_receiver_is_received(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.parked("x", _paid(), on("poke"))
        await stage.one.run(Deliver(target="x", name="poke"))
        [failing] = await stage.claim()
        await stage.one.run(stop(failing))
        message = _sent()

        async def check(retrying: TurnResult, sending: TurnResult) -> None:
            assert (await _received(stage), await _kept(stage)) == (["1"], 0)

        return Duel(part(RetryInstance(target="x")), part(message), check)

    await stage.explore(prepare)


async def test_b4_a_message_against_the_end_of_its_receiver_is_received_or_kept(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.parked("x", _paid())
        message = _sent()

        async def check(cancelling: TurnResult, sending: TurnResult) -> None:
            assert await _kept(stage) == (1 if message.result is None else 0)

        return Duel(part(Cancel(target="x")), part(message), check)

    await stage.explore(prepare)


async def test_b4_a_wait_that_its_holder_gives_up_and_another_instance_takes_over_gets_the_message(
    stage: Stage,
) -> None:
    async def prepare() -> Duel:
        await stage.parked("x", _paid(), on("poke"))
        await stage.one.run(Deliver(target="x", name="poke"))
        [holder] = await stage.claim()
        await stage.one.run(advance(holder))
        await stage.one.run(_sent())
        taking = park(await stage.executing("y"), _paid())
        message = _sent("2")

        async def check(arming: TurnResult, sending: TurnResult) -> None:
            assert not isinstance(taking.result, Duplicate)
            assert (await _received(stage), await _kept(stage)) == (["1"], 1)

        return Duel(part(taking), part(message), check)

    await stage.explore(prepare)


async def test_fault_62_the_removal_of_what_is_over_leaves_what_is_taken_at_the_same_time(stage: Stage) -> None:
    async def prepare() -> Duel:
        over = _sent("over", "a")
        over.ttl = MINUTE
        await stage.one.run(over)
        stage.clock.advance(3 * MINUTE)
        await stage.one.run(_sent("2", "b"))
        claim = await stage.executing("x")

        async def check(removing: TurnResult, arming: TurnResult) -> None:
            assert (await _received(stage), await _kept(stage)) == (["2"], 0)

        return Duel(part(Retain(before=0)), part(park(claim, _paid())), check)

    await stage.explore(prepare)
