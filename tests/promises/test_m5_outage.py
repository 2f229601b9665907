"""M5: a database outage longer than the lease quarantines nobody. Real time, a server of its own."""

import asyncio
import time
from threading import Event
from typing import Any

import pytest

from hark import Context, Done, Hark, Machine, step
from hark.runtime.clerk import Clerk
from hark.store.postgres import PostgresLease, PostgresStore
from tests.support.inspect import query, until
from tests.support.postgres import PostgresServer
from tests.support.stores import Store

LEASE = 1.0


async def test_m5_a_database_outage_longer_than_the_lease_quarantines_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst order is forced: another looks for the dead before the owner could renew, and before its own clerk
    has noticed that there was an outage.
    """
    may_renew, go = Event(), asyncio.Event()
    may_renew.set()
    patrols: list[Clerk] = []
    renew, patrol, connect = PostgresLease.renew, Clerk._patrol, PostgresStore.connect

    def slow_renew(lease: PostgresLease, worker: str, *args: Any) -> None:
        if worker == owner.owner:
            may_renew.wait()
        renew(lease, worker, *args)

    async def seen_patrol(clerk: Clerk) -> None:
        await patrol(clerk)
        patrols.append(clerk)

    async def slow_clerk(store: PostgresStore, *, role: str = "reader", **options: Any) -> Any:
        if role == "clerk" and not may_renew.is_set():
            await until(lambda: other._clerk in patrols, "the other one to look for the dead")
        return await connect(store, role=role, **options)

    monkeypatch.setattr(PostgresStore, "connect", slow_clerk)
    monkeypatch.setattr(PostgresLease, "renew", slow_renew)
    monkeypatch.setattr(Clerk, "_patrol", seen_patrol)

    class Long(Machine):
        @step
        async def start(self, ctx: Context) -> Done:
            await go.wait()
            return Done(ctx.attempt)

    with PostgresServer(fsync=False) as server:
        store = Store("postgres", server.url, {"schema": "hark"})
        holder, other = (Hark(server.url, lease=LEASE, max_crashes=1) for _ in range(2))
        owner = holder.worker()
        holder.register(Long)
        async with holder, owner, other, other.worker():
            long = await holder.start(Long)
            ghost = await holder.start(Long)
            await until(lambda: _executing(holder, 2), "both to be executing")
            until_then = time.monotonic() + LEASE * 1.5
            may_renew.clear()
            await asyncio.to_thread(server.stop)
            patrols.clear()
            await until(lambda: time.monotonic() > until_then, "more than a lease")
            await asyncio.to_thread(server.start)
            await until(lambda: other._clerk in patrols, "the other one to look for the dead")
            may_renew.set()
            # A row whose owner has no lease at all: when that is taken back, looking has begun again.
            nobody = "UPDATE instances SET lease_owner = 'nobody' WHERE id = '{}' RETURNING id".format
            await query(store, nobody(ghost.id))
            await until(lambda: _failed(other, ghost.id), "the dead to be looked for in earnest", 60)
            kept = await other.get(long.id)
            assert (kept.status, kept.attempt, kept.error) == ("executing", 0, None)
            go.set()
            assert await other.result(long.id, timeout=30) == 0


async def _executing(app: Hark, count: int) -> bool:
    return len(await app.list(status="executing")) == count


async def _failed(app: Hark, id: str) -> bool:
    return (await app.get(id)).status == "failed"
