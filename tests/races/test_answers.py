"""A1, B4: an awakeable settles once and a message has one receiver, whatever happens at the same time."""

import pytest

from hark.kernel.requests import AssignAwakeable, Cancel, Deliver, Message, SettleAwakeable
from hark.kernel.result import TurnResult
from hark.model.decisions import Settle
from hark.model.errors import AlreadyClaimed, AlreadySettled, NoTarget
from hark.model.names import awakeable_id
from tests.support.runs import note_awakeable, running
from tests.support.stage import IN_BOTH_WAYS, Duel, Stage, part
from tests.support.turns import MINUTE, asked, done, on, park

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _question(stage: Stage) -> str:
    """The awakeable of `x`. Only an id that names its instance can be answered in one call; of another, the turn reads
    the owner."""
    return awakeable_id("x", 0) if stage.one_calls else "question"


def _resolve(stage: Stage, payload: str = "1", by: str | None = None) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(_question(stage), "RESOLVED", payload=payload, by=by))


def _reject(stage: Stage) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(_question(stage), "REJECTED", error="no"))


async def _asking(stage: Stage, timeout: int | None = None) -> None:
    question, wait = asked(_question(stage), timeout=timeout)
    await stage.one.run(park(await stage.executing("x"), wait, awakeables=(question,)))


@IN_BOTH_WAYS
async def test_fault_42_of_two_concurrent_answers_one_settles_and_the_other_gets_a_conflict(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _asking(stage)
        answers = [_resolve(stage, by="ann"), _reject(stage)]

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            [refused] = [answer.result for answer in answers if isinstance(answer.result, AlreadySettled)]
            assert content.awakeables[_question(stage)].status == refused.status
            assert refused.by == ("ann" if refused.status == "RESOLVED" else None)
            assert content.kinds("x") == ["awakeable"]
            assert content.instances["x"].status == "runnable"

        return Duel(part(answers[0]), part(answers[1]), check)

    await stage.explore(prepare, deep=True)


async def test_fault_43_an_answer_concurrent_with_the_timeout_leaves_one_status_and_one_inbox_row(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _asking(stage, timeout=MINUTE)
        stage.clock.advance(MINUTE)
        answer = _resolve(stage)

        async def check(sweeping: TurnResult, answering: TurnResult) -> None:
            content = await stage.content()
            status = content.awakeables[_question(stage)].status
            assert status == ("TIMEOUT" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
            assert content.kinds("x") == ["awakeable"]
            assert content.instances["x"].status == "runnable"

        return Duel(part(sweep=True), part(answer), check)

    await stage.explore(prepare, deep=True)


@IN_BOTH_WAYS
async def test_fault_46_an_answer_concurrent_with_a_cancel_leaves_one_status(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _asking(stage)
        answer = _resolve(stage)

        async def check(cancelling: TurnResult, answering: TurnResult) -> None:
            content = await stage.content()
            status = content.awakeables[_question(stage)].status
            assert status == ("CANCELLED" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
            assert content.instances["x"].status == "cancelled"

        return Duel(part(Cancel(target="x")), part(answer), check)

    await stage.explore(prepare, deep=True)


@IN_BOTH_WAYS
async def test_fault_44_an_answer_concurrent_with_the_park_on_it_wakes_the_instance(stage: Stage) -> None:
    """The awakeable was created earlier; its instance did something else before it parks on the answer."""

    async def prepare() -> Duel:
        await stage.one.run(park(await stage.executing("x"), on("poke"), awakeables=(asked(_question(stage))[0],)))
        await stage.one.run(Deliver(target="x", name="poke"))
        [claim] = await stage.claim()

        async def check(parking: TurnResult, answering: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["x"].status == "runnable"
            assert "awakeable" in content.kinds("x")

        seen = [row.seq for row in claim.inbox]
        return Duel(part(park(claim, on(_question(stage), "awakeable"))), part(_resolve(stage)), check, seen=seen)

    await stage.explore(prepare, deep=True)


async def test_a1_a_settled_awakeable_does_not_time_out_later_although_its_wait_is_kept(stage: Stage) -> None:
    question, wait = asked(_question(stage), timeout=MINUTE)
    await stage.one.run(park(await stage.executing("x"), wait, awakeables=(question,)))
    await stage.one.run(_resolve(stage))
    [claim] = await stage.claim()
    late = park(claim, on("other"), disarm=())
    late.decision.consume, late.decision.handed = (), tuple(row.seq for row in claim.inbox)
    await stage.one.run(late)
    stage.clock.advance(2 * MINUTE)
    await stage.one.run(sweep=True)
    content = await stage.content()
    assert content.awakeables[_question(stage)].status == "RESOLVED"
    assert content.kinds("x") == ["awakeable"], "one settlement, one inbox row"


async def test_a1_an_answer_concurrent_with_the_end_of_its_instance(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _asking(stage)
        await stage.one.run(_resolve(stage))
        [claim] = await stage.claim()
        second, wait = asked("second", 1)
        await stage.one.run(park(claim, wait, on("poke"), awakeables=(second,)))
        await stage.one.run(Deliver(target="x", name="poke"))
        [claim] = await stage.claim()
        answer = SettleAwakeable(settle=Settle("second", "RESOLVED", payload="2"))

        async def check(ending: TurnResult, answering: TurnResult) -> None:
            content = await stage.content()
            status = content.awakeables["second"].status
            assert status == ("CANCELLED" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
            assert content.instances["x"].status == "done"

        return Duel(part(done(claim)), part(answer), check)

    await stage.explore(prepare, deep=True)


async def test_b4_of_two_concurrent_messages_with_one_key_one_is_received(stage: Stage) -> None:
    async def prepare() -> Duel:
        await stage.parked("x", on("payment", "message", key="order-42"))
        messages = [Message(name="payment", key="order-42") for _ in range(2)]

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert sorted(isinstance(m.result, NoTarget) for m in messages) == [False, True]
            content = await stage.content()
            assert content.kinds("x") == ["message"]
            assert content.instances["x"].status == "runnable"

        return Duel(part(messages[0]), part(messages[1]), check)

    await stage.explore(prepare, deep=True)


async def test_b4_a_message_concurrent_with_the_park_on_it_is_delivered_or_refused(stage: Stage) -> None:
    async def prepare() -> Duel:
        claim = await stage.executing("x")
        message = Message(name="payment", key="order-42")

        async def check(parking: TurnResult, sending: TurnResult) -> None:
            content = await stage.content()
            taken = not isinstance(message.result, NoTarget)
            assert content.kinds("x") == ["message"] * taken
            assert content.instances["x"].status == ("runnable" if taken else "awaiting_signal")

        return Duel(part(park(claim, on("payment", "message", key="order-42"))), part(message), check)

    await stage.explore(prepare, deep=True)


async def test_b6_of_two_concurrent_claims_one_is_refused(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _asking(stage)
        claims = [AssignAwakeable(awakeable="question", by=by, read_owner=True) for by in ("ann", "bob")]

        async def check(one: TurnResult, two: TurnResult) -> None:
            [refused] = [claim for claim in claims if isinstance(claim.result, AlreadyClaimed)]
            [[holder]] = await stage.eye.fetch("SELECT claimed_by FROM awakeables")
            assert refused.result.by == holder == ({"ann", "bob"} - {refused.by}).pop()

        return Duel(part(claims[0]), part(claims[1]), check)

    await stage.explore(prepare, deep=True)


@pytest.mark.parametrize("end", ["answer", "timeout", "cancel"])
async def test_b6_a_claim_concurrent_with_the_end_of_an_awakeable_comes_first_or_is_refused(
    stage: Stage, end: str
) -> None:
    async def prepare() -> Duel:
        await _asking(stage, timeout=MINUTE)
        claim = AssignAwakeable(awakeable="question", by="ann", read_owner=True)
        ending = part(_resolve(stage)) if end == "answer" else part(Cancel(target="x"))
        if end == "timeout":
            stage.clock.advance(MINUTE - 10_000)
            ending = part(sweep=True)

        async def check(ended: TurnResult, claiming: TurnResult) -> None:
            [[holder]] = await stage.eye.fetch("SELECT claimed_by FROM awakeables")
            assert holder == (None if isinstance(claim.result, AlreadySettled) else "ann")

        return Duel(ending, part(claim), check)

    await stage.explore(prepare)


async def test_b6_a_claim_concurrent_with_the_answer_to_a_task_comes_first_or_is_refused(stage: Stage) -> None:
    async def prepare() -> Duel:
        [task] = await running(stage.one.run, "run", "run.0")
        asked = note_awakeable(task, "awakeable#0")
        await stage.one.run(asked)
        id = asked.result.id
        claim = AssignAwakeable(awakeable=id, by="ann", task_id="run.0")
        answer = SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1"), task_id="run.0")

        async def check(claiming: TurnResult, answering: TurnResult) -> None:
            [[holder, status]] = await stage.eye.fetch("SELECT claimed_by, status FROM awakeables")
            assert status == "RESOLVED"
            assert holder == (None if isinstance(claim.result, AlreadySettled) else "ann")

        return Duel(part(claim), part(answer), check)

    await stage.explore(prepare)
