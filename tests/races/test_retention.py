"""X7: an instance is deleted completely, and nothing is written to it or by it while it is deleted."""

import pytest

from hark.kernel.requests import Deliver, Retain, RetryInstance, SignalWithStart, StartInstances
from hark.model.errors import Duplicate, NoTarget, NotFound
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, advance, done, new, on, spawn, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def _old(stage: Stage) -> Retain:
    stage.clock.advance(10 * MINUTE)
    return await _finished(stage, stage.clock.now - MINUTE)


async def _finished(stage: Stage, before: int) -> Retain:
    """The request of the clerk: the finished instances, read before the turn."""
    ids = await stage.eye.fetch("SELECT id FROM instances WHERE finished_at < $1 ORDER BY finished_at, id", before)
    return Retain(before=before, ids=[row[0] for row in ids])


async def _nothing_is_left_of(stage: Stage, id: str) -> None:
    for table in ("inbox", "waits", "awakeables", "events"):
        assert await stage.eye.fetchval(f"SELECT count(*) FROM {table} WHERE instance_id = $1", id) == 0, table


@race(deep=True)
async def test_x7_a_redelivery_concurrent_with_the_deletion_is_a_duplicate_or_has_no_target(stage: Stage) -> Race:
    await stage.start("x")
    await stage.one.run(Deliver(target="x", name="paid", dedup_key="evt"))
    [claim] = await stage.claim()
    await stage.one.run(done(claim))
    again = Deliver(target="x", name="paid", dedup_key="evt")
    yield Duel(part(await _old(stage)), part(again))
    assert isinstance(again.result, NoTarget) or again.result.status == "duplicate"
    if not (await stage.content()).instances:
        await _nothing_is_left_of(stage, "x")


@race(deep=True)
async def test_x7_a_retry_concurrent_with_the_deletion_comes_first_or_finds_nothing(stage: Stage) -> Race:
    await stage.one.run(stop(await stage.executing("x", correlation_key="order:1")))
    revive = RetryInstance(target="x")
    yield Duel(part(await _old(stage)), part(revive))
    rows = (await stage.content()).instances
    if isinstance(revive.result, NotFound):
        assert rows == {}
        await _nothing_is_left_of(stage, "x")
    else:
        assert rows["x"].status == "runnable"


@race(deep=True)
async def test_x7_a_forever_key_stays_taken_while_its_holder_is_deleted(stage: Stage) -> Race:
    await stage.one.run(done(await stage.executing("x", correlation_key="order:1", scope="forever")))
    start = StartInstances(items=[new("y", correlation_key="order:1")])
    yield Duel(part(await _old(stage)), part(start))
    [answer] = start.result
    assert isinstance(answer, Duplicate)
    assert answer.holder == "x"


@race(deep=True)
async def test_x7_signal_with_start_concurrent_with_the_deletion_of_the_last_holder_starts_another(
    stage: Stage,
) -> Race:
    await stage.one.run(done(await stage.executing("x", correlation_key="order:1")))
    joint = SignalWithStart(item=new("y", correlation_key="order:1"), name="paid")
    yield Duel(part(await _old(stage)), part(joint))
    assert joint.result == "y"
    assert (await stage.content()).kinds("y") == ["paid"]


@race()
async def test_x7_two_concurrent_deletions_do_not_wait_for_each_other(stage: Stage) -> Race:
    claims = [await stage.executing(id) for id in "abcd"]
    await stage.one.run(*(done(claim) for claim in claims))
    await stage.parked("x", on("item"))
    for key in (None, "evt", None):
        await stage.one.run(Deliver(target="x", name="item", payload="1", dedup_key=key))
    [claim] = await stage.claim()
    await stage.one.run(advance(claim))
    ours, theirs = await _old(stage), await _old(stage)
    ours.size = theirs.size = 2
    yield Duel(part(ours), part(theirs))
    assert not set(ours.result) & set(theirs.result)
    content = await stage.content()
    assert len(content.instances) == 5 - len(ours.result) - len(theirs.result)
    assert "x" in content.instances


@race(deep=True)
async def test_x7_a_child_can_end_while_its_finished_parent_is_deleted(stage: Stage) -> Race:
    await stage.one.run(spawn(await stage.executing("parent"), [new("a"), new("b")], join=1))
    first, second = await stage.claim(room=2)
    await stage.one.run(done(first))
    [claim] = await stage.claim()
    await stage.one.run(done(claim))
    assert claim.id == "parent"
    yield Duel(part(await _old(stage)), part(done(second)))
    assert (await stage.content()).instances[second.id].status == "done"
    await stage.one.run(await _old(stage))
    assert (await stage.audited_content()).instances == {}
