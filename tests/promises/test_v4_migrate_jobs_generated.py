"""V4: random jobs that move to changed versions now and then end as a small model says, which knows nothing of
versions."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from hark.programs.jobs.file import Job
from hark.programs.jobs.job_spec import JobSpec, TaskSpec
from hark.testing import Harness
from tests.promises.support_jobs import statuses
from tests.support.harness import harness
from tests.support.job_model import JobModel
from tests.support.job_specs import job_specs
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a failure is shrunk before it is shown

_texts = count()


def _expected(spec: JobSpec, inputs: dict[str, bool], failing: set[str]) -> tuple[str, dict[str, str]]:
    plain = tuple(replace(task, on_fail=None) for task in spec.tasks)
    model = JobModel(replace(spec, tasks=plain), inputs)
    while running := model.running():
        model.end(running[0], running[0] not in failing)
    return model.job(), {name: "skipped" if s == "unreached" else s for name, s in model.status.items()}


def _approvals(spec: JobSpec, names: set[str]) -> JobSpec:
    asked = {name: {"type": "approval", "handler": None, "title": name} for name in names}
    return replace(spec, tasks=tuple(replace(task, **asked.get(task.name, {})) for task in spec.tasks))


@st.composite
def _changed(draw: st.DrawFn, spec: JobSpec, version: int, *, grows: bool) -> JobSpec:
    """The same tasks in another order, and maybe further ones that complete and that no other one needs."""
    normal = draw(st.permutations([task for task in spec.tasks if not task.is_finally]))
    finals = draw(st.permutations([task for task in spec.tasks if task.is_finally]))
    for number in range(draw(st.integers(0, 2)) if grows else 0):
        at = draw(st.integers(0, len(normal)))
        normal.insert(at, TaskSpec(f"x{version}_{number}", handler="any"))
    return replace(spec, tasks=(*normal, *finals))


class _Mover:
    def __init__(self, app: Harness, spec: JobSpec, data: st.DataObject) -> None:
        self.app, self.spec, self.data = app, spec, data
        self.version = 1
        self.started: Any = None

    async def deployed(self) -> int:
        """The version of the job as it is now."""
        [(_, version)] = await self.app._deploy_job(Job(replace(self.spec, description=f"text {next(_texts)}"), {}))
        return version

    async def maybe_move(self) -> None:
        if not self.data.draw(st.booleans(), label="move"):
            return
        state = await self.started.get()
        shown = statuses(state)
        has_begun_finals = any(shown[task.name] != "pending" for task in self.spec.tasks if task.is_finally)
        grows = state.status == "failed" or not has_begun_finals
        self.version += 1
        self.spec = self.data.draw(_changed(self.spec, self.version, grows=grows), label="changed")
        bulk = await self.app.migrate(self.started, to_version=await self.deployed())
        await self.app.drain()
        assert (await bulk.get()).result == {"done": 1, "skipped": 0, "failed": 0}

    async def run(self, failing: set[str]) -> None:
        """Answer all questions, one after the other."""
        await self.app.drain()
        while asked := await self.app.awakeables(job=self.started.id, status="PENDING"):
            await self.maybe_move()
            one = self.data.draw(st.sampled_from(sorted(asked, key=lambda one: str(one.task))), label="answer")
            await self.app.resolve(one.id, {"action": "reject" if one.task in failing else "approve"})
            await self.app.drain()

    async def compare(self, spec: JobSpec, inputs: dict[str, bool], failing: set[str]) -> str:
        ended = await self.started.get()
        status, expected = _expected(spec, inputs, failing)
        added = {task.name: "completed" for task in self.spec.tasks if task.name not in expected}
        assert (ended.status, statuses(ended)) == (status, {**expected, **added})
        assert await self.app.awakeables(job=self.started.id, status="PENDING") == []
        return status


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job_specs(6, fail_fast=False), st.data())
async def test_v4_a_random_job_that_moves_now_and_then_ends_as_the_model_says(
    store: Store, spec: JobSpec, data: st.DataObject
) -> None:
    names = [task.name for task in spec.tasks]
    some = st.sets(st.sampled_from(names), max_size=4)
    inputs = {name: data.draw(st.booleans()) for name in names}
    failing, approvals = data.draw(some, label="failing"), data.draw(some, label="approvals")
    async with harness(store) as app:

        @app.handler("any")
        async def any(task: Any) -> Any:
            if task.name in failing:
                raise ValueError("always")
            return task.name

        mover = _Mover(app, _approvals(spec, approvals), data)
        await mover.deployed()
        mover.started = await app.start(spec.name, inputs)
        await mover.run(failing)
        if await mover.compare(spec, inputs, failing) == "done":
            return
        await mover.maybe_move()
        failing.clear()
        await app.retry(mover.started)
        await mover.run(failing)
        await mover.compare(spec, inputs, failing)
