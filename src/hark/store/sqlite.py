"""SQLite: one file, one machine, one writer. WAL, synchronous=FULL.

A statement receives each list as one JSON parameter, so a batch is one call into C that releases the GIL. apsw brings
its own SQLite: before 3.51.3 a WAL shared by several connections can be corrupted, and the library of the operating
system is often older.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import apsw
import msgspec

from hark.model.errors import InvalidInput, StoreUnavailable
from hark.model.masking import masked
from hark.model.reasons import reason
from hark.store import migrate, private_file, sqlite_log, statements
from hark.store.file_identity import FileIdentity, holders_of_removed
from hark.store.protocol import Access, Server, StoreFault
from hark.store.sql import R, Sql
from hark.store.sqlite_faults import DAMAGED, damaged, fault_of, opening

_encode: Final = msgspec.json.Encoder().encode
_LISTS: Final = (list, tuple, set)  # a name, because `list | tuple | set` builds a type for every value
# A writer tries to get the lock of another one 50 times after 0.2 ms, then after 1 ms. `busy_timeout` would wait
# up to 100 ms between two tries: beside a busy worker, the p95 was 0.6-0.9 s with it and 24 ms with this.
_MAX_WAIT = 10.0  # seconds, by the clock: a sleep of 1 ms takes longer on a busy machine
_SHORT_TRIES: Final = 50
_OLDEST_SAFE: Final = (3, 51, 3)


def _clock() -> int:
    return time.time_ns() // 1000


def path_of(url: str) -> str | None:
    """Return the path in a SQLite URL, None for a database in memory.

    `sqlite:///hark.db` is relative, `sqlite:////tmp/x.db` absolute, `sqlite://` in memory.

    Raises:
        InvalidInput: The URL has a host, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may have a password in it
        parts = None
    if parts is None or parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(
            f"{masked(url)!r} is not a SQLite URL. Write sqlite:///file.db, sqlite:////absolute/file.db or sqlite://."
        )
    name = unquote(parts.path[1:])
    return name or None


class _Busy:
    """The busy handler of one connection: waits for the lock of another writer, and gives up after _MAX_WAIT."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def __call__(self, count: int) -> bool:
        """Wait after `count` tries for the lock. Returns False to give up."""
        if count == 0:
            self._until = time.monotonic() + _MAX_WAIT
        _pause(count)
        return time.monotonic() < self._until


def _pause(count: int) -> None:
    time.sleep(0.0002 if count < _SHORT_TRIES else 0.001)


def _connect(path: str | None, *, readonly: bool = False) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with opening(path):
        db = _open(path or ":memory:", flags)
        if path and not readonly:
            _use_wal(db)
        db.execute("PRAGMA synchronous = FULL")
    return db


def _open(name: str, flags: int) -> apsw.Connection:
    db = apsw.Connection(name, flags=flags, statementcachesize=256)
    db.set_busy_handler(_Busy())
    return db


def _look(path: str) -> apsw.Connection:
    """Open a file for reading, and leave its folder as it was.

    SQLITE_OPEN_READONLY creates -wal and -shm too, and leaves them behind. A connection that could write, and has
    `query_only`, removes them when it is the last one. For a file that may not be written SQLite falls back to
    reading by itself, and that fails if it cannot create these two. Without a -wal the file has all that was committed,
    and no process has it open: it is read as it is.
    """
    with opening(path):
        db = _open(path, apsw.SQLITE_OPEN_READWRITE)
        try:
            db.execute("PRAGMA query_only = ON")
            db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()
        except (apsw.ReadOnlyError, apsw.CantOpenError):
            db.close()
            if os.path.exists(f"{path}-wal"):
                raise
            unchanging = f"file:{quote(os.path.abspath(path))}?immutable=1"
            db = _open(unchanging, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    return db


def _use_wal(db: apsw.Connection) -> None:
    """Switch to WAL. SQLite calls no busy handler here, so processes that open a new file together have to retry."""
    busy = _Busy()
    for count in itertools.count():
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except apsw.BusyError:
            if not busy(count):
                raise


def _run(db: apsw.Connection, sql: Sql[R], rows: Sequence[Sequence[Any]] | None, values: dict[str, Any]) -> list[R]:
    if rows is not None:
        values["rows"] = rows
    bound = {k: _encode(v).decode() if isinstance(v, _LISTS) else v for k, v in values.items()}
    try:
        found: list[Any] = db.execute(sql.sqlite, bound).fetchall()
    except apsw.Error as error:
        raise fault_of(error, db) from error
    return found if sql.row is None else list(itertools.starmap(sql.row, found))


def _server(version: str, url: str) -> Server:
    if tuple(int(part) for part in version.split(".")) < _OLDEST_SAFE:
        problem = f"SQLite {version} can corrupt a shared WAL: upgrade with `pip install -U apsw`"
        return Server(f"SQLite {version}", problem)
    return Server(f"SQLite {version} ({url})")


def _is_writable(path: str) -> bool:
    return os.access(path, os.W_OK) and os.access(os.path.dirname(os.path.abspath(path)), os.W_OK)


def _version(db: apsw.Connection) -> int:
    """Read the version of the tables in this file; 0 if there are none."""
    found: Any = db.execute("SELECT name FROM sqlite_schema WHERE name IN ('migrations', 'eras')").fetchall()
    tables = {name for (name,) in found}
    migrate.check_released(tables)
    if not tables:
        return 0
    [[current]] = db.execute("SELECT coalesce(max(version), 0) FROM migrations").fetchall()
    return int(current)  # type: ignore[arg-type]


def _data_version(db: apsw.Connection) -> int:
    """Read the number that changes when another connection commits."""
    try:
        [[version]] = db.execute("PRAGMA data_version").fetchall()
    except apsw.Error as error:
        raise fault_of(error, db) from error
    return int(version)  # type: ignore[arg-type]


class SqliteTx:
    """A Tx on the write connection. Nothing in it waits: SQLite executes in the clerk's thread."""

    __slots__ = ("_db", "_identity", "now", "position", "xid")

    def __init__(self, db: apsw.Connection, identity: FileIdentity | None, now: int, position: int) -> None:
        self._db = db
        self._identity = identity
        self.now = now
        self.position = position
        self.xid = 0

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        values["now"], values["position"] = self.now, self.position
        return _run(self._db, sql, rows, values)

    async def reserve(self, numbers: Sequence[int]) -> None:
        """Do nothing: there is no other writer."""

    async def commit(self) -> None:
        try:
            self._db.execute("COMMIT")
        except apsw.Error as error:
            raise fault_of(error, self._db) from error
        if self._identity is not None:
            # After the COMMIT: if the files were replaced before it, this turn must not be acknowledged.
            self._identity.check()

    async def rollback(self) -> None:
        # A failed COMMIT (disk full) may have rolled back already.
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error as error:
            raise fault_of(error, self._db) from error


class SqliteStore:
    """A Store on one file, or in memory."""

    def __init__(
        self, url: str, *, schema: str = "", lease: float = 0.0, clock: Callable[[], int] | None = None
    ) -> None:
        # Ignores the schema (a file has one) and the lease (a write gives up after _MAX_WAIT).
        self._url = url
        self._path = path_of(url)
        self._clock = clock or _clock
        self.durable = self._path is not None
        self.has_call_turns = False
        self.poll = 0.02
        self._db: apsw.Connection | None = None
        self._identity: FileIdentity | None = None  # if there is a file
        self._reader: apsw.Connection | None = None
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="hark-read") if self._path else None
        # `_data_version` as `changed` and `begin` last saw it.
        self._polled_version = 0
        self._moved = False  # as `changed` returned it last
        self._begun_version = 0
        self._other_writers_until = 0.0  # by the monotonic clock
        self._last_tx: SqliteTx | None = None
        self._may_block = True  # the clerk's thread may sleep, a moment, for a lock
        self._rest = sqlite_log.Rest()
        self._copying: asyncio.Future[bool] | None = None
        self._copying_until: SqliteTx | None = None  # the last turn that is copied

    @staticmethod
    def check(url: str, schema: str) -> None:
        path_of(url)

    @staticmethod
    def exists(url: str) -> bool:
        path = path_of(url)
        return path is None or os.path.exists(path)

    @staticmethod
    def shared_url(url: str) -> str | None:
        path = path_of(url)
        return None if path is None else f"sqlite:///{quote(os.path.abspath(path))}"

    @staticmethod
    def dump_migrations(schema: str) -> str:
        return migrate.dump("sqlite")

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    async def open(self, access: Access = "migrate") -> None:
        if access == "migrate":
            if self._path:
                private_file.create_or_warn(self._path)
            self._db = _connect(self._path)
            self._migrate(self._db)
        else:
            self._db = self._reader = self._open_to_look()
            if access == "read":
                return
            self._db.close()
            self._db = _connect(self._path)
        if self._path:
            self._reader = _connect(self._path, readonly=True)
        self._db.set_busy_handler(self._busy)
        await self.changed()
        if self._path:
            self._identity = FileIdentity(self._path)

    def _open_to_look(self) -> apsw.Connection:
        """Open the file if it has all migrations. Nothing of another database is changed, not even its journal mode."""
        if self._path is None:
            raise InvalidInput(
                f"{self._url} is in memory, where other processes cannot see it. Give the URL of a file: "
                "sqlite:///file.db."
            )
        db = _look(self._path)
        try:
            with opening(self._path):
                current = _version(db)
            migrate.check_current("sqlite", current)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: apsw.Connection) -> None:
        try:
            if not migrate.missing("sqlite", _version(db)):
                return  # no lock: a program that only reads must not wait for one that writes
            db.execute("BEGIN IMMEDIATE")
            try:
                for number, _, script in migrate.missing("sqlite", _version(db)):
                    db.execute(script)
                    db.execute("INSERT INTO migrations (version) VALUES (?)", (number,))
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
        except DAMAGED as error:
            db.close()
            raise damaged(error, self._path or "") from error
        except apsw.Error as error:
            db.close()
            raise StoreUnavailable(
                f"SQLite cannot migrate {self._path!r}: {reason(error)}. Check that it is a SQLite database, writable "
                "and on a local disk."
            ) from error

    async def close(self) -> None:
        if self._reading:
            self._reading.shutdown()
        if self._copying is not None:  # nothing may write to the file when this returns
            await asyncio.gather(self._copying, return_exceptions=True)
        for db in (self._reader, self._db):
            if db is not None:
                sqlite_log.close(db, self._identity, copy=db is self._db and self._last_tx is not self._rest.copied)
        self._db = self._reader = None

    async def begin(self, *, call_turn: bool = False) -> SqliteTx:
        assert self._db is not None
        assert not call_turn
        if self._identity is not None:
            self._identity.check_known()
        await self._take_write_lock(self._db)
        now = self._clock()
        position = max(now, self._last_tx.position + 1) if self._last_tx is not None else now
        self._last_tx = tx = SqliteTx(self._db, self._identity, now, position)
        try:
            version = _data_version(self._db)
        except StoreFault:
            await tx.rollback()
            raise
        if version != self._begun_version:
            self._begun_version = version
            self._other_writers_until = time.monotonic() + 0.5
        return tx

    async def _take_write_lock(self, db: apsw.Connection) -> None:
        """Begin the transaction. While another program has the lock, this loop serves the reads."""
        until = time.monotonic() + _MAX_WAIT
        try:
            while True:
                try:
                    db.execute("BEGIN IMMEDIATE")
                    return
                except apsw.BusyError:
                    if time.monotonic() >= until:
                        raise
                self._may_block = False
                await asyncio.sleep(0.001)
        except apsw.Error as error:
            raise fault_of(error, db) from error
        finally:
            self._may_block = True

    def _busy(self, count: int) -> bool:
        """Handle a busy lock on the clerk's connection: block for 10 ms, and not at all once it waits in the loop."""
        if not self._may_block or count >= _SHORT_TRIES:
            return False
        _pause(count)
        return True

    def has_other_writers(self) -> bool:
        return time.monotonic() < self._other_writers_until

    async def committed(self, xid: int) -> bool:
        raise AssertionError("SQLite reports the outcome of a COMMIT in the same call")

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        if self._reading is None or self._reader is None:
            assert self._db is not None
            return _run(self._db, sql, rows, values)  # in memory: a turn never waits, so this runs between turns
        if self._identity is not None:
            self._identity.check_known()
        return await asyncio.get_running_loop().run_in_executor(self._reading, _run, self._reader, sql, rows, values)

    async def time(self) -> int:
        return self._clock()

    async def server(self) -> Server:
        if self._path and (pids := holders_of_removed(self._path)):
            listed = ", ".join(map(str, pids))
            problem = (
                f"process {listed} uses a database that was removed from {self._path!r}: stop it and start it again"
            )
            return Server("SQLite", problem)
        if self._path and not _is_writable(self._path):
            problem = (
                f"SQLite cannot write to {self._path!r}: nothing can be started, signalled or answered. Make the file "
                "and its folder writable for this user, and mount the file system for writing"
            )
            return Server("SQLite", problem)
        return _server(apsw.sqlite_lib_version(), self._url)

    def no_reclaim_before(self) -> float:
        return 0

    def lease(self) -> SqliteLease:
        return SqliteLease(self._path, self._clock, self._identity)

    def listen(self, hint: Callable[[], None]) -> None:
        """Do nothing: `changed` is cheap enough to be polled every 20 ms."""

    async def announce(self) -> None:
        """Do nothing: a commit moves the `data_version` of every other process."""

    async def changed(self) -> bool:
        assert self._db is not None
        if self._identity is not None:
            self._identity.check_all()
            self._copy_log()
        version = _data_version(self._db)
        self._moved = bool(version != self._polled_version)
        self._polled_version = version
        return self._moved

    def _copy_log(self) -> None:
        """Copy the -wal into the file when the store is at rest, so that a copy of the file alone is whole.

        In a thread, because it waits for the disk; neither turns nor hints wait for it, nor does it wait for readers.
        """
        assert self._db is not None
        assert self._path is not None
        if self._copying is not None and self._copying.done():
            copying, self._copying = self._copying, None
            try:
                whole = copying.result()
            except apsw.Error as error:
                self._rest.put_off()
                raise fault_of(error, self._db) from error
            if whole:
                self._rest.copied = self._copying_until
            else:
                self._rest.put_off()
        if self._copying is None and self._rest.is_due(self._last_tx, moved=self._moved):
            self._copying_until = self._last_tx
            self._copying = asyncio.get_running_loop().run_in_executor(None, sqlite_log.copy_beside, self._path)


class SqliteLease:
    """A Lease on a connection of its own."""

    def __init__(self, path: str | None, clock: Callable[[], int], identity: FileIdentity | None) -> None:
        self._check(identity)  # a new connection would create a file that was removed
        self._db = _connect(path)
        self._clock = clock
        self._identity = identity

    @staticmethod
    def _check(identity: FileIdentity | None) -> None:
        if identity is not None:
            identity.check_all()

    def renew(self, worker: str, length: int, definitions: str, info: str) -> None:
        self._check(self._identity)
        now = self._clock()
        values = {"id": worker, "until": now + length, "definitions": definitions, "info": info, "now": now}
        _run(self._db, statements.renew, None, values)

    def close(self) -> None:
        sqlite_log.close(self._db, self._identity)
