"""The databases that the suite runs on, and an empty store on one of them for each test.

A test takes the fixture `store` and opens `Hark(store.url, **store.options)`; it then runs on every `Database`. To run
the suite on another database, see docs/stores.md.
"""

import asyncio
import importlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from hark.store import connect
from hark.store.postgres import PostgresLease, PostgresTx
from hark.store.protocol import Store as StoreProtocol
from hark.store.sqlite import SqliteLease, SqliteTx, path_of

Ask = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


@dataclass(frozen=True)
class Store:
    """An empty store for one test."""

    name: str
    """Whose SQL it understands, "sqlite" or "postgres": a test that sends special SQL chooses it by this name."""
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    """The other arguments of `Hark`."""
    on: "Database | None" = None
    """Its database; None means the one called `name`."""

    @property
    def database(self) -> "Database":
        return self.on or DATABASES[self.name]

    def make(self, *, lease: float = 30.0, clock: Callable[[], int] | None = None) -> StoreProtocol:
        """The store without an engine."""
        return connect.factory(self.url, schema=self.options.get("schema", "hark"), lease=lease, clock=clock)()

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[Any]:
        """The store without an engine, while it is open."""
        made = self.make(**options)
        await made.open()
        try:
            yield made
        finally:
            await made.close()


@dataclass(frozen=True)
class Database:
    """What the suite needs of a database besides the store's own code."""

    name: str
    """Stands in the id of each test."""
    fresh: Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Store]]
    """Makes an empty store, and removes it after the test. The directory is empty too, and is removed anyway."""
    connect: Callable[[Store], AbstractAsyncContextManager[Ask]]
    """Opens a separate connection on which a test reads and writes any SQL."""
    tables: str
    """A statement that returns the names of all tables of a store, sorted."""
    tx: type[Any]
    """The class of its transactions. Tests that inject faults patch it."""
    lease: type[Any]
    """The class of its leases. Tests that inject faults patch it."""


def database_at(path: str) -> Database:
    """Import the `Database` at `module:name`, which `--store` names."""
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name or "DATABASE")
    if not isinstance(found, Database):
        raise TypeError(f"--store {path}: expected a tests.support.stores.Database, not {found!r}.")
    return found


# -- SQLite ----------------------------------------------------------------------------------------


def sqlite_file(directory: Path) -> Store:
    return Store("sqlite", f"sqlite:///{directory / 'hark.db'}")


@contextmanager
def _fresh_sqlite(request: pytest.FixtureRequest, directory: Path) -> Iterator[Store]:
    yield sqlite_file(directory)


@asynccontextmanager
async def ask_sqlite(path: str) -> AsyncIterator[Ask]:
    """A connection to an SQLite file, for any SQL."""
    db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READWRITE)
    db.set_busy_timeout(10_000)

    async def ask(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in db.execute(sql)]

    try:
        yield ask
    finally:
        db.close()


SQLITE = Database(
    name="sqlite",
    fresh=_fresh_sqlite,
    connect=lambda store: ask_sqlite(path_of(store.url) or ""),
    tables="SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1",
    tx=SqliteTx,
    lease=SqliteLease,
)


# -- PostgreSQL ------------------------------------------------------------------------------------


@contextmanager
def postgres_schema(url: str) -> Iterator[Store]:
    """A unique schema name; the schema is dropped after the test."""
    schema = f"hark_{secrets.token_hex(6)}"
    try:
        yield Store("postgres", url, {"schema": schema})
    finally:
        # A test that leaks an open transaction fails here, instead of hanging the run.
        run_sql(url, "SET lock_timeout = '10s'", f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


@contextmanager
def used_schema(url: str) -> Iterator[Store]:
    """A schema with empty tables on the run's server, for one test after another: making it takes longer than most."""
    idle = _idle[url]
    schema, made = idle.pop() if idle else _migrated(url)
    store = Store("postgres", url, {"schema": schema})
    yield store
    # As with DROP: a test that leaks an open transaction fails here.
    if run_sql(url, "SET lock_timeout = '10s'", f"SET search_path = {schema}", _EMPTY, _AS_MADE) == made:
        idle.append((schema, made))
    else:  # it has changed more than rows
        run_sql(url, f'DROP SCHEMA "{schema}" CASCADE')


_idle = defaultdict[str, list[tuple[str, str]]](list)  # by server: the schemas that no test uses now, and `_AS_MADE`


def _migrated(url: str) -> tuple[str, str]:
    schema = f"hark_{secrets.token_hex(6)}"
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(Store("postgres", url, {"schema": schema}).make().open("migrate"))
    return schema, run_sql(url, f"SET search_path = {schema}", _AS_MADE)


# DELETE, because TRUNCATE makes new files, which takes as long as a new schema, unless the table is large. A store has
# a secret from the beginning.
_EMPTY = """DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT relname AS name, relkind = 'S' AS counts, pg_relation_size(oid) AS size FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'S')
            AND relname NOT IN ('migrations', 'secrets')
    LOOP
        IF one.counts THEN
            PERFORM setval(format('%I', one.name), 1, false);
        ELSIF one.size > 1000000 THEN
            EXECUTE format('TRUNCATE %I', one.name);
        ELSE
            EXECUTE format('LOCK TABLE %I', one.name);
            IF one.size > 0 THEN
                EXECUTE format('DELETE FROM %I', one.name);
            END IF;
        END IF;
    END LOOP;
END $$"""
_AS_MADE = """
    SELECT md5(concat(
        (SELECT string_agg(concat(relname, relkind, relnatts, relacl, reloptions), ',' ORDER BY relname) FROM pg_class
            WHERE relnamespace = here),
        (SELECT string_agg(concat(proname, prosrc, proacl), ',' ORDER BY oid) FROM pg_proc WHERE pronamespace = here),
        (SELECT string_agg(concat(tgname, tgenabled), ',' ORDER BY tgname) FROM pg_trigger
            WHERE tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = here) AND NOT tgisinternal),
        (SELECT string_agg(conname, ',' ORDER BY conname) FROM pg_constraint WHERE connamespace = here),
        (SELECT string_agg(version::text, ',' ORDER BY version) FROM migrations),
        (SELECT string_agg(number::text || secret, ',' ORDER BY number) FROM secrets),
        (SELECT nspacl FROM pg_namespace WHERE oid = here)
    )) FROM (SELECT current_schema()::regnamespace::oid AS here)
"""


def schema_for(request: pytest.FixtureRequest, url: str) -> AbstractContextManager[Store]:
    """An empty schema, or the name of one that does not exist if the test is marked `no_tables`."""
    return postgres_schema(url) if request.node.get_closest_marker("no_tables") else used_schema(url)


def _fresh_postgres(request: pytest.FixtureRequest, directory: Path) -> AbstractContextManager[Store]:
    return schema_for(request, request.getfixturevalue("postgres").url)


@asynccontextmanager
async def _ask_postgres(store: Store) -> AsyncIterator[Ask]:
    connection = await asyncpg.connect(store.url, server_settings={"search_path": store.options["schema"]})

    async def ask(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(sql)]

    try:
        yield ask
    finally:
        await connection.close()


def run_sql(url: str, *statements: str) -> Any:
    """Run statements from synchronous code; returns the value of the last one, if any."""

    async def run() -> Any:
        connection = await asyncpg.connect(url, timeout=10)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1], timeout=30)
        finally:
            await connection.close(timeout=10)

    # Not asyncio.run: it would unset the loop that pytest-asyncio keeps for the test.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(run())


POSTGRES = Database(
    name="postgres",
    fresh=_fresh_postgres,
    connect=_ask_postgres,
    tables="SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1",
    tx=PostgresTx,
    lease=PostgresLease,
)
DATABASES = {database.name: database for database in (SQLITE, POSTGRES)}
