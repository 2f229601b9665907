"""A4, fault 43: an answer after the timeout is too late, even while the instance executes and no timer can fire."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hark.kernel.requests import Deliver, SettleAwakeable
from hark.model.activation import Claim
from hark.model.decisions import Arm, NewAwakeable, Park, Settle
from hark.model.errors import AlreadySettled
from hark.model.names import from_micros
from tests.promises.support_signals import Turns, rows
from tests.support.stores import Store

SECOND = 1_000_000


class Asker:
    """An instance with an awakeable that times out after ten seconds, executing something else."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 1_000 * SECOND
        self.turns = Turns(store, lambda: self.now)
        self.claim: Claim

    async def ask(self) -> None:
        await self.turns.register("M")
        await self.turns.start("M", "m")
        question = NewAwakeable("question", 0, timeout=10 * SECOND)
        waits = (Arm("awakeable", "w-question", name="question", timeout=10 * SECOND), Arm("signal", "w", name="poke"))
        await self.turns.commit(await self.turns.claim("M"), Park(waits, awakeables=(question,)), step="woken")

    async def resolve(self, *payloads: str) -> list[SettleAwakeable]:
        answers = [SettleAwakeable(settle=Settle("question", "RESOLVED", payload, by="ann")) for payload in payloads]
        await self.turns.run(*answers)
        return answers

    async def told(self) -> list[str]:
        """The payloads that its next activation finds, after a park that keeps the wait for the awakeable."""
        seqs = [row.seq for row in self.claim.inbox]
        await self.turns.commit(self.claim, Park(disarm=()), consume=seqs, handed=seqs)
        await self.turns.run(sweep=True)
        claim = await self.turns.claim("M")
        assert [wait.fired_at is not None for wait in claim.waits if wait.kind == "awakeable"] == [True]
        return [row.payload for row in claim.inbox]

    async def status(self) -> str:
        [[status]] = await rows(self.store, "SELECT status FROM awakeables")
        return str(status)


@asynccontextmanager
async def asking(store: Store) -> AsyncIterator[Asker]:
    asker = Asker(store)
    async with asker.turns as turns:
        await asker.ask()
        await turns.run(Deliver(target="m", name="poke"))
        asker.claim = await turns.claim("M")
        yield asker


async def test_fault_43_an_answer_after_the_timeout_of_an_executing_instance_is_refused_and_settles_it_as_timed_out(
    store: Store,
) -> None:
    async with asking(store) as asker:
        asker.now += 10 * SECOND
        for late in await asker.resolve("1", "2"):
            assert type(late.result) is AlreadySettled
            assert (late.result.status, late.result.by) == ("TIMEOUT", None)
            assert late.result.at == from_micros(asker.now)
        assert await asker.status() == "TIMEOUT"
        assert await asker.told() == ['{"status":"TIMEOUT"}']


async def test_fault_43_an_answer_before_the_timeout_of_an_executing_instance_is_accepted(store: Store) -> None:
    async with asking(store) as asker:
        asker.now += 10 * SECOND - 1
        [answer] = await asker.resolve("1")
        assert not isinstance(answer.result, Exception)
        asker.now += SECOND
        assert await asker.told() == ['{"status":"RESOLVED","payload":1,"by":"ann"}']
        assert await asker.status() == "RESOLVED"


@pytest.mark.parametrize("in_one_turn", [False, True])
async def test_a4_a_kept_wait_whose_awakeable_was_answered_does_not_time_out(store: Store, in_one_turn: bool) -> None:
    asker = Asker(store)
    async with asker.turns as turns:
        await asker.ask()
        if in_one_turn:
            answer = SettleAwakeable(settle=Settle("question", "RESOLVED", "1"))
            [claim] = (await turns.run(answer, lanes=["M"], room=1)).claims
        else:
            await asker.resolve("1")
            claim = await turns.claim("M")
        assert [row.kind for row in claim.inbox] == ["awakeable"]
        seqs = [row.seq for row in claim.inbox]
        await turns.commit(claim, Park(disarm=()), consume=seqs, handed=seqs)
        asker.now += 20 * SECOND
        await turns.run(sweep=True)
        await turns.run(Deliver(target="m", name="poke"))
        claim = await turns.claim("M")
        assert [(row.kind, row.name) for row in claim.inbox] == [("signal", "poke")]
        assert await asker.status() == "RESOLVED"
