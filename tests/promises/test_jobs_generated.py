"""Generated jobs: random graphs with random failures and answers, compared with a small model.

A task that fails fails always, or as often as it may regress; so what becomes of every task does not depend on the
order in which tasks end. The order is tested, with every interleaving, in tests/programs/jobs/test_job_progress.py.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hark.programs.jobs.file import Job
from hark.programs.jobs.job_spec import JobSpec
from tests.promises.support_jobs import statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.job_model import JobModel
from tests.support.job_specs import job_specs
from tests.support.stores import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # a failure is shrunk before it is shown


def _expected(spec: JobSpec, inputs: dict[str, bool], failing: set[str]) -> tuple[str, dict[str, str]]:
    plain = tuple(msgspec.structs.replace(task, on_fail=None) for task in spec.tasks)
    model = JobModel(msgspec.structs.replace(spec, tasks=plain), inputs)
    while running := model.running():
        model.end(running[0], running[0] not in failing)
    return model.job(), {name: "skipped" if s == "unreached" else s for name, s in model.status.items()}


def _with_approvals(spec: JobSpec, approvals: set[str]) -> JobSpec:
    tasks = tuple(
        msgspec.structs.replace(task, type="approval", handler=None, title=task.name)
        if task.name in approvals
        else task
        for task in spec.tasks
    )
    return msgspec.structs.replace(spec, tasks=tasks)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job_specs(6, fail_fast=False), st.data())
async def test_j1_a_random_job_ends_as_the_small_model_says(store: Store, spec: JobSpec, data: st.DataObject) -> None:
    names = [task.name for task in spec.tasks]
    some = st.sets(st.sampled_from(names), max_size=3)
    inputs = {name: data.draw(st.booleans()) for name in names}
    failing, regressing, approvals = data.draw(some), data.draw(some), data.draw(some)
    job = Job(_with_approvals(spec, approvals), {})
    left = {task.name: task.on_fail.limit if task.on_fail else 0 for task in spec.tasks if task.name in regressing}
    async with harness(store, job) as app:

        @app.handler("any")
        async def any(task: Any) -> Any:
            if task.name in failing:
                return task.fail("always")
            if left.get(task.name, 0) > 0:
                left[task.name] -= 1
                raise ValueError("not yet")
            return task.name

        def answer(question: Any) -> bool:
            return bool(question.task in failing)

        app.answer(answer, {"action": "reject"})
        app.answer(lambda question: True, {"action": "approve"})
        started = await drained(app, app.start(job, inputs))
        ended = await started.get()
        status, expected = _expected(spec, inputs, failing)
        assert (ended.status, statuses(ended)) == (status, expected)
        assert await app.waits() == []
        assert await app.awakeables(status="PENDING") == []
        if ended.status == "done":
            completed = {name for name, status in expected.items() if status == "completed"}
            assert set(ended.result) == completed
            return
        failing.clear()
        await drained(app, app.retry(started))
        retried = await started.get()
        status, expected = _expected(spec, inputs, failing)
        assert (retried.status, statuses(retried)) == (status, expected)
