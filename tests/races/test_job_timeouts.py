"""J1: the deadline of a job against the end of its last task, in both orders. The real interpreter decides."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from hark import Dag
from hark.kernel.requests import Capacity, Commit, Deploy, RetryInstance, StartInstances
from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import NewInstance
from hark.model.lanes import ENGINE_QUEUE, JOB
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_interpreter import run_job
from hark.programs.jobs.job_services import TaskOutput
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import MINUTE, done

pytestmark = pytest.mark.asyncio(loop_scope="module")

LANE = "task:work"
OVER = "The job did not end within timeout_sec (60 s)"


class JobStage:
    """One job `j` whose only task is `work`; both of its rows are claimed by hand."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.job = _job()

    async def job_graph(self, definition: str, version: int) -> JobGraph:
        return JobGraph(self.job.spec)

    async def outputs(self, ids: Iterable[str]) -> dict[str, TaskOutput]:
        sql = "SELECT id, status, state, result, error FROM instances WHERE id = ANY($1)"
        return {row["id"]: TaskOutput(*row) for row in await self.stage.eye.fetch(sql, list(ids))}

    async def begun(self) -> Claim:
        """The claim of the task, which executes; its job is parked."""
        deploy = Deploy(name="j", kind=JOB, queue=ENGINE_QUEUE, source=self.job.source, digest=self.job.digest)
        start = StartInstances(items=[NewInstance("j", "{}", "j", named=True)])
        await self.stage.one.run(deploy)
        await self.stage.one.run(start)
        await self.stage.one.run(await self.decided())
        [task] = (await self.stage.one.run(claim=Capacity("worker", {"default": 1}, {LANE: TASK_TRAITS}))).claims
        return task

    async def decided(self) -> Commit:
        """The outcome of the job, which can run; not committed yet."""
        [claim] = (await self.stage.one.run(claim=Capacity("worker", {ENGINE_QUEUE: 1}, {JOB: TASK_TRAITS}))).claims
        return Commit(claim=claim, decision=await run_job(claim, self))  # type: ignore[arg-type]

    async def ended(self) -> tuple[str, Any]:
        """Run the job to its end, and the sweeps on the way; its status, and its error or its result."""
        while (row := await self._row())["status"] not in ("done", "failed"):
            await self.stage.one.run(sweep=True)
            if (await self._row())["status"] == "runnable":
                await self.stage.one.run(await self.decided())
        content = await self.stage.audited_content()
        assert content.waits_of("j") == [] or row["status"] == "failed"
        return row["status"], row["error"] or json.loads(row["result"])

    async def _row(self) -> Any:
        return await self.stage.eye.fetchrow("SELECT status, result, error FROM instances WHERE id = 'j'")


def _job() -> Any:
    dag = Dag("j", timeout_sec=60)
    dag.task("work", "work")
    return dag.job()


@race(deep=True)
async def test_j1_the_last_task_that_ends_as_the_deadline_fires_completes_the_job(stage: Stage) -> Race:
    jobs = JobStage(stage)
    task = await jobs.begun()
    stage.clock.advance(MINUTE)
    yield Duel(part(done(task)), part(sweep=True))
    # Whichever was first, the job has not run since, and finds its last task ended.
    assert await jobs.ended() == ("done", {"work": None})


@race(deep=True)
async def test_j1_the_last_task_that_ends_as_the_job_cancels_it_leaves_the_job_timed_out(
    stage: Stage, fates: set[bool]
) -> Race:
    jobs = JobStage(stage)
    task = await jobs.begun()
    stage.clock.advance(MINUTE)
    await stage.one.run(sweep=True)
    timed_out, end = await jobs.decided(), done(task)
    yield Duel(part(timed_out), part(end))
    fates.add(end.fenced)
    cancelled = f"{OVER}; Task 'work' was cancelled: the job has timed out"
    assert await jobs.ended() == ("failed", cancelled if end.fenced else OVER)
    if not end.fenced:  # nothing is left to do
        await stage.one.run(RetryInstance(target="j"))
        assert await jobs.ended() == ("done", {"work": None})


@race(deep=True)
async def test_j1_two_sweeps_end_a_job_once(stage: Stage) -> Race:
    jobs = JobStage(stage)
    await jobs.begun()
    stage.clock.advance(MINUTE)
    yield Duel(part(sweep=True), part(sweep=True))
    assert (await stage.content()).kinds("j") == ["timer"]
    assert (await jobs.ended())[0] == "failed"
