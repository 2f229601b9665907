"""A1, B4: an awakeable settles once and a message has one receiver, whatever happens at the same time."""

import pytest

from hark.kernel.requests import AssignAwakeable, Cancel, Deliver, Message, SettleAwakeable
from hark.model.decisions import Settle
from hark.model.errors import AlreadyClaimed, AlreadySettled, NoTarget
from hark.model.names import awakeable_id
from tests.support.runs import note_awakeable, running
from tests.support.stage import IN_BOTH_WAYS, Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, asked, done, on, park

pytestmark = pytest.mark.asyncio(loop_scope="module")


def _question(stage: Stage) -> str:
    """The awakeable of `x`. Only an id that names its instance can be answered in one call; of another, the turn reads
    the owner."""
    return awakeable_id("x", 0) if stage.call_turns else "question"


def _resolve(stage: Stage, payload: str = "1", by: str | None = None) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(_question(stage), "RESOLVED", payload=payload, by=by))


def _reject(stage: Stage) -> SettleAwakeable:
    return SettleAwakeable(settle=Settle(_question(stage), "REJECTED", error="no"))


async def _asking(stage: Stage, timeout: int | None = None) -> None:
    question, wait = asked(_question(stage), timeout=timeout)
    await stage.one.run(park(await stage.executing("x"), wait, awakeables=(question,)))


@IN_BOTH_WAYS
@race(deep=True)
async def test_fault_42_of_two_concurrent_answers_one_settles_and_the_other_gets_a_conflict(stage: Stage) -> Race:
    await _asking(stage)
    answers = [_resolve(stage, by="ann"), _reject(stage)]
    yield Duel(part(answers[0]), part(answers[1]))
    content = await stage.content()
    [refused] = [answer.result for answer in answers if isinstance(answer.result, AlreadySettled)]
    assert content.awakeables[_question(stage)].status == refused.status
    assert refused.by == ("ann" if refused.status == "RESOLVED" else None)
    assert content.kinds("x") == ["awakeable"]
    assert content.instances["x"].status == "runnable"


@race(deep=True)
async def test_fault_43_an_answer_concurrent_with_the_timeout_leaves_one_status_and_one_inbox_row(stage: Stage) -> Race:
    await _asking(stage, timeout=MINUTE)
    stage.clock.advance(MINUTE)
    answer = _resolve(stage)
    yield Duel(part(sweep=True), part(answer))
    content = await stage.content()
    status = content.awakeables[_question(stage)].status
    assert status == ("TIMEOUT" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
    assert content.kinds("x") == ["awakeable"]
    assert content.instances["x"].status == "runnable"


@IN_BOTH_WAYS
@race(deep=True)
async def test_fault_46_an_answer_concurrent_with_a_cancel_leaves_one_status(stage: Stage) -> Race:
    await _asking(stage)
    answer = _resolve(stage)
    yield Duel(part(Cancel(target="x")), part(answer))
    content = await stage.content()
    status = content.awakeables[_question(stage)].status
    assert status == ("CANCELLED" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
    assert content.instances["x"].status == "cancelled"


@IN_BOTH_WAYS
@race(deep=True)
async def test_fault_44_an_answer_concurrent_with_the_park_on_it_wakes_the_instance(stage: Stage) -> Race:
    """The awakeable was created earlier; its instance did something else before it parks on the answer."""
    await stage.one.run(park(await stage.executing("x"), on("poke"), awakeables=(asked(_question(stage))[0],)))
    await stage.one.run(Deliver(target="x", name="poke"))
    [claim] = await stage.claim()
    seen = [row.seq for row in claim.inbox]
    yield Duel(part(park(claim, on(_question(stage), "awakeable"))), part(_resolve(stage)), seen=seen)
    content = await stage.content()
    assert content.instances["x"].status == "runnable"
    assert "awakeable" in content.kinds("x")


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


@race(deep=True)
async def test_a1_an_answer_concurrent_with_the_end_of_its_instance(stage: Stage) -> Race:
    await _asking(stage)
    await stage.one.run(_resolve(stage))
    [claim] = await stage.claim()
    second, wait = asked("second", 1)
    await stage.one.run(park(claim, wait, on("poke"), awakeables=(second,)))
    await stage.one.run(Deliver(target="x", name="poke"))
    [claim] = await stage.claim()
    answer = SettleAwakeable(settle=Settle("second", "RESOLVED", payload="2"))
    yield Duel(part(done(claim)), part(answer))
    content = await stage.content()
    status = content.awakeables["second"].status
    assert status == ("CANCELLED" if isinstance(answer.result, AlreadySettled) else "RESOLVED")
    assert content.instances["x"].status == "done"


@race(deep=True)
async def test_b4_of_two_concurrent_messages_with_one_key_one_is_received(stage: Stage) -> Race:
    await stage.parked("x", on("payment", "message", key="order-42"))
    messages = [Message(name="payment", key="order-42") for _ in range(2)]
    yield Duel(part(messages[0]), part(messages[1]))
    assert sorted(isinstance(m.result, NoTarget) for m in messages) == [False, True]
    content = await stage.content()
    assert content.kinds("x") == ["message"]
    assert content.instances["x"].status == "runnable"


@race(deep=True)
async def test_b4_a_message_concurrent_with_the_park_on_it_is_delivered_or_refused(stage: Stage) -> Race:
    claim = await stage.executing("x")
    message = Message(name="payment", key="order-42")
    yield Duel(part(park(claim, on("payment", "message", key="order-42"))), part(message))
    content = await stage.content()
    taken = not isinstance(message.result, NoTarget)
    assert content.kinds("x") == ["message"] * taken
    assert content.instances["x"].status == ("runnable" if taken else "awaiting_signal")


@race(deep=True)
async def test_b6_of_two_concurrent_claims_one_is_refused(stage: Stage) -> Race:
    await _asking(stage)
    claims = [AssignAwakeable(awakeable="question", by=by, read_owner=True) for by in ("ann", "bob")]
    yield Duel(part(claims[0]), part(claims[1]))
    [refused] = [claim for claim in claims if isinstance(claim.result, AlreadyClaimed)]
    [[holder]] = await stage.eye.fetch("SELECT claimed_by FROM awakeables")
    assert refused.result.by == holder == ({"ann", "bob"} - {refused.by}).pop()


@pytest.mark.parametrize("end", ["answer", "timeout", "cancel"])
@race()
async def test_b6_a_claim_concurrent_with_the_end_of_an_awakeable_comes_first_or_is_refused(
    stage: Stage, end: str
) -> Race:
    await _asking(stage, timeout=MINUTE)
    claim = AssignAwakeable(awakeable="question", by="ann", read_owner=True)
    ending = part(_resolve(stage)) if end == "answer" else part(Cancel(target="x"))
    if end == "timeout":
        stage.clock.advance(MINUTE - 10_000)
        ending = part(sweep=True)
    yield Duel(ending, part(claim))
    [[holder]] = await stage.eye.fetch("SELECT claimed_by FROM awakeables")
    assert holder == (None if isinstance(claim.result, AlreadySettled) else "ann")


@race()
async def test_b6_a_claim_concurrent_with_the_answer_to_a_task_comes_first_or_is_refused(stage: Stage) -> Race:
    [task] = await running(stage.one.run, "run", "run.0")
    asked = note_awakeable(task, "awakeable#0")
    await stage.one.run(asked)
    id = asked.result.id
    claim = AssignAwakeable(awakeable=id, by="ann", task_id="run.0")
    answer = SettleAwakeable(settle=Settle(id, "RESOLVED", payload="1"), task_id="run.0")
    yield Duel(part(claim), part(answer))
    [[holder, status]] = await stage.eye.fetch("SELECT claimed_by, status FROM awakeables")
    assert status == "RESOLVED"
    assert holder == (None if isinstance(claim.result, AlreadySettled) else "ann")
