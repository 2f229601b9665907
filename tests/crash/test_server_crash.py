"""The server dies during a COMMIT and reuses the number of the lost transaction for another one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import asyncpg
import pytest

from hark import Await, Broadcast, Context, Done, Hark, Machine, step
from hark.engine.turns import caller_errors
from hark.store.postgres import PostgresStore
from tests.crash.machines import Patient
from tests.support.inspect import query, until
from tests.support.postgres import PostgresServer
from tests.support.proxy import Line, Proxy
from tests.support.stores import Store, postgres_schema


class Listener(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("bell"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(len(ctx.awaited))


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    # Uncommitted data stays in memory, so that a kill surely loses it: no other session may commit meanwhile,
    with PostgresServer(options={"wal_writer_delay": "10s", "autovacuum": "off"}) as server:
        yield server


@pytest.fixture(autouse=True)
def _nobody_announces(monkeypatch: pytest.MonkeyPatch) -> None:
    """not even with a NOTIFY of the previous turn."""

    async def silence(store: PostgresStore) -> None:
        pass

    monkeypatch.setattr(PostgresStore, "announce", silence)


@pytest.fixture(autouse=True)
def _callers_wait_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until the server accepts connections, however long its recovery takes."""
    monkeypatch.setattr(caller_errors, "PATIENCE", 100.0)


@pytest.fixture
def crash_store(server: PostgresServer) -> Iterator[Store]:
    server.psql("CREATE TABLE IF NOT EXISTS other ()")
    with postgres_schema(server.url) as store:
        yield store


class Crash:
    """Kill the server at the COMMIT; before the app reconnects, other sessions may use up the
    transaction numbers it has lost."""

    def __init__(self, server: PostgresServer, proxy: Proxy, *, use_again: bool) -> None:
        self.server = server
        self.proxy = proxy
        self.use_again = use_again
        self.forgotten = 0
        self.reached = 0
        writer = int(server.psql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"))
        os.kill(writer, signal.SIGSTOP)  # until the kill; the background writer runs every ten seconds

    async def __call__(self, line: Line, commit: bytes) -> None:
        self.proxy.up.clear()
        self.forgotten = int(self.server.psql("SELECT max(backend_xid::text::bigint) FROM pg_stat_activity"))
        await asyncio.to_thread(self.server.kill)
        await asyncio.to_thread(self.server.start)
        other = await asyncpg.connect(self.server.url)
        while self.use_again and self.reached < self.forgotten:
            self.reached = await other.fetchval("INSERT INTO other DEFAULT VALUES RETURNING xmin::text::bigint")
        await other.close()
        line.cut()
        self.proxy.up.set()


@pytest.mark.parametrize("use_again", [False, True], ids=["forgotten", "given to another"])
async def test_fault_37_the_number_of_a_transaction_lost_in_a_crash_proves_nothing(
    server: PostgresServer, crash_store: Store, use_again: bool
) -> None:
    async with Proxy(server.url) as proxy, Hark(proxy.url, **crash_store.options) as app:
        await app.start(Patient, id="patient")
        crash = Crash(server, proxy, use_again=use_again)
        proxy.at_commit(crash)
        await app.signal("patient", "tick", "told")
        assert (crash.reached == crash.forgotten) is use_again
        assert await query(crash_store, "SELECT name, payload FROM inbox") == [("tick", '"told"')]
        async with app.worker():
            assert await app.result("patient", timeout=30) == "told"


async def test_b1_fault_37_a_broadcast_whose_commit_was_lost_in_a_crash_is_repeated(
    server: PostgresServer, crash_store: Store
) -> None:
    """So large that it only marks its subscribers: its commit writes no event that could prove it."""
    async with Proxy(server.url) as proxy, Hark(proxy.url, broadcast_limit=1, **crash_store.options) as app:
        listeners = [await app.start(Listener) for _ in range(2)]
        async with app.worker():
            await until(lambda: subscribed(app, 2), "both to listen")
        crash = Crash(server, proxy, use_again=True)
        proxy.at_commit(crash)
        assert await app.broadcast("bell") == 2
        assert crash.reached == crash.forgotten
        async with app.worker():
            assert [await listener.result(timeout=30) for listener in listeners] == [1, 1]


async def subscribed(app: Hark, number: int) -> bool:
    return len(await app.waits(kind="broadcast")) == number
