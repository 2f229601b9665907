"""X8: a cancel against the commits of what it has to undo, in every order."""

from collections.abc import Callable

import pytest

from hark.kernel.requests import Cancel, Commit
from hark.model.activation import Claim
from hark.model.decisions import UNDO, JournalLine
from hark.model.errors import Conflict
from tests.support.stage import IN_BOTH_WAYS, Duel, Race, Stage, part, race
from tests.support.turns import advance, capacity, done, new, on, park, spawn

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _reason(stage: Stage, id: str = "a") -> str | None:
    reason: str | None = await stage.eye.fetchval("SELECT cancel_reason FROM instances WHERE id = $1", id)
    return reason


async def _status(stage: Stage, id: str = "a") -> str:
    return str((await stage.content()).instances[id].status)


async def _undoable(stage: Stage, id: str = "a") -> Claim:
    """Executing, with something to undo."""
    claim = await stage.executing(id)
    await stage.eye.execute("UPDATE instances SET on_cancel = 'undo' WHERE id = $1", id)
    claim.on_cancel = UNDO
    return claim


async def _undoing(stage: Stage, id: str = "a") -> Claim:
    """Executing its undo."""
    await _undoable(stage, id)
    await stage.one.run(Cancel(target=id, reason="first"))
    [claim] = await stage.claim()
    assert (claim.id, claim.step, claim.cancel_reason) == (id, UNDO, "first")
    return claim


def _result(claim: Claim, *, first: bool) -> Commit:
    """A function commits the result of a run with an undo."""
    commit = advance(claim)
    commit.decision.journal = [JournalLine(0, 0, "run", "reserve", '"r1"')]
    if first:
        commit.decision.has_undo = True
    return commit


@race(deep=True)
async def test_x8_a_cancel_against_the_result_that_is_the_first_to_undo(stage: Stage, fates: set[bool]) -> Race:
    """Either the result is recorded and undone, or the cancel came first and the instance has ended."""
    late = _result(await stage.executing("a"), first=True)
    assert not late.decision.is_advance()
    yield Duel(part(late), part(Cancel(target="a", reason="enough")))
    fates.add(late.fenced)
    lines = await stage.eye.fetchval("SELECT count(*) FROM journal WHERE instance_id = 'a'")
    if late.fenced:
        assert (await _status(stage), await _reason(stage), lines) == ("cancelled", None, 0)
    else:
        assert (await _status(stage), await _reason(stage), lines) == ("runnable", "enough", 1)
    await stage.eye.execute("DELETE FROM journal")


@race(deep=True)
async def test_x8_a_cancel_against_a_further_result(stage: Stage, fates: set[bool]) -> Race:
    """An advance turn: the undo runs in any case, and knows the result if it was recorded first."""
    late = _result(await _undoable(stage), first=False)
    assert late.decision.is_advance()
    yield Duel(part(late, plain=True), part(Cancel(target="a", reason="enough")))
    fates.add(late.fenced)
    lines = await stage.eye.fetchval("SELECT count(*) FROM journal WHERE instance_id = 'a'")
    assert lines == (0 if late.fenced else 1)
    assert (await _status(stage), await _reason(stage)) == ("runnable", "enough")
    await stage.eye.execute("DELETE FROM journal")


@race(deep=True)
async def test_x8_a_cancel_against_the_end_of_what_it_would_undo(stage: Stage) -> Race:
    """An instance that has ended is not undone."""
    ending, cancel = done(await _undoable(stage)), Cancel(target="a", reason="enough")
    yield Duel(part(ending), part(cancel))
    assert ending.fenced != isinstance(cancel.result, Conflict)
    assert await _status(stage) == ("runnable" if ending.fenced else "done")


@pytest.mark.parametrize("outcome", [advance, done, lambda claim: park(claim, on("released"))])
@race(deep=True)
async def test_x8_a_forced_cancel_against_the_commit_of_an_undo(
    stage: Stage, outcome: Callable[[Claim], Commit]
) -> Race:
    late, cancel = outcome(await _undoing(stage)), Cancel(target="a", reason="now", force=True)
    yield Duel(part(late), part(cancel))
    assert (await _status(stage), await _reason(stage)) == ("cancelled", None)
    error = await stage.eye.fetchval("SELECT error FROM instances WHERE id = 'a'")
    assert error == ("first" if isinstance(cancel.result, Conflict) else "now")
    assert await stage.drain() == []


@race(deep=True)
async def test_x8_two_cancels_start_one_undo(stage: Stage) -> Race:
    claim = await _undoable(stage)
    cancels = [Cancel(target="a", reason=reason) for reason in ("one", "two")]
    yield Duel(part(cancels[0]), part(cancels[1]))
    assert [cancel.result for cancel in cancels] == ["a", "a"]
    assert await _reason(stage) in ("one", "two")
    assert (await stage.content()).instances["a"].epoch == claim.epoch + 1
    begun = await stage.eye.fetchval("SELECT count(*) FROM events WHERE type = 'cancelling'")
    assert begun == 1


@race(deep=True)
async def test_x8_a_plain_and_a_forced_cancel_end_the_instance(stage: Stage) -> Race:
    await _undoable(stage)
    plain, forced = Cancel(target="a", reason="plain"), Cancel(target="a", reason="forced", force=True)
    yield Duel(part(plain), part(forced))
    assert forced.result == "a"
    assert plain.result == "a" or isinstance(plain.result, Conflict)
    assert (await _status(stage), await _reason(stage)) == ("cancelled", None)


@IN_BOTH_WAYS
@race(deep=True)
async def test_x8_a_cancel_against_the_claim_of_the_undo(stage: Stage) -> Race:
    """The claim finds the undo or nothing; it never gets the interrupted step."""
    await _undoable(stage)
    claiming = part(claim=capacity("other"))
    _, claimed = yield Duel(part(Cancel(target="a", reason="enough")), claiming)
    for claim in claimed.claims:
        assert (claim.step, claim.cancel_reason) == (UNDO, "enough")


@race(deep=True)
async def test_x8_a_child_started_during_a_cancel_is_cancelled_before_its_parent_undoes(stage: Stage) -> Race:
    fan = spawn(await _undoable(stage), [new("child")])
    yield Duel(part(fan), part(Cancel(target="a", reason="enough")))
    content = await stage.content()
    assert content.instances["a"].status == "runnable"
    assert fan.fenced or content.instances["child"].status == "cancelled"
    assert content.waits == []
