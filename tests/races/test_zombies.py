"""X2: a worker whose lease was lost commits nothing, whatever its outcome, at every point of the reclaim."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit, Deliver, HandBack, Reclaim
from hark.model.activation import Claim
from hark.model.decisions import Effect, SendBroadcast, SendSignal, Settle
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import (
    advance,
    asked,
    capacity,
    done,
    handed,
    new,
    on,
    park,
    retry,
    spawn,
    stop,
)  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")
OUTCOMES: dict[str, Callable[..., Commit]] = {
    "next": advance,
    "next with a limit": lambda claim, *effects: advance(claim, *effects, rate_limit="rate"),
    "next with a key": lambda claim, *effects: advance(claim, *effects, rekey=True, concurrency_key="k"),
    "retry": retry,
    "await": lambda claim, *effects: park(claim, on("go"), effects=effects),
    "spawn": lambda claim, *effects: spawn(claim, [new("child-1"), new("child-2")], *effects),
    "done": done,
    "stop": stop,
}
EFFECTS: list[Effect] = [
    SendSignal("friend", "hello", "null"),
    SendBroadcast("news", "null"),
    new("born"),
    Settle("question", "RESOLVED", payload="1"),
]


@pytest.fixture(params=OUTCOMES)
def outcome(request: pytest.FixtureRequest) -> Callable[..., Commit]:
    return OUTCOMES[request.param]


async def _doomed(stage: Stage) -> Claim:
    """`x`, a child of `parent`, woken by a signal, executing on a worker that dies; and all it could write to."""
    question, wait = asked("question")
    await stage.one.run(park(await stage.executing("asker"), wait, awakeables=(question,)))
    await stage.parked("friend", on("hello"))
    await stage.parked("reader", on("news", "broadcast"))
    [claim] = await stage.family("parent", "x")
    await stage.one.run(park(claim, on("go")))
    await stage.one.run(Deliver(target="x", name="go"))
    [claim] = await stage.claim("dead")
    assert (claim.id, len(handed(claim))) == ("x", 1)
    return claim


async def _untouched(stage: Stage) -> None:
    """Nothing of a fenced outcome was written: not to its inbox, its parent or the targets of its effects."""
    content = await stage.content()
    assert content.kinds("x") == ["go"]
    assert [w.name for w in content.waits_of("x")] == ["go"]
    assert [w.remaining for w in content.waits_of("parent")] == [1]
    assert content.kinds("parent") == []
    assert content.instances.keys() == {"x", "parent", "friend", "reader", "asker"}
    assert [content.kinds(id) for id in ("friend", "reader", "asker")] == [[], [], []]
    assert content.awakeables["question"].status == "PENDING"


async def _arrived(stage: Stage) -> None:
    """All effects of a committed outcome were applied."""
    content = await stage.content()
    assert "born" in content.instances
    assert content.kinds("friend") == ["hello"]
    assert content.kinds("reader") == ["broadcast"]
    assert content.awakeables["question"].status == "RESOLVED"


@race()
async def test_fault_26_an_outcome_of_a_zombie_at_any_statement_of_the_reclaim_is_fenced_or_came_first(
    stage: Stage, outcome: Callable[..., Commit], fates: set[bool]
) -> Race:
    claim = await _doomed(stage)
    late = outcome(claim, *EFFECTS)
    yield Duel(part(Reclaim(owners=["dead"])), part(late), seen=handed(claim))
    row = (await stage.content()).instances["x"]
    fates.add(late.fenced)
    if late.fenced:
        assert (row.status, row.attempt, row.crashes) == ("runnable", 1, 1)
        await _untouched(stage)
    else:
        assert row.step == late.decision.step, "if anything was reclaimed, it is the next step"
        await _arrived(stage)


async def test_fault_27_an_outcome_of_a_zombie_after_that_of_its_successor_changes_nothing(
    stage: Stage, outcome: Callable[..., Commit]
) -> None:
    claim = await _doomed(stage)
    await stage.one.run(Reclaim(owners=["dead"]))
    [successor] = await stage.claim("next")
    assert successor.id == "x"
    before = await stage.eye.fetch("SELECT i.*, s.n, e.n FROM instances i, (SELECT count(*) n FROM inbox) s, "
                                   "(SELECT count(*) n FROM events) e ORDER BY id")  # fmt: skip
    late = outcome(claim, *EFFECTS)
    await stage.two.run(late)
    assert late.fenced
    await _untouched(stage)
    after = await stage.eye.fetch("SELECT i.*, s.n, e.n FROM instances i, (SELECT count(*) n FROM inbox) s, "
                                  "(SELECT count(*) n FROM events) e ORDER BY id")  # fmt: skip
    assert before == after
    await stage.two.run(done(successor))
    assert (await stage.audited_content()).instances["x"].status == "done"


@race()
async def test_fault_74_a_cancel_at_any_statement_of_an_outcome_wins_or_finds_it_committed(
    stage: Stage, outcome: Callable[..., Commit]
) -> Race:
    claim = await _doomed(stage)
    late = outcome(claim, *EFFECTS)
    cancel = Cancel(target="x")
    yield Duel(part(cancel), part(late), seen=handed(claim))
    content = await stage.content()
    if late.fenced:
        assert "born" not in content.instances
        assert content.kinds("friend") == []
        assert content.awakeables["question"].status == "PENDING"
    else:
        await _arrived(stage)
    ends = {"done": "done", "stop": "failed"}
    ended = "cancelled" if isinstance(cancel.result, str) else ends[late.decision.label]
    assert content.instances["x"].status == ended
    assert all(content.instances[id].status == "cancelled" for id in content.instances if "child-" in id)
    assert content.kinds("parent") == ["children"], "the end of the child counts once"


async def test_fault_74_a_cancel_in_the_turn_of_an_outcome_drops_its_effects_too(
    stage: Stage, outcome: Callable[..., Commit]
) -> None:
    claim = await _doomed(stage)
    late = outcome(claim, *EFFECTS)
    await stage.one.run(late, Cancel(target="x"))
    content = await stage.audited_content()
    assert late.fenced
    assert content.instances.keys() == {"x", "parent", "friend", "reader", "asker"}
    assert [content.kinds(id) for id in ("friend", "reader", "asker")] == [[], [], []]


@race()
async def test_fault_70_a_turn_that_is_sent_again_is_applied_once(stage: Stage, outcome: Callable[..., Commit]) -> Race:
    claim = await _doomed(stage)
    first, again = outcome(claim, *EFFECTS), outcome(claim, *EFFECTS)
    yield Duel(part(first), part(again), seen=handed(claim))
    assert sorted([first.fenced, again.fenced]) == [False, True]
    await _arrived(stage)
    content = await stage.content()
    assert content.instances["x"].epoch == claim.epoch + 1
    assert len(content.instances) <= 8
    assert content.kinds("parent") in ([], ["children"])


@race(deep=True)
async def test_fault_29_a_spawn_concurrent_with_the_reclaim_is_committed_whole_or_not_at_all(stage: Stage) -> Race:
    claim = await stage.executing("x", owner="dead")
    fan = spawn(claim, [new(f"child-{n}") for n in range(3)])
    yield Duel(part(Reclaim(owners=["dead"])), part(fan))
    content = await stage.content()
    children = [row for row in content.instances.values() if row.parent_id == "x"]
    if fan.fenced:
        assert children == []
        assert content.instances["x"].status == "runnable"
    else:
        assert len(children) == 3
        assert content.instances["x"].status == "awaiting_children"
        assert [w.remaining for w in content.waits_of("x")] == [3]


@race()
async def test_fault_26_an_outcome_of_work_that_was_handed_back_is_fenced(
    stage: Stage, outcome: Callable[..., Commit]
) -> Race:
    claim = await _doomed(stage)
    late = outcome(claim, *EFFECTS)
    yield Duel(part(HandBack(claims=[claim], retire="dead")), part(late), seen=handed(claim))
    row = (await stage.content()).instances["x"]
    if late.fenced:
        assert (row.status, row.attempt, row.crashes) == ("runnable", 0, 0)
        await _untouched(stage)
    else:
        await _arrived(stage)


@race(deep=True)
async def test_fault_26_an_outcome_of_a_zombie_concurrent_with_the_claim_of_its_successor_is_fenced_or_came_first(
    stage: Stage,
) -> Race:
    claim = await _doomed(stage)
    late = done(claim, *EFFECTS)
    claiming, _ = yield Duel(part(Reclaim(owners=["dead"]), claim=capacity("next")), part(late), seen=handed(claim))
    assert late.fenced == ("x" in [claim.id for claim in claiming.claims])
    if late.fenced:
        assert (await stage.content()).instances["x"].lease_owner == "next"
        await _untouched(stage)
