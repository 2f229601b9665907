"""V3: an instance whose code does not fit is held, whatever happens to it at the same moment."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, Publish, Reclaim, RetryInstance, SettleAwakeable
from hark.model.activation import Claim
from hark.model.decisions import Arm, Settle
from tests.support.stage import Duel, Part, Race, Stage, part, race
from tests.support.turns import (
    DEFINITION,
    MINUTE,
    advance,
    asked,
    capacity,
    done,
    hold,
    new,
    on,
    park,
    stop,
    timer,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
OTHER = {"codes": {f"{DEFINITION}@1": "other"}, "try_held": True}
SAME = {"codes": {f"{DEFINITION}@1": "code"}, "try_held": True}


def _answer() -> SettleAwakeable:
    return SettleAwakeable(settle=Settle("question", "RESOLVED", payload="1"), read_owner=True)


async def _held(stage: Stage, **options: object) -> None:
    """`x` is held, and waits for an answer, a signal and a time."""
    question, wait = asked("question")
    claim = await stage.executing("x", **options)
    await stage.one.run(park(claim, on("go"), wait, timer(timeout=MINUTE), awakeables=(question,)))
    await stage.one.run(Deliver(target="x", name="go"))
    [claim] = await stage.claim()
    await stage.one.run(hold(claim))


DURING: dict[str, Callable[[Claim], Part]] = {
    "a signal": lambda claim: part(Deliver(target="x", name="go")),
    "an answer": lambda claim: part(_answer()),
    "a deadline": lambda claim: part(sweep=True),
    "a cancel": lambda claim: part(Cancel(target="x")),
    "a reclaim": lambda claim: part(Reclaim(owners=["worker"])),
    "a hand-back": lambda claim: part(HandBack(claims=[claim])),
    "a retry": lambda claim: part(RetryInstance(target="x")),
    "a claim": lambda claim: part(claim=capacity("theirs", **OTHER)),
}


@pytest.mark.parametrize("other", DURING.values(), ids=DURING)
@race()
async def test_v3_an_outcome_that_holds_concurrent_with_what_may_happen_to_an_executing_instance(
    stage: Stage, other: Callable[[Claim], Part]
) -> Race:
    question, wait = asked("question")
    claim = await stage.executing("x", correlation_key="key")
    await stage.one.run(park(claim, on("go"), wait, timer(timeout=MINUTE), awakeables=(question,)))
    stage.clock.advance(MINUTE)
    await stage.one.run(Deliver(target="x", name="go"))
    [claim] = await stage.claim()
    holding = hold(claim)
    yield Duel(part(holding), other(claim))
    content = await stage.content()
    row = content.instances["x"]
    if row.status == "cancelled":
        assert not content.waits_of("x")
        return
    assert row.holds_key
    assert content.kinds("x")[0] == "go"
    assert len(content.waits_of("x")) == 3
    assert row.status in ("held", "runnable", "executing")


OUTCOMES: dict[str, Callable[[Claim], Commit]] = {
    "a step that goes on": advance,
    "a park": lambda claim: park(claim, on("again")),
    "an end": done,
    "a failure": stop,
}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
@race()
async def test_v3_an_outcome_that_holds_under_a_lost_lease_concurrent_with_the_outcome_of_the_owner(
    stage: Stage, outcome: Callable[[Claim], Commit]
) -> Race:
    late = hold(await stage.executing("x"))
    await stage.one.run(Reclaim(owners=["worker"]))
    [claim] = await stage.claim()
    owners = outcome(claim)
    yield Duel(part(late), part(owners))
    assert (late.fenced, owners.fenced) == (True, False)
    assert (await stage.content()).instances["x"].held_by is None


COMES: dict[str, Callable[[Claim], Part]] = {
    "the end of the child": lambda child: part(done(child)),
    "the failure of the child": lambda child: part(stop(child)),
    "a cancel of the child": lambda child: part(Cancel(target="y")),
    "a broadcast": lambda child: part(Publish(name="open")),
}


@pytest.mark.parametrize("way", COMES)
@pytest.mark.parametrize("is_released", [False, True], ids=["is held", "is released"])
@race()
async def test_v3_what_comes_while_a_parent_is_held_or_released_is_in_its_inbox(
    stage: Stage, way: str, is_released: bool
) -> Race:
    children = Arm("children", "children", children=(new("y"),), join=1)
    claim = await stage.executing("x")
    await stage.one.run(park(claim, on("go"), on("open", "broadcast"), children))
    [child] = await stage.claim()
    await stage.one.run(Deliver(target="x", name="go"))
    [claim] = await stage.claim()
    if is_released:
        await stage.one.run(hold(claim))
        ours = part(claim=capacity("ours", **OTHER))
    else:
        ours = part(hold(claim))
    yield Duel(ours, COMES[way](child))
    content = await stage.content()
    assert content.kinds("x") == ["go", "broadcast" if way == "a broadcast" else "children"]
    if way != "a broadcast":
        [wait] = [wait for wait in content.waits_of("x") if wait.kind == "children"]
        assert wait.remaining == 0


AFTER: dict[str, Callable[[], Part]] = {
    "a signal": lambda: part(Deliver(target="x", name="go")),
    "an answer": lambda: part(_answer()),
    "a deadline": lambda: part(sweep=True),
    "a cancel": lambda: part(Cancel(target="x")),
    "a retry": lambda: part(RetryInstance(target="x")),
    "other code": lambda: part(claim=capacity("theirs", **OTHER)),
}


@pytest.mark.parametrize("other", AFTER.values(), ids=AFTER)
@race()
async def test_v3_other_code_that_is_registered_concurrent_with_what_may_happen_to_a_held_instance(
    stage: Stage, other: Callable[[], Part]
) -> Race:
    await _held(stage)
    stage.clock.advance(MINUTE)
    ours, theirs = yield Duel(part(claim=capacity("ours", **OTHER)), other())
    claims = [*ours.claims, *theirs.claims]
    assert len({claim.id for claim in claims}) == len(claims) <= 1
    row = (await stage.content()).instances["x"]
    if claims and row.status != "cancelled":
        assert (row.status, row.epoch) == ("executing", claims[0].epoch)
        assert claims[0].held_by in ("code", None)  # None: a retry was first
        assert claims[0].inbox[0].kind == "signal"
    else:
        assert row.status in ("cancelled", "runnable", "held")


@race()
async def test_v3_a_retry_concurrent_with_a_cancel_of_a_held_instance(stage: Stage) -> Race:
    await _held(stage)
    retry, cancel = RetryInstance(target="x"), Cancel(target="x")
    yield Duel(part(retry), part(cancel))
    assert (await stage.content()).instances["x"].status == "cancelled"
    assert cancel.result == "x"


async def test_v3_code_is_not_tried_again_by_a_worker_whose_code_did_not_fit(stage: Stage) -> None:
    await _held(stage)
    assert (await stage.one.run(claim=capacity("ours", **SAME))).claims == []
    [claim] = (await stage.one.run(claim=capacity("theirs", **OTHER))).claims
    await stage.one.run(hold(claim, "other"))
    for codes in (SAME, OTHER):
        assert (await stage.one.run(claim=capacity("ours", **codes))).claims == []
    assert (await stage.content()).instances["x"].held_by == "code,other"


async def test_v3_what_did_not_fit_is_forgotten_once_an_outcome_was_committed(stage: Stage) -> None:
    await _held(stage)
    [claim] = (await stage.one.run(claim=capacity("theirs", **OTHER))).claims
    outcome: Commit = advance(claim)
    turn = await stage.one.run(outcome, run_ahead=True)
    assert outcome.result is True
    claim.run_ahead(outcome.decision, turn.now, [])
    await stage.one.run(hold(claim, "other"))
    assert (await stage.content()).instances["x"].held_by == "other"
