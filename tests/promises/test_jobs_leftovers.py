"""Random jobs of every type of task, with failures, answers, cancels and retries: an ended job leaves nothing behind.

The store keeps the jobs of all examples, so each looks at its own tasks only.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark import AlreadySettled, Conflict, FunctionContext, Instance, NoTarget, load_job, workflow
from hark.programs.jobs.file import Job
from hark.programs.jobs.task_ids import parse_task_id, undo_id
from hark.testing import Harness
from tests.promises.support_jobs import statuses
from tests.promises.support_machines import harness
from tests.support.mixed_jobs import INNER, mixed_job
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ENDED = ("done", "failed", "cancelled")
_MOST_ROUNDS = 200


class _Run:
    """One job, and a person who does something random whenever nothing moves."""

    def __init__(self, app: Harness, job: Job, random: Random) -> None:
        self.app = app
        self.job = job
        self.random = random
        self.risk = random.choice([0.1, 0.3, 0.6])  # how often work fails
        self.forced = False
        app.handler("work")(self._work)
        app.handler("undo")(self._undo)

    async def _work(self, task: Any) -> int:
        if self.random.random() < 0.15:
            await task.wait_for_signal("go", timeout=30)
        if self.random.random() < self.risk:
            raise ValueError("no")
        return 1

    async def _undo(self, task: Any) -> None:
        if self.random.random() < 0.2:
            raise ValueError("cannot be undone")

    async def go(self) -> None:
        self.id = (await self.app.start(self.job)).id
        for _ in range(_MOST_ROUNDS):
            await self.app.drain()
            job = await self.app.get(self.id)
            if job.status in _ENDED:
                await self._check(job)
                if job.status != "failed" or self.random.random() < 0.4:
                    return
                self.risk /= 2
                await self.app.retry(self.id)
            with suppress(AlreadySettled, Conflict, NoTarget):  # what it is about may have ended
                await self._act()
        raise AssertionError("the job does not end")

    async def _act(self) -> None:
        app, random = self.app, self.random
        match random.choices(("signal", "time", "answer", "events", "cancel a task", "cancel"), (4, 4, 4, 2, 1, 1))[0]:
            case "signal":
                await app.signal(self.id, "go")
            case "time":
                await app.advance(random.choice([1, 5, 30]))
            case "answer":
                for one in await app.awakeables(status="PENDING"):
                    await app.resolve(one.id, {"action": random.choice(["approve", "approve", "reject"])})
            case "events":
                await app.broadcast("event", {"n": 0})
                await app.broadcast("event", {"n": 1})
            case "cancel a task":
                live = [id for id, one in (await self._below()).items() if one.status not in _ENDED]
                if live:
                    await app.cancel(random.choice(sorted(live)))
            case _:
                force = random.random() < 0.3
                self.forced = self.forced or force
                await app.cancel(self.id, force=force)

    async def _below(self) -> dict[str, Instance]:
        tasks = await self.app.list(kind="task", definition="mixed", limit=1000)
        return {one.id: one for one in tasks if one.id.startswith(f"{self.id}.")}

    async def _check(self, job: Instance) -> None:
        below = await self._below()
        assert {one.status for one in below.values()} <= set(_ENDED), "no task runs after its job has ended"
        shown = set(statuses(job).values())
        assert not shown & {"pending", "running", "suspended"}
        assert (job.status != "done") or shown <= {"completed", "skipped"}
        assert (job.status != "failed") or shown & {"failed", "cancelled"}
        assert [wait for wait in await self.app.waits() if wait.instance_id in (job.id, *below)] == []
        assert await self.app.awakeables(job=job.id, status="PENDING") == []
        if job.status == "done" or self.forced:
            return
        for id, row in below.items():
            task = parse_task_id(job.id, id)
            if task is not None and self.job.spec.tasks[task[0]].undo is not None and row.status == "done":
                assert undo_id(id) in below, "what has completed is undone, whatever came between"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
async def test_j9_an_ended_job_leaves_nothing_behind_and_nothing_that_is_not_undone(store: Store, seed: int) -> None:
    random = Random(seed)
    job, inner = load_job(mixed_job(random)), load_job(INNER)

    @workflow
    async def inner_function(ctx: FunctionContext) -> None:
        await ctx.sleep(2)
        if random.random() < 0.3:
            raise ValueError("no")

    async with harness(store, job, inner, inner_function) as app:
        await _Run(app, job, random).go()
