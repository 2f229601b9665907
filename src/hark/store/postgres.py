"""PostgreSQL 13+: many workers, many machines, a schema of its own.

A list is sent as one parameter per column (`unnest`, see sql.py). The timeouts of the write connection are shorter than
the lease, so a turn that hangs gives up while this worker still owns its work. This file has the connections; a turn on
one of them is in postgres_tx.py, what the errors of the driver mean in postgres_faults.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import asyncpg

from hark.model.errors import InvalidInput, StoreUnavailable
from hark.model.masking import masked
from hark.model.reasons import reason
from hark.store import migrate, postgres_eras, statements
from hark.store.postgres_faults import FAULTS, failed, fault_of, may_be_starting, terminated_on_failure, unreachable
from hark.store.postgres_tx import PostgresTx, fetch
from hark.store.protocol import Access, Full, Lost, Server, StoreFault
from hark.store.sql import R, Sql

# No character of the password can end up in host, port or name.
_URL: Final = re.compile(r"postgres(?:ql)?://(?:[^@:/?#]*(?::[^@/?#]*)?@)?[^@/?#]*(?:/[^@?#]*)?(?:\?[^#]*)?")
_SCHEMA: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")  # PostgreSQL reserves pg_…
_NOW: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# Invariant 17: a turn takes this shared lock before it gets its transaction number; `reads.horizon` finds running turns
# by it and ignores all other transactions.
_BEGIN: Final = f"""
    SELECT pg_advisory_xact_lock_shared(hashtext('hark:' || current_schema()), -1), {_NOW},
        pg_current_xact_id()::text::bigint
"""
_READERS: Final = 4
_MAX_SILENCE = 10.0  # seconds
# Every statement of a turn and every read must use an index, whatever the statistics say: a new table without
# statistics was scanned, and a generic `= ANY` over a scan compares each row with each element (13 ms instead of 1; a
# read of 10,000 rows ran into the timeout).
_PLANS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
}


def check_schema(schema: str) -> None:
    """Validate the name of a schema: it becomes part of SQL texts.

    Raises:
        InvalidInput: The name is too long, is reserved, or needs quotes.
    """
    if not isinstance(schema, str) or not _SCHEMA.fullmatch(schema):
        raise InvalidInput(
            f"{schema!r} is not a valid schema name. Use lower-case letters, digits and _; do not start with a digit "
            "or with pg_."
        )


def check_url(url: str) -> None:
    """Validate the form of a URL, so that no part of its password is taken for a host, a port or a database.

    Raises:
        InvalidInput: A character in it must be escaped.
    """
    if not _URL.fullmatch(url):
        raise InvalidInput(
            f"{masked(url)!r} is not the URL of a PostgreSQL database. Write postgresql://user:password@host:port/db, "
            "and escape @ : / ? # % in user and password as %40 %3A %2F %3F %23 %25."
        )


async def _check_encoding(db: asyncpg.Connection) -> None:
    """Refuse a database that cannot store every text: the first payload with another character would fail.

    Raises:
        StoreUnavailable: Its encoding is not UTF8.
    """
    encoding, name = await db.fetchrow("SELECT current_setting('server_encoding'), current_database()::text")  # type: ignore[misc]
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"The database {name!r} has the encoding {encoding}, which cannot store every text. The encoding of a "
            "database cannot be changed. Create another one: CREATE DATABASE hark ENCODING 'UTF8' LC_COLLATE 'C' "
            "LC_CTYPE 'C' TEMPLATE template0;"
        )


class PostgresStore:
    """A Store in one schema of a PostgreSQL database.

    It holds three kinds of connections (writer, listener, readers) with the state of each; what they share,
    reconnecting and the time after it, would otherwise be passed around.
    """

    durable = True
    has_call_turns = True

    def __init__(self, url: str, *, schema: str, lease: float, clock: Callable[[], int] | None = None) -> None:
        self._url = url
        self._schema = schema
        self._channel = f"hark_{schema}"[:63]
        # Of a statement, in seconds. A silent server is given up before the lease ends, and before a caller gives up.
        self._timeout = min(max(1.0, lease / 3), _MAX_SILENCE)
        self._lease = lease
        self._clock = clock
        self.poll = 1.0
        self._db: asyncpg.Connection | None = None
        self._listener: asyncpg.Connection | None = None
        self._hint: Callable[[], None] = lambda: None
        self._idle_readers: list[asyncpg.Connection] = []
        self._may_read = asyncio.Semaphore(_READERS)
        self._quiet = 0.0  # no reclaim before this time, by the monotonic clock
        self._was_cut = False  # a connection was lost, and none has been opened since
        self._last_tx: PostgresTx | None = None
        self._base = 0  # of the era of the writer (postgres_eras.py)
        self._opened = False
        self._announcing: asyncio.Task[None] | None = None
        self._announce_again = False

    @staticmethod
    def check(url: str, schema: str) -> None:
        check_url(url)
        check_schema(schema)

    @staticmethod
    def exists(url: str) -> bool:
        return True

    @staticmethod
    def shared_url(url: str) -> str | None:
        return url

    @staticmethod
    def dump_migrations(schema: str) -> str:
        return migrate.dump("postgres", schema)

    # -- connecting -------------------------------------------------------------------------------

    async def connect(self, *, readonly: bool = False, role: str = "reader") -> asyncpg.Connection:
        """Open a connection with the settings of its role: clerk, reader, listener, lease, migrate or doctor."""
        wait = f"{int(self._timeout * 900)}ms"  # the server's own error comes first
        settings = {
            "search_path": self._schema,
            "application_name": f"hark {role}",
            "lock_timeout": wait,
            "statement_timeout": wait,
            "idle_in_transaction_session_timeout": wait,
            "tcp_keepalives_idle": str(int(self._timeout)),
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "jit": "off",
            "default_transaction_isolation": "read committed",
        }
        if readonly:
            settings["default_transaction_read_only"] = "on"
        if role in ("clerk", "reader"):
            settings |= _PLANS
        migrating = role == "migrate"  # before there is a lease: may wait while another process migrates a large table
        db = await asyncpg.connect(
            self._url, server_settings=settings, timeout=10.0 if migrating else self._timeout / 2,
            command_timeout=None if migrating else self._timeout, statement_cache_size=256,
        )  # fmt: skip
        if self._was_cut:
            # After an outage the workers renew their leases first: no reclaim for one lease (M5). Any connection may
            # be the first to notice.
            self._quiet = time.monotonic() + self._lease
            self._was_cut = False
        return db

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Use uvloop: a turn is a dozen round trips, which take 40 µs each instead of 78 (measured)."""
        try:
            import uvloop
        except ImportError:  # does not exist for this platform
            return asyncio.new_event_loop()
        return uvloop.new_event_loop()

    async def open(self, access: Access = "migrate") -> None:
        migrating = access == "migrate"
        db = await self._first_connection(migrating=migrating)
        try:
            await _check_encoding(db)
            if migrating:
                await self._migrate(db)
            else:
                migrate.check_current("postgres", await self._version(db))
            up = await db.fetchval("SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8")
            self._quiet = time.monotonic() + self._lease - max(0.0, up)
        except FAULTS as error:
            if may_be_starting(error):
                raise unreachable(error) from error
            raise StoreUnavailable(
                f"PostgreSQL cannot migrate the schema {self._schema!r}: {reason(error)}. Give this role the right to "
                "create it, or apply the output of `hark migrate --dump-sql` with a role that has it."
                if migrating
                else f"PostgreSQL cannot read the schema {self._schema!r}: {reason(error)}. Grant this role USAGE on "
                "the schema and SELECT on its tables."
            ) from error
        finally:
            with contextlib.suppress(*FAULTS):
                await db.close(timeout=2)
        self._opened = True

    async def _first_connection(self, *, migrating: bool) -> asyncpg.Connection:
        try:
            return await self.connect(role="migrate") if migrating else await self.connect(readonly=True)
        except asyncpg.ClientConfigurationError as error:
            raise InvalidInput(f"{masked(self._url)!r} cannot be used: {reason(error)}. Correct the URL.") from error
        except FAULTS as error:
            if may_be_starting(error):
                raise unreachable(error) from error
            raise StoreUnavailable(
                f"PostgreSQL refuses the connection: {reason(error)}. Check the user, the password and the name of the "
                "database in the URL."
            ) from error
        except ValueError:
            pass  # the text, also of a chained exception, may have a part of the password in it
        raise InvalidInput(f"{masked(self._url)!r} cannot be read. Check its port and the options after `?`.")

    async def _migrate(self, db: asyncpg.Connection) -> None:
        # An advisory lock: processes that start at the same time wait for each other here.
        await db.execute("SET statement_timeout = 0; SET lock_timeout = 0")
        async with db.transaction():
            await db.execute(
                "SELECT pg_advisory_xact_lock(hashtext('hark:migrate:' || $1))".replace("$1", f"'{self._schema}'")
            )
            if not await db.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", self._schema):
                await db.execute(f'CREATE SCHEMA "{self._schema}"')
            for number, _, script in migrate.missing("postgres", await self._version(db)):
                await db.execute(script)
                await db.execute("INSERT INTO migrations (version) VALUES ($1)", number)
            # Not only CREATE OR REPLACE, which requires the right to create even if there is nothing to do.
            for name, script in migrate.functions("postgres"):
                if not await db.fetchval("SELECT to_regproc($1)", f"{self._schema}.{name}"):
                    await db.execute(script)

    async def _version(self, db: asyncpg.Connection) -> int:
        """Read the version of the tables in this schema; 0 if there are none."""
        found = await db.fetch(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = $1 AND c.relname IN ('migrations', 'eras')",
            self._schema,
        )
        tables = {name for (name,) in found}
        migrate.check_released(tables)
        return await db.fetchval("SELECT coalesce(max(version), 0) FROM migrations") if tables else 0

    async def close(self) -> None:
        if self._announcing:
            with contextlib.suppress(*FAULTS):
                await self._announcing
        for db in [self._db, self._listener, *self._idle_readers]:
            if db is not None and not db.is_closed():
                with contextlib.suppress(*FAULTS):
                    await db.close(timeout=2)
        self._db = self._listener = None
        self._idle_readers.clear()

    async def _writer(self) -> asyncpg.Connection:
        if self._db is None or self._db.is_closed():
            self._was_cut = self._was_cut or self._db is not None
            try:
                self._db = await self._connect_writer()
            except asyncpg.ReadOnlySQLTransactionError as error:  # it would begin an era
                raise Full(reason(error)) from error
            except FAULTS as error:
                raise Lost(reason(error)) from error
        return self._db

    async def _connect_writer(self) -> asyncpg.Connection:
        db = await self.connect(role="clerk")
        try:
            self._base = await postgres_eras.base_on(db)
        except BaseException:
            db.terminate()
            raise
        return db

    # -- turns ------------------------------------------------------------------------------------

    async def begin(self, *, call_turn: bool = False) -> PostgresTx:
        db = await self._writer()
        now, xid = 0, self._base
        try:
            await db.execute("BEGIN")
            if not call_turn:
                _, now, number = await db.fetchrow(_BEGIN)  # type: ignore[misc]
                xid += number
        except FAULTS as error:
            fault = fault_of(error)
            db.terminate()
            raise Lost(reason(fault)) from error
        except asyncio.CancelledError:
            db.terminate()
            raise
        now = self._clock() if self._clock else now
        position = max(now, self._last_tx.position + 1) if self._last_tx is not None else now
        self._last_tx = PostgresTx(db, now, position, xid)
        return self._last_tx

    def has_other_writers(self) -> bool:
        return False  # writers do not exclude each other

    async def committed(self, xid: int) -> bool:
        """Ask `pg_xact_status` until the transaction has ended."""
        number = postgres_eras.number_in_cluster(xid)
        while True:
            db = await self._writer()
            with terminated_on_failure(db):
                try:
                    status = await db.fetchval("SELECT pg_xact_status($1::text::xid8)", str(number))
                except asyncpg.InvalidParameterValueError:
                    return False  # a number "in the future": the server crashed and has forgotten the transaction
            if status != "in progress":
                return bool(status == "committed")
            await asyncio.sleep(0.05)

    # -- reads ------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _reader(self) -> AsyncIterator[asyncpg.Connection]:
        """Borrow a read connection; at most _READERS are open."""
        async with self._may_read:
            db = self._idle_readers.pop() if self._idle_readers else None
            gave_up = False
            try:
                if db is None or db.is_closed():
                    self._was_cut = self._was_cut or db is not None
                    db = await self.connect(readonly=True)
                yield db
            except FAULTS as error:
                raise failed(db, error) from error
            except asyncio.CancelledError:
                gave_up = True  # perhaps because of too many reads: this is no outage, dead workers must still be found
                if db is not None:
                    db.terminate()  # the server may never answer on this connection
                raise
            finally:
                if db is not None and not db.is_closed():
                    self._idle_readers.append(db)
                elif not gave_up:
                    self._was_cut = True

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        async with self._reader() as db:
            return await fetch(db, sql, rows, values)

    async def time(self) -> int:
        if self._clock:
            return self._clock()
        async with self._reader() as db:
            return int(await db.fetchval(f"SELECT {_NOW}"))

    async def server(self) -> Server:
        async with self._reader() as db:
            name = f"PostgreSQL {await db.fetchval('SHOW server_version')}"
        return Server(name, await self._why_read_only())

    async def _why_read_only(self) -> str | None:
        """Say why this role cannot write; None if it may be able to. On a connection of its own: those of the readers
        are read-only by themselves."""
        try:
            db = await self.connect(role="doctor")
        except FAULTS as error:
            raise failed(None, error) from error
        with terminated_on_failure(db):
            standby, read_only = await db.fetchrow(  # type: ignore[misc]
                "SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
            )
            await db.close(timeout=2)
        if standby:
            return "the server is a standby and accepts no writes: use the URL of the primary, or promote it"
        if read_only:
            return (
                "the database is read-only (default_transaction_read_only is on): nothing can be started, signalled or "
                "answered. Turn it off with ALTER SYSTEM, ALTER DATABASE or ALTER ROLE, where it was set"
            )
        return None

    def no_reclaim_before(self) -> float:
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
        """Reopen the listening connection if it is gone. Always True: a NOTIFY is only a hint, and may be lost."""
        if self._listener is None or self._listener.is_closed():
            self._was_cut = self._was_cut or self._listener is not None
            try:
                listener = await self.connect(role="listener")
                await listener.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
                await listener.add_listener(self._channel, self._notified)
            except FAULTS as error:
                raise fault_of(error) from error
            self._listener = listener
        return True

    def _notified(self, listener: Any, sender: int, channel: str, payload: object) -> None:
        if sender != listener.get_server_pid():  # `_notify` sends on this connection
            self._hint()

    async def announce(self) -> None:
        """Send a NOTIFY outside the turn, because it takes a global lock at COMMIT. One at a time: calls are merged."""
        if self._announcing and not self._announcing.done():
            self._announce_again = True
            return
        self._announcing = asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        while True:
            self._announce_again = False
            listener = self._listener
            if listener is None or listener.is_closed():  # the process may end before its first poll opens one
                with contextlib.suppress(StoreFault):
                    async with self._reader() as db:
                        await db.execute(f'NOTIFY "{self._channel}"')
            else:
                try:
                    await listener.execute(f'NOTIFY "{self._channel}"')
                except FAULTS:
                    listener.terminate()  # may never work again: the next poll opens another
            if not self._announce_again:
                return


class PostgresLease:
    """A Lease with its own event loop and connection."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._db: asyncpg.Connection | None = None

    def renew(self, worker: str, length: int, definitions: str, info: str) -> None:
        self._loop.run_until_complete(self._renew(worker, length, definitions, info))

    async def _renew(self, worker: str, length: int, definitions: str, info: str) -> None:
        try:
            if self._db is None or self._db.is_closed():
                self._db = await self._store.connect(role="lease")
            clock = self._store.clock
            now = clock() if clock else await self._db.fetchval(f"SELECT {_NOW}")
            values = {"id": worker, "until": now + length, "definitions": definitions, "info": info, "now": now}
            await fetch(self._db, statements.renew, None, values)
        except FAULTS as error:
            raise failed(self._db, error) from error

    def close(self) -> None:
        if self._db is not None and not self._db.is_closed():
            with contextlib.suppress(*FAULTS):
                self._loop.run_until_complete(self._db.close(timeout=2))
        self._loop.close()
