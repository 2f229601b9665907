"""A worker is killed in the middle of a task: the deadline of the job holds on the next worker (J1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from hark import Dag, Hark, InstanceFailed
from tests.crash.processes import Workers, gone
from tests.support.stores import Store


async def test_j1_the_time_of_a_job_ends_although_its_worker_was_killed(store: Store, tmp_path: Path) -> None:
    dag = Dag("late", timeout_sec=5)
    dag.task("wait", "wait at the gate")
    dag.finally_("after", "after", input={"waited": 0})
    with Workers(store, tmp_path, lease=60.0) as workers:
        async with Hark(store.url, **store.options, lease=60.0) as app:
            job = await app.start(dag)
            first = workers.start()
            await workers.until_traced("wait 1", first.pid)
            first.kill()
            await gone(first)
            second = workers.start()
            with pytest.raises(InstanceFailed, match=r"timeout_sec \(5 s\); Task 'wait' was cancelled"):
                await job.result(timeout=60)  # the deadline does not wait for the lease of the dead worker
            assert [(life.what, life.pid) for life in workers.trace()][-1] == ("after", second.pid)
