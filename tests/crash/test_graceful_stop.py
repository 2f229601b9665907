"""SIGTERM: running steps finish within the grace period, the rest is handed back, and the exit code is 0."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from hark import Hark
from tests.crash.machines import ALL, Gated, Threaded
from tests.crash.processes import Workers, gone
from tests.support.inspect import query, until
from tests.support.stores import Store


async def test_m5_a_step_that_finishes_within_the_grace_period_is_committed_and_the_next_is_left_to_others(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            worker = workers.start("--grace", "60")
            handle = await app.start(Gated)
            await workers.until_traced("start 0")
            worker.send_signal(signal.SIGTERM)
            await until(lambda: "stopping" in (worker.stdout.readline() if worker.stdout else ""), "it to stop")
            workers.open_gate()
            assert await gone(worker) == 0
            [instance] = await app.list()
            assert (instance.step, instance.status, instance.attempt) == ("end", "runnable", 0)
            async with app.worker():
                await handle.result(timeout=60)
        assert [life.what for life in workers.trace()] == ["start 0", "end 0"]


@pytest.mark.parametrize("machine", [Gated, Threaded])
async def test_m5_unfinished_steps_are_handed_back_and_not_counted(store: Store, tmp_path: Path, machine: type) -> None:
    with Workers(store, tmp_path, max_crashes=1) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            handle = await app.start(machine)
            for times in (1, 2):
                worker = workers.start("--grace", "0.1")
                await workers.until_traced("start 0", times=times)
                worker.send_signal(signal.SIGTERM)
                assert await gone(worker) == 0
                assert await query(store, "SELECT status, attempt, crashes FROM instances") == [("runnable", 0, 0)]
                assert await query(store, "SELECT count(*) FROM workers") == [(0,)]
            workers.open_gate()
            async with app.worker():
                await handle.result(timeout=60)
        assert not [life.what for life in workers.trace() if life.what.startswith("handle")]


async def test_m9_a_step_claimed_while_the_worker_stops_is_handed_back_and_not_begun(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would run at the same time as in its next worker, in spite of its concurrency key."""
    workers = Workers(store, tmp_path)
    kind = store.database.tx
    committing, go_on = threading.Event(), threading.Event()
    commit = kind.commit

    async def slow(self: Any) -> None:
        committing.set()
        await asyncio.to_thread(go_on.wait)
        await commit(self)

    app = Hark(store.url, **workers.options)
    app.register(*ALL)
    async with app:
        await app.start(Gated)
        monkeypatch.setattr(kind, "commit", slow)
        worker = app.worker()
        await worker.start()
        await until(committing.is_set, "the turn that claims it")
        stopping = asyncio.create_task(worker.stop())
        await until(lambda: not worker.open, "the worker to stop")
        go_on.set()
        await stopping
        [instance] = await app.list()
        assert (instance.status, instance.attempt) == ("runnable", 0)
        await asyncio.sleep(0)
    assert workers.trace() == []
    assert await query(store, "SELECT type FROM events ORDER BY seq") == [("started",), ("handed_back",)]
