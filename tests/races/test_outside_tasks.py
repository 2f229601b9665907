"""Tasks of workers outside against concurrent turns: each is fetched once, and one report of it counts."""

import pytest

from hark.kernel.requests import Cancel, Commit, CommitTask, FetchTasks, Reclaim, RenewTask, StartInstances
from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, NewInstance
from hark.model.errors import TaskLost
from hark.model.outside import OWNER
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import DEFINITION

pytestmark = pytest.mark.asyncio(loop_scope="module")
LANE = "task:resize"


async def _start(stage: Stage, *ids: str) -> None:
    items = [
        NewInstance(DEFINITION, "{}", id, named=True, version=1, step="resize", queue="default", lane=LANE, kind="task")
        for id in ids
    ]
    await stage.one.run(StartInstances(items=items))


def _fetch(most: int = 1) -> FetchTasks:
    return FetchTasks(lanes=(LANE,), most=most, info='{"lease": 60}')


async def _fetched(stage: Stage, id: str) -> Claim:
    await _start(stage, id)
    request = _fetch()
    await stage.one.run(request)
    [claim] = request.result
    return claim


def _complete(claim: Claim) -> CommitTask:
    decision = Decision("done", claim.step, claim.state, Finish("done", result="1"))
    return CommitTask(commit=Commit(claim=claim, decision=decision))


async def _lease(stage: Stage) -> dict[str, int | None]:
    rows = await stage.eye.fetch("SELECT id, until FROM workers WHERE id LIKE $1", f"{OWNER}%")
    return {row["id"]: row["until"] for row in rows}


@race(deep=True)
async def test_j11_two_servers_that_fetch_at_once_give_each_task_to_one_worker(stage: Stage) -> Race:
    await _start(stage, "x", "y", "z")
    fetches = [_fetch(2), _fetch(2)]
    yield Duel(part(fetches[0]), part(fetches[1]))
    rest = _fetch(3)
    await stage.one.run(rest)
    taken = [claim.id for request in (*fetches, rest) for claim in request.result]
    assert sorted(taken) == ["x", "y", "z"]
    assert len(await _lease(stage)) == 3


@race(deep=True)
async def test_j11_a_report_against_a_reclaim_counts_or_is_lost(stage: Stage) -> Race:
    claim = await _fetched(stage, "x")
    leases = await _lease(stage)
    complete, reclaim = _complete(claim), Reclaim(owners=sorted(leases), leases=leases)
    stage.clock.advance(120_000_000)
    yield Duel(part(complete), part(reclaim))
    row = (await stage.content()).instances["x"]
    if complete.result is None:
        assert row.status == "done"
    else:
        assert isinstance(complete.result, TaskLost)
        assert row.status == "runnable"
    assert await _lease(stage) == {}


@race(deep=True)
async def test_j11_a_heartbeat_against_a_reclaim_keeps_the_task_or_is_lost(stage: Stage) -> Race:
    claim = await _fetched(stage, "x")
    leases = await _lease(stage)
    renew, reclaim = RenewTask(id="x", epoch=claim.epoch), Reclaim(owners=sorted(leases), leases=leases)
    stage.clock.advance(120_000_000)
    yield Duel(part(renew), part(reclaim))
    row = (await stage.content()).instances["x"]
    assert row.status in ("executing", "runnable")
    if isinstance(renew.result, TaskLost):
        assert row.status == "runnable"
    if row.status == "executing":
        assert [renew.result] == list((await _lease(stage)).values())


@race(deep=True)
async def test_j11_a_report_against_a_cancel_counts_or_is_lost(stage: Stage) -> Race:
    complete = _complete(await _fetched(stage, "x"))
    cancel = Cancel(target="x")
    yield Duel(part(complete), part(cancel))
    row = (await stage.content()).instances["x"]
    assert row.status == ("done" if complete.result is None else "cancelled")


@race(deep=True)
async def test_j11_of_two_reports_of_one_task_the_first_counts(stage: Stage) -> Race:
    claim = await _fetched(stage, "x")
    reports = [_complete(claim), _complete(claim)]
    yield Duel(part(reports[0]), part(reports[1]))
    assert sorted(type(report.result) is TaskLost for report in reports) == [False, True]
    assert (await stage.content()).instances["x"].status == "done"
