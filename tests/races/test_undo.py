"""X8: a cancel against the commits of what it has to undo, in every order."""

import pytest

from hark.kernel.requests import Cancel, Commit
from hark.kernel.result import TurnResult
from hark.model.activation import Claim
from hark.model.decisions import UNDO, JournalLine
from hark.model.errors import Conflict
from tests.support.stage import IN_BOTH_WAYS, Duel, Stage, part
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


async def test_x8_a_cancel_against_the_result_that_is_the_first_to_undo(stage: Stage) -> None:
    """Either the result is recorded and undone, or the cancel came first and the instance has ended."""
    fates = set()

    async def prepare() -> Duel:
        late = _result(await stage.executing("a"), first=True)
        assert not late.decision.is_advance()

        async def check(one: TurnResult, two: TurnResult) -> None:
            fates.add(late.fenced)
            lines = await stage.eye.fetchval("SELECT count(*) FROM journal WHERE instance_id = 'a'")
            if late.fenced:
                assert (await _status(stage), await _reason(stage), lines) == ("cancelled", None, 0)
            else:
                assert (await _status(stage), await _reason(stage), lines) == ("runnable", "enough", 1)
            await stage.eye.execute("DELETE FROM journal")

        return Duel(part(late), part(Cancel(target="a", reason="enough")), check)

    await stage.explore(prepare, deep=True)
    assert fates == {False, True}


async def test_x8_a_cancel_against_a_further_result(stage: Stage) -> None:
    """An advance turn: the undo runs in any case, and knows the result if it was recorded first."""
    fates = set()

    async def prepare() -> Duel:
        late = _result(await _undoable(stage), first=False)
        assert late.decision.is_advance()

        async def check(one: TurnResult, two: TurnResult) -> None:
            fates.add(late.fenced)
            lines = await stage.eye.fetchval("SELECT count(*) FROM journal WHERE instance_id = 'a'")
            assert lines == (0 if late.fenced else 1)
            assert (await _status(stage), await _reason(stage)) == ("runnable", "enough")
            await stage.eye.execute("DELETE FROM journal")

        return Duel(part(late, plain=True), part(Cancel(target="a", reason="enough")), check)

    await stage.explore(prepare, deep=True)
    assert fates == {False, True}


async def test_x8_a_cancel_against_the_end_of_what_it_would_undo(stage: Stage) -> None:
    """What has ended is not undone."""

    async def prepare() -> Duel:
        ending, cancel = done(await _undoable(stage)), Cancel(target="a", reason="enough")

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert ending.fenced != isinstance(cancel.result, Conflict)
            assert await _status(stage) == ("runnable" if ending.fenced else "done")

        return Duel(part(ending), part(cancel), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_forced_cancel_against_the_commit_of_an_undo(stage: Stage) -> None:
    for outcome in (advance, done, lambda claim: park(claim, on("released"))):

        async def prepare(outcome=outcome) -> Duel:  # type: ignore[no-untyped-def]
            late, cancel = outcome(await _undoing(stage)), Cancel(target="a", reason="now", force=True)

            async def check(one: TurnResult, two: TurnResult) -> None:
                assert (await _status(stage), await _reason(stage)) == ("cancelled", None)
                error = await stage.eye.fetchval("SELECT error FROM instances WHERE id = 'a'")
                assert error == ("first" if isinstance(cancel.result, Conflict) else "now")
                assert await stage.drain() == []

            return Duel(part(late), part(cancel), check)

        await stage.explore(prepare, deep=True)


async def test_x8_two_cancels_start_one_undo(stage: Stage) -> None:
    async def prepare() -> Duel:
        claim = await _undoable(stage)
        cancels = [Cancel(target="a", reason=reason) for reason in ("one", "two")]

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert [cancel.result for cancel in cancels] == ["a", "a"]
            assert await _reason(stage) in ("one", "two")
            assert (await stage.content()).instances["a"].epoch == claim.epoch + 1
            begun = await stage.eye.fetchval("SELECT count(*) FROM events WHERE type = 'cancelling'")
            assert begun == 1

        return Duel(part(cancels[0]), part(cancels[1]), check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_plain_and_a_forced_cancel_end_the_instance(stage: Stage) -> None:
    async def prepare() -> Duel:
        await _undoable(stage)
        plain, forced = Cancel(target="a", reason="plain"), Cancel(target="a", reason="forced", force=True)

        async def check(one: TurnResult, two: TurnResult) -> None:
            assert forced.result == "a"
            assert plain.result == "a" or isinstance(plain.result, Conflict)
            assert (await _status(stage), await _reason(stage)) == ("cancelled", None)

        return Duel(part(plain), part(forced), check)

    await stage.explore(prepare, deep=True)


@IN_BOTH_WAYS
async def test_x8_a_cancel_against_the_claim_of_the_undo(stage: Stage) -> None:
    """The claim finds the undo or nothing; it never gets the interrupted step."""

    async def prepare() -> Duel:
        await _undoable(stage)
        claiming = part(claim=capacity("other"))

        async def check(cancelling: TurnResult, claimed: TurnResult) -> None:
            for claim in claimed.claims:
                assert (claim.step, claim.cancel_reason) == (UNDO, "enough")

        return Duel(part(Cancel(target="a", reason="enough")), claiming, check)

    await stage.explore(prepare, deep=True)


async def test_x8_a_child_started_during_a_cancel_is_cancelled_before_its_parent_undoes(stage: Stage) -> None:
    async def prepare() -> Duel:
        fan = spawn(await _undoable(stage), [new("child")])

        async def check(one: TurnResult, two: TurnResult) -> None:
            content = await stage.content()
            assert content.instances["a"].status == "runnable"
            assert fan.fenced or content.instances["child"].status == "cancelled"
            assert content.waits == []

        return Duel(part(fan), part(Cancel(target="a", reason="enough")), check)

    await stage.explore(prepare, deep=True)
