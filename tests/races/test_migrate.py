"""V4, V5: an instance is moved to another version, or forked, whatever happens to it at the same moment."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import (
    Cancel,
    Commit,
    Deliver,
    Fork,
    HandBack,
    InstanceMove,
    Migrate,
    Reclaim,
    RetryInstance,
    SettleAwakeable,
    StartInstances,
)  # fmt: skip
from hark.model.activation import Claim, JournalRow
from hark.model.decisions import Settle
from hark.model.errors import Conflict, Duplicate
from hark.model.migration import Migrated
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
    undoable,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
NEWER = f"{DEFINITION}@2"


async def _move(stage: Stage, version: int = 2, earlier: int = 1) -> Migrate:
    """The migration of `x` as it is now: to another step, with another state."""
    epoch = (await stage.content()).instances["x"].epoch
    migrated = Migrated(step=f"step-{version}", state=f'{{"version":{version}}}')
    one = InstanceMove("x", epoch, DEFINITION, "machine", "default", earlier, version, migrated)
    return Migrate(moves=[one], bulk="bulk")


def _answer() -> SettleAwakeable:
    return SettleAwakeable(settle=Settle("question", "RESOLVED", payload="1"), read_owner=True)


async def _parked(stage: Stage) -> None:
    """`x` waits for an answer, a signal and a time."""
    question, wait = asked("question")
    claim = await stage.executing("x", correlation_key="key")
    await stage.one.run(park(claim, on("go"), wait, timer(timeout=MINUTE), awakeables=(question,)))


PARKED: dict[str, Callable[[], Part]] = {
    "a signal": lambda: part(Deliver(target="key", name="go")),
    "another signal": lambda: part(Deliver(target="x", name="other")),
    "an answer": lambda: part(_answer()),
    "a deadline": lambda: part(sweep=True),
    "a cancel": lambda: part(Cancel(target="x")),
    "a retry": lambda: part(RetryInstance(target="x")),
    "a signal and its claim": lambda: part(Deliver(target="x", name="go"), claim=capacity("old")),
}


@pytest.mark.parametrize("other", PARKED.values(), ids=PARKED)
@race()
async def test_v4_a_migration_concurrent_with_what_may_happen_to_a_parked_instance(
    stage: Stage, other: Callable[[], Part]
) -> Race:
    await _parked(stage)
    stage.clock.advance(MINUTE)
    migrate = await _move(stage)
    _, theirs = yield Duel(part(migrate), other())
    [answer] = migrate.result
    content = await stage.content()
    row = content.instances["x"]
    if isinstance(answer, Conflict):
        assert (row.version, row.step) == (1, "after-await")
        assert row.status in ("cancelled", "executing")
        return
    assert (row.version, row.lane, row.step, row.state) == (2, NEWER, "step-2", '{"version":2}')
    assert not theirs.claims  # the claim of the earlier version came first, or not at all
    if row.status == "cancelled":
        assert not content.waits_of("x")
        return
    assert row.holds_key
    assert len(content.waits_of("x")) == 3
    if row.status == "runnable":  # woken: the new version goes on with what has come
        assert (await stage.one.run(claim=capacity("old"))).claims == []
        [claim] = (await stage.one.run(claim=capacity("new", version=2))).claims
        assert claim.inbox
        assert (claim.step, len(claim.waits)) == ("step-2", 3)


EXECUTING: dict[str, Callable[[Claim], Part]] = {
    "a step that goes on": lambda claim: part(advance(claim)),
    "a park": lambda claim: part(park(claim, on("again"))),
    "an end": lambda claim: part(done(claim)),
    "a failure": lambda claim: part(stop(claim)),
    "code that does not fit": lambda claim: part(hold(claim)),
    "a hand-back": lambda claim: part(HandBack(claims=[claim])),
    "a reclaim": lambda claim: part(Reclaim(owners=["worker"])),
    "a cancel": lambda claim: part(Cancel(target="x")),
}


@pytest.mark.parametrize("other", EXECUTING.values(), ids=EXECUTING)
@race()
async def test_v4_a_migration_of_an_instance_that_executes_writes_nothing(
    stage: Stage, other: Callable[[Claim], Part]
) -> Race:
    """Its state may be that of before the outcome: the epoch tells."""
    claim = await stage.executing("x")
    migrate, outcome = await _move(stage), other(claim)
    yield Duel(part(migrate), outcome)
    [answer] = migrate.result
    assert isinstance(answer, Conflict)
    assert not getattr(outcome.requests[0], "fenced", False)
    row = (await stage.content()).instances["x"]
    assert (row.version, row.status == "executing") == (1, row.step == "after-next")


@race()
async def test_v4_a_migration_that_was_computed_before_the_outcome_of_a_claim_writes_nothing(stage: Stage) -> Race:
    await stage.start("x")
    migrate = await _move(stage)
    ours, _ = yield Duel(part(claim=capacity("worker")), part(migrate))
    [answer] = migrate.result
    row = (await stage.content()).instances["x"]
    assert (row.version, len(ours.claims)) == ((1, 1) if isinstance(answer, Conflict) else (2, 0))


@race()
async def test_v4_two_migrations_of_one_instance_move_it_once(stage: Stage) -> Race:
    await _parked(stage)
    one, two = await _move(stage), await _move(stage)
    yield Duel(part(one), part(two))
    assert sorted(isinstance(answer, Conflict) for [answer] in (one.result, two.result)) == [False, True]
    assert await stage.eye.fetchval("SELECT count(*) FROM events WHERE type = 'migrated'") == 1


@race()
async def test_v4_a_migration_and_a_retry_of_a_failed_instance(stage: Stage) -> Race:
    claim = await stage.executing("x", correlation_key="key")
    await stage.one.run(stop(claim))
    migrate, again = await _move(stage), RetryInstance(target="x")
    yield Duel(part(migrate), part(again))
    [answer] = migrate.result
    row = (await stage.content()).instances["x"]
    assert (again.result, row.status) == ("x", "runnable")
    assert row.version == (1 if isinstance(answer, Conflict) else 2)


@race()
async def test_v4_a_migration_and_the_release_of_a_held_instance_by_code_that_fits(stage: Stage) -> Race:
    claim = await stage.executing("x")
    await stage.one.run(hold(claim))
    migrate = await _move(stage)
    other = {"codes": {f"{DEFINITION}@1": "other"}, "try_held": True}
    _, theirs = yield Duel(part(migrate), part(claim=capacity("old", **other)))
    [answer] = migrate.result
    row = (await stage.content()).instances["x"]
    if isinstance(answer, Conflict):
        assert (row.version, row.status, len(theirs.claims)) == (1, "executing", 1)
    else:
        assert (row.version, row.status, row.held_by, theirs.claims) == (2, "runnable", None, [])


async def test_v4_an_instance_that_is_moved_and_cancelled_in_one_turn_is_moved_first(stage: Stage) -> None:
    """Else the migration would write over the step of the undo that the cancel begins."""
    claim = await stage.executing("x")
    ahead = undoable(claim)
    turn = await stage.one.run(ahead)
    claim.run_ahead(ahead.decision, turn.now, [])
    await stage.one.run(park(claim, on("go")))
    migrate, cancel = await _move(stage), Cancel(target="x")
    await stage.one.run(cancel, migrate)
    assert (migrate.result, cancel.result) == (["x"], "x")
    row = (await stage.content()).instances["x"]
    assert (row.version, row.status) == (2, "cancelled")  # the new version has nothing to undo


async def test_v4_the_outcome_of_a_claim_from_before_a_migration_is_refused(stage: Stage) -> None:
    """The claim was lost and given back while its worker was frozen; then the instance was moved."""
    claim = await stage.executing("x")
    await stage.eye.execute("UPDATE instances SET status = 'runnable', lease_owner = NULL WHERE id = 'x'")
    await stage.one.run(await _move(stage))
    late = advance(claim)
    await stage.two.run(late)
    assert late.fenced
    assert (await stage.content()).instances["x"].step == "step-2"


FORKED: dict[str, Callable[[Claim], Part]] = {
    "an outcome": lambda claim: part(park(claim, on("again"))),
    "an end": lambda claim: part(done(claim)),
    "code that does not fit": lambda claim: part(hold(claim)),
    "a signal": lambda claim: part(Deliver(target="key", name="other")),
    "an answer": lambda claim: part(_answer()),
    "a cancel": lambda claim: part(Cancel(target="x")),
    "a claim": lambda claim: part(claim=capacity("theirs")),
}


@pytest.mark.parametrize("other", FORKED.values(), ids=FORKED)
@race()
async def test_v5_a_fork_concurrent_with_what_may_happen_to_the_other_instance(
    stage: Stage, other: Callable[[Claim], Part]
) -> Race:
    """Each of them is as if it were alone."""
    await _parked(stage)
    await stage.one.run(Deliver(target="x", name="go"))
    [claim] = await stage.claim()
    alone = other(claim)
    ours, theirs = yield Duel(part(_fork("copy"), claim=capacity("ours")), alone)
    [copied] = [claim for claim in (*ours.claims, *theirs.claims) if claim.id == "copy"]
    assert (copied.has_run, copied.inbox, copied.waits) == (True, [], [])
    content = await stage.content()
    assert content.instances["copy"].forked_from == "x"
    assert not content.instances["copy"].holds_key
    assert await _lines_of(stage, "copy") == 2
    row, request = content.instances["x"], next(iter(alone.requests), None)
    match request:
        case Commit():
            assert (request.fenced, row.status == "executing") == (False, False)
        case Cancel():
            assert row.status == "cancelled"
        case _:
            assert (row.status, row.epoch) == ("executing", claim.epoch)
    if isinstance(request, Deliver | SettleAwakeable):
        assert content.kinds("x")[-1] in ("other", "awakeable")


@race()
async def test_v5_a_fork_concurrent_with_a_retry_of_the_other_instance(stage: Stage) -> Race:
    await stage.one.run(stop(await stage.executing("x", correlation_key="key")))
    again = RetryInstance(target="x")
    yield Duel(part(_fork("copy")), part(again))
    content = await stage.content()
    assert {id: (row.status, row.holds_key) for id, row in content.instances.items()} == {
        "x": ("runnable", True), "copy": ("runnable", False),
    }  # fmt: skip
    assert await _lines_of(stage, "copy") == 2


async def _lines_of(stage: Stage, id: str) -> int:
    found: int = await stage.eye.fetchval("SELECT count(*) FROM journal WHERE instance_id = $1", id)
    return found


def _fork(id: str, **options: str) -> Fork:
    lines = [JournalRow(seq, seq, "run", "work", "1", None) for seq in range(2)]
    return Fork(start=StartInstances(items=[new(id, **options)]), source="x", at=1, journal=lines)


@race()
async def test_v5_two_forks_with_one_key_are_one_instance_with_its_whole_journal(stage: Stage) -> Race:
    claim = await stage.executing("x")
    await stage.one.run(done(claim))
    one, two = (_fork(id, correlation_key="again") for id in "ab")
    yield Duel(part(one), part(two))
    [refused] = [request for request in (one, two) if isinstance(request.result, Duplicate)]
    [started] = [request.result for request in (one, two) if request is not refused]
    content = await stage.content()
    assert set(content.instances) == {"x", started}
    row = content.instances[started]
    assert (row.forked_from, row.has_run, row.status) == ("x", True, "runnable")
    assert await _lines_of(stage, started) == 2
