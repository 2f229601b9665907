"""A worker that dies is not an exception: its steps run again, unless the step itself kills the worker."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hark import Hark, InstanceFailed
from tests.crash.machines import ALL, Killer
from tests.crash.processes import Workers, gone
from tests.support.inspect import query
from tests.support.stores import Store


async def live_and_die(app: Hark, workers: Workers) -> None:
    """Start another worker that the step kills, and take its work back."""
    assert await gone(workers.start()) == -signal.SIGKILL
    await workers.take_back(app)


async def test_m5_fault_31_a_step_that_always_kills_its_worker_is_quarantined_and_says_why(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path, lease=9.0, max_crashes=2) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            handle = await app.start(Killer, {"deaths": 1000})
            await live_and_die(app, workers)
            assert await query(store, "SELECT status, attempt, crashes FROM instances") == [("runnable", 1, 1)]
            await live_and_die(app, workers)
            with pytest.raises(InstanceFailed, match="quarantined: step 'start' lost its worker 2 times in a row"):
                await handle.result(timeout=60)
            assert [life.what for life in workers.trace()] == ["start"] * 2  # and no `handle`


async def test_m5_crashes_are_counted_in_a_row_and_any_committed_outcome_resets_them(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path, lease=9.0, max_crashes=2) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            handle = await app.start(Killer, {"deaths": 1})
            await live_and_die(app, workers)
            await live_and_die(app, workers)  # the first step completes now, and the second kills
            workers.start()
            assert await handle.result(timeout=60) == 1
            assert [life.what for life in workers.trace()] == ["start", "start", "again", "again"]
        assert await query(store, "SELECT status, crashes FROM instances") == [("done", 0)]
