"""The database goes away and comes back, for one worker before the other: no instance is quarantined."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hark import Handle, Hark
from hark.store.protocol import Full
from tests.crash.machines import Gated
from tests.crash.processes import Workers, all_renewed
from tests.support.inspect import query, until
from tests.support.proxy import Proxy
from tests.support.stores import Store


async def test_m5_the_first_worker_back_after_an_outage_waits_one_lease_before_reclaiming(
    pg_store: Store, tmp_path: Path
) -> None:
    with Workers(pg_store, tmp_path, lease=3.0, max_crashes=1) as workers:
        async with Proxy(pg_store.url) as near, Proxy(pg_store.url) as far:
            first, second = (Hark(proxy.url, **workers.options) for proxy in (near, far))
            async with two_busy_workers(first, second, workers) as (handles, owners):
                near.go_away()
                far.go_away()
                await workers.bury()  # the outage was longer than the lease
                near.up.set()
                await until(lambda: all_renewed(pg_store, {owners[0]: 0}, 0), "the first to be back")
                first._clerk.store._quiet = 0  # as if only its lease connection had failed during the outage
                await first.sweep()
                far.up.set()
                await until(lambda: all_renewed(pg_store, dict.fromkeys(owners, 0), 0), "the second to be back")
                await finish_undisturbed(handles, workers)


async def test_m5_a_worker_that_could_not_renew_its_own_lease_reclaims_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database is read-only, or hangs: no connection breaks, and all leases expire together."""
    stuck, failed = set[str](), set[str]()
    kind = store.database.lease
    renew = kind.renew

    def perhaps_renew(self: Any, worker: str, *about: Any) -> None:
        if worker in stuck:
            failed.add(worker)
            raise Full("injected")
        renew(self, worker, *about)

    monkeypatch.setattr(kind, "renew", perhaps_renew)
    with Workers(store, tmp_path, lease=3.0, max_crashes=1) as workers:
        first, second = (Hark(store.url, **workers.options) for _ in range(2))
        async with two_busy_workers(first, second, workers) as (handles, owners):
            stuck.update(owners)
            await until(lambda: failed == set(owners), "both to fail")
            await workers.bury()
            stuck.remove(owners[0])
            await until(lambda: all_renewed(store, {owners[0]: 0}, 0), "the first to be back")
            await first.sweep()
            stuck.clear()
            await until(lambda: all_renewed(store, dict.fromkeys(owners, 0), 0), "the second to be back")
            await finish_undisturbed(handles, workers)


@asynccontextmanager
async def two_busy_workers(
    first: Hark, second: Hark, workers: Workers
) -> AsyncIterator[tuple[list[Handle], list[str]]]:
    first.register(Gated)
    second.register(Gated)
    async with first, second, first.worker({"default": 1}) as one, second.worker({"default": 1}) as other:
        handles = [await first.start(Gated), await first.start(Gated)]
        await workers.until_traced("start 0", times=2)
        for app in (first, second):
            if workers.store.name == "postgres":
                app._clerk.store._quiet = 0  # the server has not just started
        yield handles, [one.owner, other.owner]


async def finish_undisturbed(handles: list[Handle], workers: Workers) -> None:
    workers.open_gate()
    await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
    assert sorted(life.what for life in workers.trace()) == ["end 0"] * 2 + ["start 0"] * 2
    assert await query(workers.store, "SELECT max(attempt), max(crashes) FROM instances") == [(0, 0)]
