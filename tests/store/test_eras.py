"""Cursors go on after a restore into another cluster, and after a recovery to an earlier moment (invariant 17)."""

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from hark import Await, Context, Done, Event, Hark, Machine, Next, step
from hark.store import postgres_eras
from hark.store.protocol import Full
from tests.support.inspect import query, until
from tests.support.postgres import PostgresServer
from tests.support.stores import Store

pytestmark = pytest.mark.asyncio(loop_scope="module")
ERA = 1 << 44
BURN = "DO $$ BEGIN FOR n IN 1 .. 3000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"


class Reader(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("news", then=self.read)

    @step
    async def read(self, ctx: Context) -> Any:
        return Done() if ctx.awaited[0].payload == "end" else Next("start")


@pytest.fixture(scope="module")
def old_server() -> Iterator[PostgresServer]:
    """A server that has had many transactions."""
    with PostgresServer(fsync=False) as server:
        server.psql(BURN)
        yield server


@pytest.fixture(scope="module")
def new_server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync=False) as server:
        yield server


@asynccontextmanager
async def app_on(server: PostgresServer) -> AsyncIterator[Hark]:
    app = Hark(server.url)
    app.register(Reader)
    async with app, app.worker():
        yield app


def store_on(server: PostgresServer) -> Store:
    return Store("postgres", server.url, {"schema": "hark"})


async def parked(app: Hark, id: str) -> None:
    await until(lambda: is_parked(app, id), "the park")


async def is_parked(app: Hark, id: str) -> bool:
    instance = await app.get(id)
    return instance.status == "awaiting_signal" and not [wait for wait in instance.waits if wait.name != "news"]


async def events_after(app: Hark, cursor: tuple[int, int], count: int) -> list[Event]:
    found: list[Event] = []

    async def complete() -> bool:
        after = found[-1].cursor if found else cursor
        found.extend(await app.events_after(after, limit=2))
        return len(found) >= count

    await until(complete, f"{count} events")
    return found


def dump_and_restore(old: PostgresServer, new: PostgresServer) -> None:
    file = new.data_directory.with_name("dump.sql")
    file.write_text(old._run("pg_dump", "-d", old.url))
    new._run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", new.url, "-f", str(file))


async def test_fault_86_cursors_go_on_after_a_restore_into_another_cluster(
    old_server: PostgresServer, new_server: PostgresServer
) -> None:
    """For a reader of everything and for one of an instance, with cursors from before and from after the dump."""
    async with app_on(old_server) as app:
        await app.start(Reader, id="a")
        await parked(app, "a")
        before = (await app.events("a"))[-1]
        dump_and_restore(old_server, new_server)
        await app.signal("a", "news", "lost")
        await until(lambda: is_longer(app, "a", 5), "the events that the dump does not have")
        lost = (await app.events("a"))[-1]
    assert lost.cursor > before.cursor
    async with app_on(new_server) as app:
        await app.start(Reader, id="b")
        await parked(app, "b")
        await app.signal("a", "news", "kept")
        await until(lambda: is_longer(app, "a", 5), "the events after the restore")
        await app.signal("b", "news", "end")
        await app.result("b", timeout=30)
        everything = await app.events_after((0, 0), limit=1000)
        after = [event for event in everything if event.cursor > before.cursor]
        assert [event.type for event in after if event.instance_id == "a"] == ["signal", "next", "await"]
        assert [event.type for event in after if event.instance_id == "b"] == ["started", "await", "signal", "done"]
        for cursor in (before.cursor, lost.cursor):
            assert await events_after(app, cursor, len(after)) == after
        assert all(event.cursor[0] > ERA for event in after)
        for event in (before, lost):  # the stream of one instance is read by seq
            found = await app.events("a", after=event.cursor)
            assert [one.type for one in found] == ["signal", "next", "await"]
            assert all(one.seq > lost.seq for one in found)
        assert everything[: -len(after)] == [event for event in everything if event.cursor <= before.cursor]
        assert [event.seq for event in await app.events("a")] == sorted(event.seq for event in await app.events("a"))
    assert await query(store_on(new_server), "SELECT number FROM eras ORDER BY 1") == [(1,), (2,)]
    async with app_on(new_server):  # the same cluster: the era goes on
        pass
    assert await query(store_on(new_server), "SELECT count(*) FROM eras") == [(2,)]


async def is_longer(app: Hark, id: str, count: int) -> bool:
    return len(await app.events(id)) >= count


async def test_fault_86_signals_that_are_one_call_are_in_the_new_era_too(new_server: PostgresServer) -> None:
    async with app_on(new_server) as app:
        await app.start(Reader, id="called")
        await parked(app, "called")
        await app.signal("called", "news", "x")
        await until(lambda: is_longer(app, "called", 5), "the events of the signal")
        assert {event.cursor[0] > ERA for event in await app.events("called")} == {True}


async def test_fault_86_cursors_go_on_after_a_recovery_to_an_earlier_moment() -> None:
    """The cluster has the same identifier then, and another timeline. A process that lives on notices it."""
    with PostgresServer(fsync=False) as server:
        async with app_on(server) as app:
            await app.start(Reader, id="a")
            await parked(app, "a")
            server.stop()
            copy = server.data_directory.with_name("copy")
            shutil.copytree(server.data_directory, copy)
            own(server, copy)
            server.start()
            server.psql(BURN)
            await app.signal("a", "news", "lost")
            await until(lambda: is_longer(app, "a", 5), "the events that are lost then")
            lost = (await app.events_after((0, 0), limit=100))[-1]
            server.stop()
            recover(server, copy)
            server.start()
            await app.start(Reader, id="later")
            found = await events_after(app, lost.cursor, 2)
            assert found[0].instance_id == "later"
            assert all(event.cursor[0] > ERA and event.seq > lost.seq for event in found)
        assert await query(store_on(server), "SELECT number, right(cluster, 9) FROM eras ORDER BY 1") == [
            (1, "/00000001"), (2, "/00000002"),
        ]  # fmt: skip


def own(server: PostgresServer, folder: Path) -> None:
    if owner := server._owner:
        for path in (folder, *folder.rglob("*")):
            shutil.chown(path, owner["user"], owner["group"])
    folder.chmod(0o700)


def recover(server: PostgresServer, copy: Path) -> None:
    shutil.rmtree(server.data_directory)
    copy.rename(server.data_directory)
    (server.data_directory / "recovery.signal").touch()
    with (server.data_directory / "postgresql.conf").open("a") as conf:
        conf.write("restore_command = 'false'\n")
    own(server, server.data_directory)


async def test_fault_86_processes_that_find_a_new_cluster_together_begin_one_era(new_server: PostgresServer) -> None:
    store = store_on(new_server)
    # As docs/operations.md says for a copy of the disk, which cannot be told from the server.
    await query(store, "UPDATE hark.eras SET cluster = 'restored/snapshot'")
    [(number,)] = await query(store, "SELECT max(number) FROM eras")
    apps = [app_on(new_server) for _ in range(3)]
    async with apps[0] as one, apps[1] as two, apps[2] as three:
        for n, app in enumerate((one, two, three)):
            await app.start(Reader, id=f"together-{n}")
    assert await query(store, "SELECT max(number) FROM eras") == [(number + 1,)]
    [(least,)] = await query(store, "SELECT min(tx) FROM events WHERE instance_id LIKE 'together-%'")
    assert least > number * ERA


async def test_fault_86_a_role_without_rights_on_the_sequence_and_the_identifier_works(
    new_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_on(new_server)
    for statement in (
        "CREATE ROLE plain LOGIN", "GRANT USAGE ON SCHEMA hark TO plain",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hark TO plain",
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM public",
    ):  # fmt: skip
        await query(store, statement)
    [(number,)] = await query(store, "SELECT max(number) FROM eras")
    plain = Hark(new_server.url.replace("hark@", "plain@"))
    plain.register(Reader)
    async with plain:
        await plain.start(Reader, id="plain")
    assert await query(store, "SELECT max(number) FROM eras") == [(number,)]
    await query(store, "UPDATE eras SET cluster = 'elsewhere/0000000A'")
    async with plain:
        await plain.start(Reader, id="plain-2")
    assert await query(store, "SELECT max(number) FROM eras") == [(number + 1,)]
    assert "SELECT setval(" in caplog.text
    async with app_on(new_server):  # a role that may read the identifier: the same cluster
        pass
    for function in (
        "pg_current_wal_lsn",
        "pg_control_checkpoint",
    ):  # the timeline is known by the other way, and by none
        await query(store, f"REVOKE EXECUTE ON FUNCTION {function}() FROM public")
        async with plain:
            await plain.start(Reader, id=f"without-{function}")
    assert await query(store, "SELECT max(number) FROM eras") == [(number + 1,)]


async def test_fault_86_a_store_whose_events_are_ahead_of_its_cluster_was_restored_whatever_the_cluster_says(
    new_server: PostgresServer,
) -> None:
    """Where neither the identifier nor the timeline can be read, as the role of the test before."""
    store = store_on(new_server)
    [(number,)] = await query(store, "SELECT max(number) FROM eras")
    await query(store, "UPDATE events SET tx = tx + 1000000 WHERE instance_id = 'plain'")
    await query(store, f"UPDATE events SET tx = {(number - 1) * ERA} + 1000000000 WHERE instance_id = 'plain-2'")
    plain = Hark(new_server.url.replace("hark@", "plain@"))
    plain.register(Reader)
    async with plain:
        await plain.start(Reader, id="behind")
        assert (await plain.events("behind"))[0].cursor[0] > number * ERA
    assert await query(store, "SELECT max(number) FROM eras") == [(number + 1,)]


async def test_x10_a_standby_is_refused_as_a_server_to_write_on(old_server: PostgresServer) -> None:
    db = await asyncpg.connect(old_server.url, server_settings={"search_path": "hark"})

    class Standby:
        async def fetchval(self, text: str) -> Any:
            return await db.fetchval(text.replace("pg_is_in_recovery()", "true"))

    with pytest.raises(Full, match="standby"):
        await postgres_eras.base_on(Standby())  # type: ignore[arg-type]
    await db.close()


async def test_a_fresh_store_begins_with_the_numbers_of_its_cluster(new_server: PostgresServer) -> None:
    app = Hark(new_server.url, schema="fresh")
    app.register(Reader)
    async with app:
        await app.start(Reader, id="a")
        assert all(event.cursor[0] < ERA for event in await app.events("a"))
        assert await events_after(app, (0, 0), 1)
    assert await query(store_on(new_server), "SELECT number FROM fresh.eras") == [(1,)]
