"""The database goes away and comes back: nobody hangs, nothing is lost, and nobody is blamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from hark import Hark
from tests.crash.machines import Gated
from tests.crash.processes import Workers, all_renewed, leases, until
from tests.support.inspect import query
from tests.support.postgres import PostgresServer
from tests.support.proxy import Proxy
from tests.support.stores import Store, postgres_schema


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def outage_store(server: PostgresServer) -> Iterator[Store]:
    with postgres_schema(server.url) as store:
        yield store


async def test_m5_an_outage_longer_than_the_lease_quarantines_nobody(
    server: PostgresServer, outage_store: Store, tmp_path: Path
) -> None:
    """Two workers, no seat free: neither has a reason to write, and each could take the other for dead."""
    with Workers(outage_store, tmp_path, lease=1.0, max_crashes=1) as workers:
        first, second = (Hark(outage_store.url, **workers.options) for _ in range(2))
        first.register(Gated)
        second.register(Gated)
        async with first, second, first.worker({"default": 1}), second.worker({"default": 1}):
            handles = [await first.start(Gated), await first.start(Gated)]
            await workers.until_traced("start 0", times=2)
            for _ in range(2):
                begun = await leases(outage_store)
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(1.5)  # the outage itself: the leases run out
                await asyncio.to_thread(server.start)
                await until(lambda begun=begun: all_renewed(outage_store, begun, 2.5), "both to be back for a while")
            assert len(begun) == 2
            workers.open_gate()
            await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
        assert [life.what for life in workers.trace()] == ["start 0"] * 2 + ["end 0"] * 2
        assert await query(outage_store, "SELECT max(attempt), max(crashes) FROM instances") == [(0, 0)]


async def test_m5_who_is_back_first_after_an_outage_gives_the_others_a_lease_to_come_back(
    pg_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Workers(pg_store, tmp_path, lease=6.0, max_crashes=1) as workers:
        async with Proxy(pg_store.url) as near, Proxy(pg_store.url) as far:
            first, second = (Hark(proxy.url, **workers.options) for proxy in (near, far))
            first.register(Gated)
            second.register(Gated)
            async with first, second, first.worker({"default": 1}), second.worker({"default": 1}):
                handles = [await first.start(Gated), await first.start(Gated)]
                await workers.until_traced("start 0", times=2)
                for proxy in (near, far):
                    proxy.go_away()
                await workers.bury()  # the outage was longer than the lease
                first._clerk.store._quiet = 0  # the server has not just started
                looked = count_patrols(first, monkeypatch)
                near.up.set()
                await until(lambda: len(looked) >= 1, "the first to look for the dead")
                far.up.set()
                await until(lambda: all_renewed(pg_store, dict.fromkeys(owners(first, second), 0), 1), "the second")
                workers.open_gate()
                await asyncio.gather(*(handle.result(timeout=60) for handle in handles))
        assert [life.what for life in workers.trace()] == ["start 0"] * 2 + ["end 0"] * 2
        assert await query(pg_store, "SELECT max(attempt), max(crashes) FROM instances") == [(0, 0)]


def owners(*apps: Hark) -> list[str]:
    return [app._clerk.seat.owner for app in apps if app._clerk.seat is not None]


def count_patrols(app: Hark, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Grows with every look this app has taken for workers that died."""
    looked: list[bool] = []
    patrol = app._clerk._patrol

    async def counted() -> None:
        await patrol()
        looked.append(True)

    monkeypatch.setattr(app._clerk, "_patrol", counted)
    return looked
