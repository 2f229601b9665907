"""M5: a database outage longer than the lease quarantines no instance. Real time, a server of its own."""

import asyncio
import time
from contextlib import suppress
from threading import Event
from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, step
from hark.store.postgres import PostgresLease
from hark.store.protocol import StoreFault
from tests.support.inspect import pass_through_the_clerk, query, until
from tests.support.postgres import PostgresServer
from tests.support.stores import Store

pytestmark = pytest.mark.slow

LEASE = 3.0  # the grace period after the outage too: everything before the owner's renewal has to fit


async def test_m5_a_database_outage_longer_than_the_lease_quarantines_no_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worst order is forced: another process searches for dead workers twice before the owner can renew."""
    may_renew, go = Event(), asyncio.Event()
    may_renew.set()
    renew = PostgresLease.renew

    def slow_renew(lease: PostgresLease, worker: str, *args: Any) -> None:
        if worker == owner.owner:
            may_renew.wait()
        renew(lease, worker, *args)

    monkeypatch.setattr(PostgresLease, "renew", slow_renew)

    class Long(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            await go.wait()
            return Done(ctx.attempt)

    # What is committed without a flush stays in memory, so that the kill surely loses it (FINDINGS 87).
    with PostgresServer(fsync=False, options={"wal_writer_delay": "10s", "autovacuum": "off"}) as server:
        store = Store("postgres", server.url, {"schema": "hark"})
        holder, other = (Hark(server.url, lease=LEASE, max_crashes=1) for _ in range(2))
        owner = holder.worker()
        holder.register(Long)
        async with holder, owner, other, other.worker():
            long = await holder.start(Long)
            ghost = await holder.start(Long)
            await until(lambda: _executing(holder, 2), "both to be executing")
            over = time.monotonic() + LEASE * 1.5
            may_renew.clear()
            await asyncio.to_thread(server.kill)
            await until(lambda: time.monotonic() > over, "more than a lease")
            await asyncio.to_thread(server.start)
            for _ in range(2):
                await until(lambda: _patrolled(other), "the other worker to search for expired leases")
                await pass_through_the_clerk(other)
            may_renew.set()
            # A row whose owner has no lease at all: once it is reclaimed, the search has resumed.
            to_unknown_owner = "UPDATE instances SET lease_owner = 'unknown-worker' WHERE id = '{}' RETURNING id".format
            await query(store, to_unknown_owner(ghost.id))
            await until(lambda: _failed(other, ghost.id), "the row without an owner to be reclaimed")
            kept = await other.get(long.id)
            assert (kept.status, kept.attempt, kept.error) == ("executing", 0, None)
            go.set()
            assert await other.result(long.id, timeout=30) == 0


async def _patrolled(app: Hark) -> bool:
    """Once, on the clerk's own loop, with a database that responds."""
    loop = app._clerk.loop.running
    assert loop is not None
    with suppress(StoreFault):
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(app._clerk.peers.reclaim_dead(), loop))
        return True
    return False


async def _executing(app: Hark, count: int) -> bool:
    return len(await app.list(status="executing")) == count


async def _failed(app: Hark, id: str) -> bool:
    return (await app.get(id)).status == "failed"
