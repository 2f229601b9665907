"""M5, fault 90: the work of a killed process is taken over at once on its own machine, whatever its lease."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from hark import Hark
from tests.crash.machines import ALL, Gated
from tests.crash.processes import Workers, gone, leases
from tests.support.inspect import query, until
from tests.support.stores import Store

pytestmark = pytest.mark.slow

_LEASE = 60.0
_AT_ONCE = 2.0  # seconds


async def _taken_over(workers: Workers, app: Hark, id: str) -> float:
    """Seconds until the step begins again."""
    begun = time.monotonic()
    await workers.until_traced("start 1")
    took = time.monotonic() - begun
    assert [event.type for event in await app.events(id)] == ["started", "reclaimed"]
    return took


async def _found_dead(app: Hark) -> dict[str, int | None]:
    loop = app._clerk.loop.running
    assert loop is not None
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(app._clerk.find_dead(), loop))


@pytest.mark.parametrize("asked_for_its_exit_code", [True, False])
async def test_m5_fault_90_a_killed_worker_that_is_started_again_goes_on_at_once(
    store: Store, tmp_path: Path, asked_for_its_exit_code: bool
) -> None:
    with Workers(store, tmp_path, lease=_LEASE) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            killed = workers.start()
            gated = await app.start(Gated)
            await workers.until_traced("start 0")
            killed.kill()
            await until(lambda: psutil.Process(killed.pid).status() == psutil.STATUS_ZOMBIE, "the process to end")
            if asked_for_its_exit_code:
                assert await gone(killed) == -signal.SIGKILL
            async with app.worker():
                assert await _taken_over(workers, app, gated.id) < _AT_ONCE
                workers.open_gate()
                assert await gated.result(timeout=20) == os.getpid()
            assert not await leases(store)


async def test_m5_fault_90_a_worker_that_runs_notices_that_its_neighbour_was_killed(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path, lease=_LEASE) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            killed = workers.start("--queue", "default=1")
            gated = await app.start(Gated)
            await workers.until_traced("start 0", pid=killed.pid)
            async with app.worker():
                await until(lambda: bool(app._clerk.peers._neighbours), "the worker to see its neighbour")
                killed.kill()
                assert await _taken_over(workers, app, gated.id) < 2 * _AT_ONCE  # it polls once in a second
                workers.open_gate()
                await gated.result(timeout=20)


async def test_m5_fault_90_a_process_that_is_suspended_or_elsewhere_keeps_its_work(
    store: Store, tmp_path: Path
) -> None:
    with Workers(store, tmp_path, lease=_LEASE) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            process = workers.start()
            gated = await app.start(Gated)
            await workers.until_traced("start 0")
            await workers.freeze(process)
            async with app.worker():
                assert await _found_dead(app) == {}
            process.kill()
            await gone(process)
            await query(store, "UPDATE workers SET info = replace(info, 'pid:[', 'pid:[1')")  # as in a container
            async with app.worker():
                assert await _found_dead(app) == {}
            assert (await gated.get()).status == "executing"
