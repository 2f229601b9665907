"""Which events a wait receives: later ones only, one or each of them, and messages by the oldest place of one instance.

The tests run the turns themselves, as an interpreter of processes would: no worker and no program.
"""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from hark.kernel.requests import Cancel, DefinitionRow, Deliver, Message, Publish, Register
from hark.model.activation import Claim
from hark.model.decisions import Arm, Finish, Park, SendBroadcast, SendMessage, SendSignal
from hark.model.errors import Duplicate, NoTarget
from hark.model.lanes import BPMN, ENGINE_QUEUE
from tests.promises.support_signals import Turns, outcome, rows
from tests.support.stores import Store
from tests.support.turns import ask

_numbers = count()


@pytest.fixture
def turns(turns_by_hand: Turns) -> Turns:
    return turns_by_hand


def poke() -> Arm:
    return Arm("signal", f"w-poke-{next(_numbers)}", "poke", name="poke")


def fresh(id: str, place: str = "catch", **options: Any) -> Arm:
    return Arm("broadcast", id, place, name="news", fresh=True, **options)


def paid(id: str, place: str = "catch", **options: Any) -> Arm:
    return Arm("message", id, place, name="paid", key="order-1", **options)


async def parked(turns: Turns, id: str, *arms: Arm) -> None:
    await turns.start("M", id)
    await turns.commit(await turns.claim("M"), Park(arms), step="woken")


async def poked(turns: Turns, id: str = "m") -> Claim:
    """Wake an instance by something else than what the test is about."""
    await turns.run(Deliver(target=id, name="poke"))
    return await turns.claim("M")


async def park(turns: Turns, claim: Claim, *arms: Arm, disarm: Sequence[str] | None = ()) -> None:
    """Park as an interpreter of processes does: it has consumed all that it was given."""
    move = Park(arms, None if disarm is None else tuple(disarm))
    await turns.commit(claim, move, consume=[row.seq for row in claim.inbox])


async def publish(turns: Turns) -> int:
    [reached] = await ask(turns, Publish(name="news", payload='"x"'))
    return int(reached)


async def message(turns: Turns) -> Any:
    [received] = await ask(turns, Message(name="paid", key="order-1"))
    return received


def received(claim: Claim) -> list[tuple[str, str | None]]:
    return [(row.kind, row.wait_id) for row in claim.inbox]


async def test_a_fresh_wait_is_not_answered_by_a_broadcast_that_is_in_the_inbox(turns: Turns) -> None:
    await parked(turns, "m", poke(), Arm("broadcast", "w-by-name", name="news"))
    claim = await poked(turns)
    assert await publish(turns) == 1  # while it executes
    await park(turns, claim, fresh("w-fresh"), poke(), disarm=None)
    assert await turns.nobody_runs("M")
    assert await publish(turns) == 1
    woken = await turns.claim("M")
    assert received(woken) == [("broadcast", None), ("broadcast", "w-fresh")]
    # A wait by name is answered by what is there (S2).
    await turns.commit(woken, Park((Arm("broadcast", "w-again", name="news"),)))
    assert received(await turns.claim("M")) == received(woken)


async def test_a_fresh_wait_receives_one_broadcast_and_a_wait_that_stays_receives_each(turns: Turns) -> None:
    await parked(turns, "once", fresh("w-once"))
    await parked(turns, "each", fresh("w-each", answers_each=True), poke())
    assert [await publish(turns), await publish(turns)] == [2, 1]
    claims = {claim.id: claim for claim in (await turns.run(lanes=["M"], room=2)).claims}
    assert received(claims["once"]) == [("broadcast", "w-once")]
    assert received(claims["each"]) == [("broadcast", "w-each")] * 2
    assert await publish(turns) == 1  # while both execute
    await park(turns, claims["each"])  # keeps its waits
    await park(turns, claims["once"], fresh("w-twice"), disarm=None)
    assert received(await turns.claim("M")) == [("broadcast", "w-each")]
    assert await turns.nobody_runs("M")


async def test_a_broadcast_reaches_every_place_of_an_instance_and_counts_it_once(turns: Turns) -> None:
    await parked(turns, "m", fresh("w-1", "one"), fresh("w-2", "two"), Arm("broadcast", "w-3", name="news"))
    assert await publish(turns) == 1
    assert received(await turns.claim("M")) == [("broadcast", None), ("broadcast", "w-1"), ("broadcast", "w-2")]
    [[waits]] = await rows(turns.made_for, "SELECT data FROM events WHERE type = 'await'")
    assert "w-1" not in waits  # the key of a fresh wait is not for people


async def test_a_large_broadcast_reaches_the_fresh_waits_that_it_has_marked_and_no_later_ones(store: Store) -> None:
    async with Turns(store, broadcast_limit=1) as turns:
        await turns.register("M")
        for id in ("a", "b", "c"):
            await parked(turns, id, fresh(f"w-{id}"), fresh(f"v-{id}", "other"), poke())
        assert await publish(turns) == 3
        assert await rows(store, "SELECT count(*) FROM deliveries") == [(6,)]
        claim = await poked(turns, "b")
        await park(turns, claim, fresh("w-new"), disarm=["w-b"])
        while (await turns.run(pending_deliveries=True)).pending.pending_deliveries:
            pass
        claims = {claim.id: claim for claim in (await turns.run(lanes=["M"], room=3)).claims}
        assert {id: received(claim) for id, claim in claims.items()} == {
            "a": [("broadcast", "v-a"), ("broadcast", "w-a")],
            "b": [("broadcast", "v-b")],
            "c": [("broadcast", "v-c"), ("broadcast", "w-c")],
        }


async def test_each_message_goes_to_the_oldest_place_that_waits_for_it(turns: Turns) -> None:
    await parked(turns, "m", paid("w-z", "first"), poke())
    await park(turns, await poked(turns), paid("w-a", "second"))
    assert [await message(turns) for _ in range(2)] == ["m", "m"]
    assert isinstance(await message(turns), NoTarget)
    assert received(await turns.claim("M")) == [("message", "w-z"), ("message", "w-a")]


async def test_a_wait_that_stays_receives_the_second_message_too(turns: Turns) -> None:
    await parked(turns, "m", paid("w-stays", answers_each=True))
    await turns.run(*(Message(name="paid", key="order-1") for _ in range(2)))
    claim = await turns.claim("M")
    assert await message(turns) == "m"  # while it executes
    assert received(claim) == [("message", "w-stays")] * 2
    await park(turns, claim)
    claim = await turns.claim("M")
    assert received(claim) == [("message", "w-stays")]
    await park(turns, claim, poke(), disarm=["w-stays"])
    assert isinstance(await message(turns), NoTarget)


async def test_a_second_instance_cannot_wait_for_a_message_and_nothing_of_its_outcome_is_written(turns: Turns) -> None:
    await parked(turns, "m", paid("w-m", "receive"))
    await turns.start("M", "n")
    claim = await turns.claim("M")
    refused = outcome(claim, Park((paid("w-n", "boundary"),)), effects=[SendSignal("m", "hello", "null")])
    await turns.run(refused)
    assert isinstance(refused.result, Duplicate)
    assert refused.result.holder == "m"
    assert all(
        part in str(refused.result) for part in ("n cannot wait at 'boundary'", "'paid'", "m waits", "'receive'")
    )
    assert await rows(turns.made_for, "SELECT id FROM waits") == [("w-m",)]
    assert await rows(turns.made_for, "SELECT count(*) FROM inbox") == [(0,)]
    # The claim is still its worker's, which commits the failure.
    await turns.commit(claim, Finish("failed", error="no"))
    assert await message(turns) == "m"


async def test_of_two_instances_in_one_turn_the_first_gets_the_message_and_a_holder_may_pass_it_on(
    turns: Turns,
) -> None:
    await turns.start("M", "a", "b")
    first, second = (await turns.run(lanes=["M"], room=2)).claims
    commits = [outcome(claim, Park((paid(f"w-{claim.id}"), poke()))) for claim in (first, second)]
    await turns.run(*commits)
    assert commits[0].result is None
    assert isinstance(commits[1].result, Duplicate)
    assert commits[1].result.holder == first.id
    holder = await poked(turns, first.id)
    drops = outcome(holder, Park((), disarm=(f"w-{first.id}",)), consume=[row.seq for row in holder.inbox])
    takes = outcome(second, Park((paid("w-taken"),)))
    await turns.run(takes, drops)
    assert not takes.fenced
    assert await message(turns) == second.id


@pytest.mark.parametrize("end", ["finish", "cancel"])
async def test_a_message_is_free_again_when_its_holder_has_ended(turns: Turns, end: str) -> None:
    await parked(turns, "m", paid("w-m"), poke())
    if end == "cancel":
        await turns.run(Cancel(target="m"))
    else:
        await turns.commit(await poked(turns), Finish("done"))
    await parked(turns, "n", paid("w-n"))
    assert await message(turns) == "n"


async def test_sending_a_message_is_an_effect(turns: Turns) -> None:
    await parked(turns, "m", paid("w-m"))
    await turns.start("M", "sender")
    claim = await turns.claim("M")
    send = SendMessage("paid", "order-1", '{"amount": 1}')
    stale = outcome(claim, Park((poke(),)), effects=[send])
    claim.epoch -= 1
    await turns.run(stale)
    claim.epoch += 1
    assert stale.fenced
    assert await turns.nobody_runs("M")
    await turns.commit(claim, Park((poke(),)), effects=[send, send])
    [row] = (await turns.claim("M")).inbox
    assert (row.kind, row.name, row.wait_id, row.payload) == ("message", "paid", "w-m", '{"amount": 1}')
    assert await rows(turns.made_for, "SELECT instance_id FROM events WHERE type = 'undelivered'") == [("sender",)]


@pytest.mark.parametrize("limit", [50_000, 1])
async def test_b5_a_broadcast_that_skips_its_sender_reaches_all_others_and_does_not_count_it(
    store: Store, limit: int
) -> None:
    async with Turns(store, broadcast_limit=limit) as turns:
        await turns.register("M")
        await parked(turns, "sender", fresh("w-sender"), Arm("broadcast", "w-by-name", name="news"), poke())
        await parked(turns, "a", fresh("w-a"))
        await parked(turns, "b", Arm("broadcast", "w-b", name="news"))
        claim = await poked(turns, "sender")
        throw = outcome(
            claim,
            Park((), disarm=()),
            effects=[SendBroadcast("news", "1", skip_sender=True)],
            consume=[row.seq for row in claim.inbox],
        )
        await turns.run(throw)
        while (await turns.run(pending_deliveries=True)).pending.pending_deliveries:
            pass
        assert await rows(store, "SELECT count FROM broadcasts") == [(2,)]
        claims = {claim.id: claim for claim in (await turns.run(lanes=["M"], room=3)).claims}
        assert sorted(claims) == ["a", "b"]
        assert received(claims["a"]) == [("broadcast", "w-a")]
        assert received(claims["b"]) == [("broadcast", None)]
        assert await publish(turns) == 2  # the sender still waits; `a` has had its broadcast


@pytest.mark.parametrize("signalled", [False, True])
async def test_b1_a_mark_of_a_large_broadcast_wakes_a_process_also_in_a_turn_of_signals_only(
    store: Store, signalled: bool
) -> None:
    """The waits of a run are not read for signals, which its tasks receive."""
    async with Turns(store, broadcast_limit=1) as turns:
        await turns.run(Register(rows=[DefinitionRow("P", 1, BPMN, ENGINE_QUEUE, "start")]))
        for id in ("a", "b", "c"):
            await turns.start("P", id)
            await turns.commit(await turns.claim("P"), Park((fresh(f"w-{id}"),)))
        assert await publish(turns) == 3
        pending = True
        while pending:
            signals = [Deliver(target=id, name="hello") for id in ("a", "b", "c")] if signalled else []
            pending = (await turns.run(*signals, pending_deliveries=True)).pending.pending_deliveries
        assert await rows(store, "SELECT DISTINCT status FROM instances") == [("runnable",)]
