"""Tasks against their parent, in both orders: every end arrives once, and no task runs for a parent that has ended."""

import json

import pytest

from hark.kernel.requests import Cancel, CommitNote, Request, RetryInstance, StartInstances
from hark.model.activation import Claim
from hark.model.decisions import Arm, Effect, NewInstance, NewTask, RetryChild, TellParent
from hark.model.epochs import count_of
from hark.model.errors import Conflict, Duplicate
from hark.model.notes import NoteParent
from hark.store.protocol import Conflicted
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import DEFINITION, done, new, park, stop

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENDS = "w-ends"


def tasks(*ids: str) -> list[Effect]:
    """In the lane of the definition that the stage can run."""
    return [
        NewTask(
            NewInstance(
                DEFINITION, "{}", id, named=True, version=1, step="s", lane=f"{DEFINITION}@1", kind="task",
                queue="default",
            ),
            ENDS,
        )
        for id in ids
    ]  # fmt: skip


async def parked(stage: Stage, *ids: str) -> list[Claim]:
    """The parent `p` is parked, and these tasks execute."""
    parent = await stage.executing("p")
    arm = Arm("children", ENDS, "ends", answers_each=True)
    await stage.one.run(park(parent, arm, effects=tasks(*ids), disarm=()))
    claims = {claim.id: claim for claim in await stage.claim(room=len(ids))}
    return [claims[id] for id in ids]


async def woken(stage: Stage, *ending: Request) -> Claim:
    """The parent, which executes again after these ends."""
    await stage.one.run(*ending)
    [claim] = await stage.claim()
    assert claim.id == "p"
    return claim


async def ends(stage: Stage) -> list[tuple[str, str]]:
    """The ends that the parent has not taken, as id and status."""
    rows = await stage.eye.fetch(
        "SELECT name, payload FROM inbox WHERE instance_id = 'p' AND consumed_at IS NULL ORDER BY seq"
    )
    return sorted((name, json.loads(payload)["status"]) for name, payload in rows)


@race(deep=True)
async def test_a_task_that_ends_while_its_parent_parks_wakes_it(stage: Stage) -> Race:
    first, second = await parked(stage, "p.0", "p.1")
    parent = await woken(stage, done(first))
    yield Duel(part(park(parent, disarm=(), effects=tasks("p.2"))), part(stop(second)))
    assert await ends(stage) == [("p.1", "failed")]
    assert (await stage.content()).instances["p"].status == "runnable"
    [claim] = [claim for claim in await stage.claim(room=2) if claim.id == "p"]
    assert ([row.name for row in claim.inbox], claim.children) == (["p.1"], [])


@race(deep=True)
async def test_tasks_that_end_at_once_are_an_answer_each(stage: Stage) -> Race:
    first, second, third = await parked(stage, "p.0", "p.1", "p.2")
    yield Duel(part(done(first), done(third)), part(stop(second)))
    assert await ends(stage) == [("p.0", "done"), ("p.1", "failed"), ("p.2", "done")]


@race(deep=True)
async def test_a_task_that_ends_while_its_parent_is_cancelled_leaves_nothing_behind(stage: Stage) -> Race:
    first, _ = await parked(stage, "p.0", "p.1")
    yield Duel(part(done(first)), part(Cancel(target="p")))
    content = await stage.content()
    assert content.instances["p"].status == content.instances["p.1"].status == "cancelled"
    assert await stage.drain() == []


@race(deep=True)
async def test_a_task_is_not_run_again_for_a_parent_that_is_cancelled(stage: Stage) -> Race:
    [first] = await parked(stage, "p.0")
    parent = await woken(stage, stop(first))
    again = park(parent, effects=[RetryChild("p.0")], disarm=())
    yield Duel(part(again), part(Cancel(target="p")))
    content = await stage.content()
    assert content.instances["p"].status == "cancelled"
    assert content.instances["p.0"].status == ("failed" if again.fenced else "cancelled")
    assert await stage.drain() == []


@race(deep=True)
async def test_a_task_that_is_run_again_while_it_is_cancelled_ends_once(stage: Stage) -> Race:
    """The cancel finds it ended, and is refused, or finds it running again; then its end is an answer."""
    [first] = await parked(stage, "p.0")
    parent = await woken(stage, stop(first))
    cancel = Cancel(target="p.0")
    yield Duel(part(park(parent, effects=[RetryChild("p.0")], disarm=())), part(cancel))
    if isinstance(cancel.result, Conflict):
        [again] = await stage.claim()
        assert again.id == "p.0"
        await stage.one.run(done(again))
    assert len(await ends(stage)) == 1


@race(deep=True)
async def test_an_operator_who_retries_a_task_at_the_same_time_is_refused(stage: Stage) -> Race:
    [first] = await parked(stage, "p.0")
    parent = await woken(stage, stop(first))
    retry = RetryInstance(target="p.0")
    yield Duel(part(park(parent, effects=[RetryChild("p.0")], disarm=())), part(retry))
    assert isinstance(retry.result, Conflict)
    [again] = await stage.drain()
    await stage.one.run(done(again))
    assert await ends(stage) == [("p.0", "done")]


@race(deep=True)
async def test_a_running_task_that_ends_while_it_is_run_again_counts_once_or_runs_again(stage: Stage) -> Race:
    first, second = await parked(stage, "p.0", "p.1")
    parent = await woken(stage, done(first))
    ending = done(second)
    yield Duel(part(park(parent, effects=[RetryChild("p.1")], disarm=())), part(ending))
    # Ended first, it was posted and runs again; run again first, the outcome was fenced.
    assert await ends(stage) == ([] if ending.fenced else [("p.1", "done")])
    [again] = [claim for claim in await stage.drain() if claim.id == "p.1"]
    assert count_of(again.epoch) > count_of(second.epoch)


@pytest.mark.parametrize("task_first", [True, False])
async def test_a_task_and_another_start_of_its_id_are_not_both_inserted(stage: Stage, task_first: bool) -> None:
    """The ids of tasks are not reserved: the second insert waits, and its turn runs again and finds the id taken."""
    await stage.clear()
    [first] = await parked(stage, "p.0")
    parent = await woken(stage, done(first))
    start, starting = StartInstances(items=[new("p.1")]), park(parent, effects=tasks("p.1"), disarm=())
    ours, theirs = stage.one.act(part(starting)), stage.two.act(part(start))
    lead, follow = (ours, theirs) if task_first else (theirs, ours)
    await lead.before("commit")
    assert await follow.run() == "blocked"
    await lead.finish()
    with pytest.raises(Conflicted):  # the clerk runs such a turn again
        await follow.finish()
    if task_first:
        await stage.two.run(start)
        [refused] = start.result
        assert isinstance(refused, Duplicate)
        assert [claim.id for claim in await stage.claim(room=5)] == ["p.1"]
    else:
        await stage.one.run(starting)
        assert await ends(stage) == [("p.1", "refused")]
    await stage.audited_content()


@pytest.mark.parametrize("how", ["effect", "note"])
@race(deep=True)
async def test_b4_what_a_child_tells_its_parent_while_that_parks_wakes_it(stage: Stage, how: str) -> Race:
    first, second = await parked(stage, "p.0", "p.1")
    parent = await woken(stage, done(first))
    payload = '{"status":"escalated"}'
    telling: Request = CommitNote(note=NoteParent(second.id, second.epoch, "p", ENDS, payload=payload))
    if how == "effect":
        telling = park(second, effects=[TellParent(payload)], disarm=())
        telling.decision.move.arm = (Arm("timer", "w-later", timeout=10**9),)
    yield Duel(part(park(parent, disarm=())), part(telling))
    assert await ends(stage) == [("p.1", "escalated")]
    assert (await stage.content()).instances["p"].status == "runnable"


@race(deep=True)
async def test_b4_a_child_that_tells_its_parent_while_that_is_cancelled_does_not_deadlock(stage: Stage) -> Race:
    [child] = await parked(stage, "p.0")
    telling = CommitNote(note=NoteParent(child.id, child.epoch, "p", ENDS, payload='{"status":"escalated"}'))
    yield Duel(part(telling), part(Cancel(target="p")))
    content = await stage.content()
    assert content.instances["p"].status == content.instances["p.0"].status == "cancelled"
