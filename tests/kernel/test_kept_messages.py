"""B4: a message with a time to live is kept until a receiver waits for it, and is received once.

The tests run the turns themselves, as an interpreter of processes would: no worker and no program.
"""

from itertools import count
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Message, Retain, RetryInstance
from hark.model.activation import Claim
from hark.model.decisions import Arm, Finish, Park
from hark.model.errors import Duplicate, NoTarget
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.inspect import counted, rows_read
from tests.support.turns import MINUTE, TickingClock, ask

_numbers = count()


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock(0)


@pytest.fixture
def turns(turns_by_hand: Turns) -> Turns:
    return turns_by_hand


def paid(payload: str = "1", *, ttl: int = MINUTE, key: str = "order-1", dedup_key: str | None = None) -> Message:
    return Message(name="paid", key=key, payload=payload, ttl=ttl, dedup_key=dedup_key)


def wait(id: str = "", *, key: str = "order-1", **options: Any) -> Arm:
    return Arm("message", id or f"w-{next(_numbers)}", "catch", name="paid", key=key, **options)


async def parked(turns: Turns, id: str, *arms: Arm) -> None:
    await turns.start("M", id)
    await turns.commit(await turns.claim("M"), Park(arms))


async def park(turns: Turns, claim: Claim, *arms: Arm) -> None:
    await turns.commit(claim, Park(arms), consume=[row.seq for row in claim.inbox])


def received(claim: Claim) -> list[tuple[str, str | None, str]]:
    return [(row.kind, row.wait_id, row.payload) for row in claim.inbox]


async def kept(turns: Turns) -> int:
    [[number]] = await rows(turns.made_for, "SELECT count(*) FROM messages WHERE receiver IS NULL")
    return int(number)


async def test_b4_a_message_is_kept_until_the_turn_that_arms_a_wait_for_it(turns: Turns) -> None:
    assert await ask(turns, paid("1"), paid("other", key="order-2")) == [None, None]
    assert isinstance((await ask(turns, paid(ttl=0)))[0], NoTarget)
    await parked(turns, "m", Arm("signal", "w-go", name="go"), wait("w-m"), Arm("timer", "w-t", timeout=MINUTE))
    claim = await turns.claim("M")  # woken in the turn that parked it
    assert received(claim) == [("message", "w-m", "1")]
    assert await kept(turns) == 1
    await park(turns, claim, wait("w-again"))
    assert await turns.nobody_runs("M")  # it is not given a second time
    assert await ask(turns, paid("2")) == ["m"]
    found = await rows(turns.made_for, "SELECT instance_id FROM events WHERE type = 'message'")
    assert [tuple(row) for row in found] == [("m",)] * 2


async def test_b4_of_several_kept_messages_each_wait_gets_the_oldest(turns: Turns) -> None:
    await ask(turns, paid("1"), paid("2"))
    await ask(turns, paid("3"), paid("4"))
    await parked(turns, "m", wait("w-2"), wait("w-1"))
    claim = await turns.claim("M")
    assert received(claim) == [("message", "w-2", "1"), ("message", "w-1", "2")]
    await park(turns, claim, wait("w-3"))
    claim = await turns.claim("M")
    assert received(claim) == [("message", "w-3", "3")]
    assert await kept(turns) == 1


async def test_b4_a_wait_that_stays_gets_every_kept_message(turns: Turns) -> None:
    await ask(turns, *(paid(str(n)) for n in range(5)))
    await parked(turns, "m", wait("w-each", answers_each=True), wait("w-once"))
    claim = await turns.claim("M")
    assert received(claim) == [("message", "w-each", str(n)) for n in range(5)]
    assert await kept(turns) == 0
    assert await ask(turns, paid()) == ["m"]


async def test_b4_a_message_that_is_sent_in_the_turn_that_arms_the_wait_is_received(turns: Turns) -> None:
    await turns.start("M", "m")
    claim = await turns.claim("M")
    message = paid()
    await turns.run(outcome(claim, Park((wait("w-m"),))), message)
    assert message.result is None  # there was no receiver yet
    assert received(await turns.claim("M")) == [("message", "w-m", "1")]


async def test_fault_62_a_message_past_its_time_is_not_delivered_although_it_was_not_removed(
    turns: Turns, clock: TickingClock
) -> None:
    await ask(turns, paid("late", ttl=MINUTE), paid("in time", ttl=2 * MINUTE))
    clock.now += MINUTE  # the very instant at which its time is over
    await parked(turns, "m", wait("w-m"), wait("w-n"))
    assert await kept(turns) == 1
    assert received(await turns.claim("M")) == [("message", "w-m", "in time")]


async def test_b4_messages_whose_time_is_over_are_removed_in_batches(turns: Turns, clock: TickingClock) -> None:
    await ask(turns, *(paid(str(n)) for n in range(3)), paid("kept", ttl=60 * MINUTE), paid(ttl=MINUTE, dedup_key="d"))
    await parked(turns, "n", wait(key="order-9"))
    await ask(turns, paid(key="order-9", dedup_key="old"))
    clock.now += 10 * MINUTE
    sizes = []
    more = True
    while more:
        request = Retain(before=clock.now - MINUTE, size=2)
        await turns.run(request)
        more = request.more
        sizes.append(await kept(turns))
    assert sizes == [3, 1, 1]
    assert await rows(turns.made_for, "SELECT dedup_key FROM messages WHERE receiver IS NOT NULL") == []


async def test_b4_a_dedup_key_counts_while_a_message_is_kept_and_after_it_was_received(turns: Turns) -> None:
    assert await ask(turns, paid("1", dedup_key="a"), paid("2", dedup_key="a")) == [None, None]
    assert await ask(turns, paid("3", dedup_key="a", ttl=0), paid("4", dedup_key="b")) == [None, None]
    assert await kept(turns) == 2
    await parked(turns, "m", wait("w-m"))
    claim = await turns.claim("M")
    assert received(claim) == [("message", "w-m", "1")]
    assert await ask(turns, paid("5", dedup_key="a"), paid("6", dedup_key="a", key="order-2")) == ["m", None]
    await park(turns, claim, wait("w-n"))
    assert received(await turns.claim("M")) == [("message", "w-n", "4")]
    assert await ask(turns, paid("7", dedup_key="b", ttl=0)) == ["m"]


async def test_b4_a_dedup_key_counts_for_a_message_that_was_received_at_once(turns: Turns) -> None:
    await parked(turns, "m", wait("w-m", answers_each=True))
    assert await ask(turns, *(paid(str(n), dedup_key="a", ttl=0) for n in range(2))) == ["m", "m"]
    assert await ask(turns, paid("3", dedup_key="a", ttl=0)) == ["m"]
    assert received(await turns.claim("M")) == [("message", "w-m", "0")]


async def test_b4_a_message_that_was_refused_or_kept_in_vain_can_be_sent_again(
    turns: Turns, clock: TickingClock
) -> None:
    [refused] = await ask(turns, paid(ttl=0, dedup_key="a"))
    assert isinstance(refused, NoTarget)
    assert await ask(turns, paid("1", dedup_key="a")) == [None]
    clock.now += MINUTE
    assert await ask(turns, paid("2", dedup_key="a")) == [None]
    await parked(turns, "m", wait("w-m"))
    assert received(await turns.claim("M")) == [("message", "w-m", "2")]


async def test_b4_an_outcome_that_is_refused_takes_no_message(turns: Turns) -> None:
    """It would wait for two messages; another instance waits for the other one."""
    await parked(turns, "holder", wait(key="order-2"))
    await ask(turns, paid("1"))
    await turns.start("M", "m")
    refused = outcome(await turns.claim("M"), Park((wait(), wait(key="order-2"))))
    await turns.run(refused)
    assert isinstance(refused.result, Duplicate)
    assert await kept(turns) == 1
    await parked(turns, "n", wait("w-n"))
    assert received(await turns.claim("M")) == [("message", "w-n", "1")]


async def test_b4_a_retry_receives_what_was_kept_since_its_failure(turns: Turns) -> None:
    await parked(turns, "m", wait("w-9"), wait("w-10"), Arm("timer", "w-t", deadline=1))
    [claim] = (await turns.run(lanes=["M"], sweep=True)).claims
    await turns.run(outcome(claim, Finish("failed", error="no"), consume=[row.seq for row in claim.inbox]))
    assert await ask(turns, paid("1")) == [None]
    await turns.run(RetryInstance(target="m"))
    assert received(await turns.claim("M")) == [("message", "w-9", "1")]
    assert await ask(turns, paid("2")) == ["m"]


async def test_b4_a_message_goes_to_a_live_receiver_only(turns: Turns) -> None:
    await parked(turns, "m", wait())
    await turns.run(Cancel(target="m"))
    assert await ask(turns, paid("1")) == [None]
    await parked(turns, "n", wait("w-n"))
    assert received(await turns.claim("M")) == [("message", "w-n", "1")]


async def test_b4_a_turn_that_arms_no_wait_for_a_message_does_not_ask_for_kept_ones(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(turns, paid())
    await turns.start("M", "m")
    claim = await turns.claim("M")
    with counted(turns.made_for, monkeypatch) as sent:
        await turns.run(outcome(claim, Park((Arm("signal", "w", name="go"),))))
    assert "kept_messages" not in sent


async def test_b4_of_many_kept_messages_a_turn_reads_what_its_waits_receive(
    turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that takes ten thousand messages one after the other must not read all of them each time."""
    await ask(turns, *(paid(str(n)) for n in range(50)))
    with rows_read(turns.made_for, monkeypatch, "kept_messages") as read:
        await parked(turns, "m", wait(), wait())
    assert read == [2]
