"""PostgreSQL 13+: many workers, many machines, a schema of its own.

Whole lists travel in one parameter per column (`unnest`, see sql.py). The write connection's time-outs lie below
the lease, so a stuck turn gives up while its work is still ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import asyncpg

from hark.model.errors import InvalidInput, StoreUnavailable
from hark.store import migrate, statements
from hark.store.protocol import Conflicted, Full, Lost, Refused, Server, StoreFault
from hark.store.sql import R, Sql

_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")  # pg_… is PostgreSQL's own
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# Invariant 17: who writes here says so, before it has a number; `horizon` looks for these and for nobody else's.
_BEGIN: Final = f"""
    SELECT pg_advisory_xact_lock_shared(hashtext('hark:' || current_schema()), -1), {_NOW},
        pg_current_xact_id()::text::bigint
"""
_RESERVE: Final = """
    SELECT pg_advisory_xact_lock(hashtext('hark:' || current_schema()), n)
    FROM (SELECT unnest($1::int[]) AS n ORDER BY 1) t
"""
_READERS: Final = 4
# Every statement of a turn goes through an index, whatever the statistics say: a fresh table without any
# was scanned, and a generic `= ANY` over a scan compares each row with each element (13 ms instead of 1).
_PLANS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}


def _fault(error: BaseException) -> StoreFault:
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        if state in ("40001", "40P01", "55P03", "57014", "25P03"):
            return Conflicted(str(error))
        if state[:2] in ("08", "57"):
            return Lost(str(error))
        if state[:2] in ("53", "58", "25"):
            return Full(str(error))
        return Refused(str(error))
    if isinstance(error, asyncpg.InterfaceError):
        # A closed connection, or a value that no column takes; only the first is nobody's fault.
        return Lost(str(error)) if "closed" in str(error) or "connection" in str(error) else Refused(str(error))
    return Lost(f"{type(error).__name__}: {error}")


_FAULTS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    OSError,
    asyncio.TimeoutError,
    asyncpg.InternalClientError,
)


def check_schema(schema: str) -> None:
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        raise InvalidInput(
            f"{schema!r} cannot be our schema. Use lower-case letters, digits and _, starting with a letter, not pg_."
        )


class PostgresTx:
    __slots__ = ("_db", "now", "position", "xid")

    def __init__(self, db: asyncpg.Connection, now: int, position: int, xid: int) -> None:
        self._db = db
        self.now = now
        self.position = position
        self.xid = xid

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        values["now"], values["position"] = self.now, self.position
        return await _fetch(self._db, sql, rows, values)

    async def reserve(self, numbers: Sequence[int]) -> None:
        try:
            await self._db.fetch(_RESERVE, numbers)
        except _FAULTS as error:
            raise _failed(self._db, error) from error

    async def commit(self) -> None:
        try:
            await self._db.execute("COMMIT")
        except _FAULTS as error:
            raise _failed(self._db, error) from error

    async def rollback(self) -> None:
        try:
            await self._db.execute("ROLLBACK")
        except _FAULTS:
            self._db.terminate()  # whoever has not rolled back must not be given another BEGIN


async def _fetch(
    db: asyncpg.Connection, sql: Sql[R], rows: Sequence[Sequence[Any]] | None, values: dict[str, Any]
) -> list[R]:
    try:
        text, given = sql.ask(rows, values)
        found: list[Any] = await db.fetch(text, *given)
    except _FAULTS as error:
        raise _failed(db, error) from error
    return found if sql.row is None else list(itertools.starmap(sql.row, found))


def _failed(db: asyncpg.Connection | None, error: BaseException) -> StoreFault:
    """What it means. A server that does not answer in time is gone: nothing more is asked on this connection."""
    fault = _fault(error)
    if db is not None and isinstance(fault, Lost):
        db.terminate()
    return fault


class PostgresStore:
    """A Store in one schema of a PostgreSQL database."""

    durable = True

    def __init__(self, url: str, *, schema: str, lease: float, clock: Callable[[], int] | None = None) -> None:
        self._url = url
        self._schema = schema
        self._channel = f"hark_{schema}"[:63]
        self._patience = max(1.0, lease / 3)
        self._lease_length = int(lease * 1_000_000)
        self._clock = clock
        self.poll = 1.0
        self._db: asyncpg.Connection | None = None
        self._ear: asyncpg.Connection | None = None
        self._hint: Callable[[], None] = lambda: None
        self._readers: list[asyncpg.Connection] = []
        self._seats = asyncio.Semaphore(_READERS)
        self._quiet = 0
        self._cut = False
        self._tx: PostgresTx | None = None  # the last one
        self._opened = False
        self._announcing: asyncio.Task[None] | None = None
        self._again = False

    @staticmethod
    def check(url: str, schema: str) -> None:
        check_schema(schema)

    @staticmethod
    def exists(url: str) -> bool:
        return True

    @staticmethod
    def dump_migrations(schema: str) -> str:
        return migrate.dump("postgres", schema)

    # -- connecting -------------------------------------------------------------------------------

    async def connect(self, *, readonly: bool = False, role: str = "reader") -> asyncpg.Connection:
        wait = f"{int(self._patience * 1000)}ms"
        settings = {
            "search_path": self._schema,
            "application_name": f"hark {role}",
            "lock_timeout": wait,
            "statement_timeout": wait,
            "idle_in_transaction_session_timeout": wait,
            "tcp_keepalives_idle": str(int(self._patience)),
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "jit": "off",
            "default_transaction_isolation": "read committed",
        }
        if readonly:
            settings["default_transaction_read_only"] = "on"
        if role == "clerk":
            settings |= _PLANS
        opening = role == "migrate"  # before any lease: waits for whoever migrates a large table
        db = await asyncpg.connect(
            self._url, server_settings=settings, timeout=max(10.0, self._patience) if opening else self._patience,
            command_timeout=None if opening else self._patience * 1.5, statement_cache_size=256,
        )  # fmt: skip
        if self._cut:
            # After an outage the owners renew first: nobody reclaims for one lease, whichever connection sees it.
            self._quiet = await db.fetchval(f"SELECT {_NOW}") + self._lease_length
            self._cut = False
        return db

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """A turn is a dozen round trips, and uvloop makes one in half the time (measured: 40 µs instead of 78)."""
        try:
            import uvloop
        except ImportError:  # not made for this platform
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()

    async def open(self) -> None:
        try:
            db = await self.connect(role="migrate")
        except (*_FAULTS, ValueError) as error:
            raise StoreUnavailable(
                f"PostgreSQL cannot be reached: {error}. Check the URL, and that the server runs and lets you in."
            ) from error
        try:
            await self._migrate(db)
            started = await db.fetchval("SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint")
            self._quiet = started + self._lease_length
        except _FAULTS as error:
            raise StoreUnavailable(
                f"PostgreSQL cannot prepare the schema {self._schema!r}: {error}. Give this role the right to create "
                "it, or let somebody who has it apply `hark migrate --dump-sql`."
            ) from error
        finally:
            with contextlib.suppress(*_FAULTS):
                await db.close(timeout=2)
        self._opened = True

    async def _migrate(self, db: asyncpg.Connection) -> None:
        # The lock is the database's own, so ten processes that start at once queue here.
        await db.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        async with db.transaction():
            await db.execute(
                "SELECT pg_advisory_xact_lock(hashtext('hark:migrate:' || $1))".replace("$1", f"'{self._schema}'")
            )
            if not await db.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", self._schema):
                await db.execute(f'CREATE SCHEMA "{self._schema}"')
            # Not IF NOT EXISTS, which asks for the right to create even where there is nothing to do.
            if not await db.fetchval("SELECT to_regclass($1)", f"{self._schema}.migrations"):
                await db.execute("CREATE TABLE migrations (version integer PRIMARY KEY)")
            current = await db.fetchval("SELECT coalesce(max(version), 0) FROM migrations")
            for number, _, script in migrate.missing("postgres", current):
                await db.execute(script)
                await db.execute("INSERT INTO migrations (version) VALUES ($1)", number)

    async def close(self) -> None:
        if self._announcing:
            with contextlib.suppress(*_FAULTS):
                await self._announcing
        for db in [self._db, self._ear, *self._readers]:
            if db is not None and not db.is_closed():
                with contextlib.suppress(*_FAULTS):
                    await db.close(timeout=2)
        self._db = self._ear = None
        self._readers.clear()

    async def _writer(self) -> asyncpg.Connection:
        if self._db is None or self._db.is_closed():
            self._cut = self._cut or self._db is not None
            try:
                self._db = await self.connect(role="clerk")
            except _FAULTS as error:
                raise Lost(str(error)) from error
        return self._db

    # -- turns ------------------------------------------------------------------------------------

    async def begin(self) -> PostgresTx:
        db = await self._writer()
        try:
            await db.execute("BEGIN")
            _, now, xid = await db.fetchrow(_BEGIN)  # type: ignore[misc]
        except _FAULTS as error:
            fault = _fault(error)
            db.terminate()
            raise Lost(str(fault)) from error
        now = self._clock() if self._clock else now
        position = max(now, self._tx.position + 1) if self._tx is not None else now
        self._tx = PostgresTx(db, now, position, xid)
        return self._tx

    def crowded(self) -> bool:
        return False  # writers do not exclude each other here

    async def committed(self, xid: int) -> bool:
        """After a cut in COMMIT: what became of it, from the database itself."""
        while True:
            db = await self._writer()
            try:
                status = await db.fetchval("SELECT pg_xact_status($1::text::xid8)", str(xid))
            except asyncpg.InvalidParameterValueError:
                return False  # «in the future»: the server crashed and has forgotten it
            except _FAULTS as error:
                db.terminate()
                raise _fault(error) from error
            if status != "in progress":
                return bool(status == "committed")
            await asyncio.sleep(0.05)

    # -- reads ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _seat(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._seats:
            db = self._readers.pop() if self._readers else None
            try:
                if db is None or db.is_closed():
                    self._cut = self._cut or db is not None
                    db = await self.connect(readonly=True)
                yield db
            except _FAULTS as error:
                raise _failed(db, error) from error
            finally:
                if db is not None and not db.is_closed():
                    self._readers.append(db)
                else:
                    self._cut = True

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        async with self._seat() as db:
            return await _fetch(db, sql, rows, values)

    async def time(self) -> int:
        if self._clock:
            return self._clock()
        async with self._seat() as db:
            return int(await db.fetchval(f"SELECT {_NOW}"))

    async def server(self) -> Server:
        async with self._seat() as db:
            return Server(f"PostgreSQL {await db.fetchval('SHOW server_version')}")

    def quiet_until(self) -> int:
        return self._quiet

    # -- leases and hints -------------------------------------------------------------------------

    def lease(self) -> PostgresLease:
        return PostgresLease(self)

    @property
    def clock(self) -> Callable[[], int] | None:
        return self._clock

    def listen(self, hint: Callable[[], None]) -> None:
        self._hint = hint

    async def changed(self) -> bool:
        """Called at every poll: keeps the ear open. A NOTIFY is only a hint, so the answer is always yes."""
        if self._ear is None or self._ear.is_closed():
            self._cut = self._cut or self._ear is not None
            try:
                ear = await self.connect(role="ear")
                await ear.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
                await ear.add_listener(self._channel, self._heard)
            except _FAULTS as error:
                raise _fault(error) from error
            self._ear = ear
        return True

    def _heard(self, ear: Any, sender: int, channel: str, payload: object) -> None:
        if sender != ear.get_server_pid():  # not our own voice
            self._hint()

    async def announce(self) -> None:
        """Tell the other processes, outside the write path: NOTIFY takes a global lock at commit."""
        if self._announcing and not self._announcing.done():
            self._again = True
            return
        self._announcing = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        while True:
            self._again = False
            ear = self._ear
            if ear is None or ear.is_closed():  # a process that has just begun, and may end before it listens
                with contextlib.suppress(StoreFault):
                    async with self._seat() as db:
                        await db.execute(f'NOTIFY "{self._channel}"')
            else:
                try:
                    await ear.execute(f'NOTIFY "{self._channel}"')
                except _FAULTS:
                    ear.terminate()  # silent, perhaps for good: the next poll opens another
            if not self._again:
                return


class PostgresLease:
    """Renews from its own thread, its own loop and its own connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._db: asyncpg.Connection | None = None

    def renew(self, worker: str, length: int, definitions: str) -> None:
        self._loop.run_until_complete(self._renew(worker, length, definitions))

    async def _renew(self, worker: str, length: int, definitions: str) -> None:
        try:
            if self._db is None or self._db.is_closed():
                self._db = await self._store.connect(role="lease")
            clock = self._store.clock
            now = clock() if clock else await self._db.fetchval(f"SELECT {_NOW}")
            values = {"id": worker, "until": now + length, "definitions": definitions, "now": now}
            await _fetch(self._db, statements.renew, None, values)
        except _FAULTS as error:
            raise _failed(self._db, error) from error

    def close(self) -> None:
        if self._db is not None and not self._db.is_closed():
            with contextlib.suppress(*_FAULTS):
                self._loop.run_until_complete(self._db.close(timeout=2))
        self._loop.close()
