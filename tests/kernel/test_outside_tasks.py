"""Tasks for workers outside, in the kernel: what a fetch takes, and that everything later is fenced."""

from typing import Any

import pytest

from hark.kernel.requests import Cancel, Commit, CommitTask, FetchTasks, HandBack, Reclaim, RenewTask, StartInstances
from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, NewInstance
from hark.model.errors import TaskLost
from tests.promises.support_signals import Turns, rows
from tests.support.stores import Store
from tests.support.turns import ask

LANE = "task:resize"


@pytest.fixture
def turns(turns_by_hand: Turns) -> Turns:
    return turns_by_hand


async def start(turns: Turns, *ids: str, **options: Any) -> None:
    given = {"lane": LANE, "kind": "task", "step": "resize", "queue": "default", "version": 1, **options}
    items = [NewInstance("J", "{}", id, named=True, **given) for id in ids]
    assert await ask(turns, StartInstances(items=items)) == [[*ids]]


async def fetch(turns: Turns, *lanes: str, most: int = 10) -> list[Claim]:
    [tasks] = await ask(turns, FetchTasks(lanes=lanes or (LANE,), most=most, info='{"lease": 60}'))
    return list(tasks)


def complete(claim: Claim) -> CommitTask:
    decision = Decision("done", claim.step, claim.state, Finish("done", result="1"))
    return CommitTask(commit=Commit(claim=claim, decision=decision))


async def test_j11_a_fetch_takes_the_most_urgent_tasks_of_its_handlers_from_every_queue(turns: Turns) -> None:
    await start(turns, "late", priority=5)
    await start(turns, "slow", queue="slow", priority=1)
    await start(turns, "early", "other", priority=0)
    await start(turns, "foreign", lane="task:publish")
    await start(turns, "graph", lane="job", kind="job", queue="hark.graphs")
    assert [claim.id for claim in await fetch(turns, most=3)] == ["early", "other", "slow"]
    assert [claim.id for claim in await fetch(turns, "task:publish", LANE, "job")] == ["foreign", "late"]
    assert await fetch(turns) == []


async def test_j11_a_fetch_keeps_to_concurrency_keys(turns: Turns) -> None:
    await start(turns, "a", "b", concurrency_key="printer")
    await start(turns, "c")
    claims = await fetch(turns)
    assert {claim.id for claim in claims} == {"a", "c"}
    assert await fetch(turns) == []
    await turns.run(complete(next(claim for claim in claims if claim.id == "a")))
    assert [claim.id for claim in await fetch(turns)] == ["b"]


async def test_j7_a_fetch_that_finds_a_concurrency_key_taken_asks_for_it(turns: Turns) -> None:
    """A handler that waits in its slot may have the key: it leaves when a turn has refused the key to other work."""
    await start(turns, "a", "b", concurrency_key="printer")
    turn = await turns.run(FetchTasks(lanes=(LANE,), most=2, info='{"lease": 60}'))
    assert turn.pending.refused_keys


async def test_j11_the_lease_of_a_task_ends_when_the_task_is_cancelled_or_handed_back(turns: Turns) -> None:
    await start(turns, "a", "b", "c")
    claims = await fetch(turns)
    await turns.run(HandBack(claims=claims[:1], outside=True), Cancel(target="b"))
    left = await rows(turns.made_for, "SELECT i.id FROM workers w JOIN instances i ON i.lease_owner = w.id")
    assert left == await rows(turns.made_for, "SELECT 'c' FROM workers") == [("c",)]
    assert [claim.id for claim in await fetch(turns)] == ["a"]


async def test_x2_what_a_worker_reports_after_another_has_its_task_changes_nothing(store: Store) -> None:
    now = 1_800_000_000_000_000

    async with Turns(store, lambda: now) as turns:
        await start(turns, "a")
        [lost] = await fetch(turns)
        [[owner, until]] = await rows(store, "SELECT id, until FROM workers")
        now += 3_600_000_000
        await turns.run(Reclaim(owners=[owner], leases={owner: until}))
        assert await rows(store, "SELECT id FROM workers") == []
        [held] = await fetch(turns)
        assert (held.id, held.crashes) == ("a", 1)
        before = await rows(store, "SELECT id, until FROM workers")
        now += 1_000_000
        late = RenewTask(id="a", epoch=lost.epoch), complete(lost), RenewTask(id="deleted", epoch=1)
        refused = await ask(turns, *late)
        assert [type(answer) for answer in refused] == [TaskLost] * 3
        assert (refused[0].status, refused[2].status) == ("executing", "deleted")
        assert await rows(store, "SELECT id, until FROM workers") == before
        assert await ask(turns, RenewTask(id="a", epoch=held.epoch)) == [now + 60_000_000]
        assert await ask(turns, complete(held)) == [None]
        assert await rows(store, "SELECT id FROM workers") == []
