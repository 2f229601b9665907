"""The contract between the engine and a database: Store, Tx and Lease.

A store gives the clerk one write transaction at a time (`begin`), answers reads on other connections (`read`), renews
leases on a connection that nothing else uses (`Lease`) and passes hints between processes (`announce`, `listen`). All
decisions are made above, in kernel/; all SQL is in statements/ and reads/.

Threads: the clerk's thread makes the store, opens it, calls every coroutine and closes it, always on the event loop of
`new_loop`. Reads run concurrently with the turn on that loop. `lease` is called on the worker's lease thread.

A statement can fail in four ways, whatever the driver calls them; a store raises nothing else once it is open:

    StoreFault
     ├─ Conflicted   deadlock, serialisation failure, lock timeout, busy: nothing happened, run the turn again
     ├─ Lost         the connection is gone; after a COMMIT the outcome is unknown until `committed` says it
     │   └─ Unknown  the app was closed before `committed` could say it
     ├─ Full         disk full, I/O error, read-only: no request is to blame, nothing happened
     │   ├─ Damaged   the database is damaged: a person has to repair it
     │   └─ Replaced  the database that is open was removed or replaced: it is not the one at the URL any more
     └─ Refused      the database refuses a row: the clerk splits the turn until the bad request fails alone
         └─ Taken    a unique index has the row already, written by a transaction that this one did not see
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from hark.model.errors import StoreUnavailable
from hark.store.sql import R, Sql

Rows = Sequence[Any]


class StoreFault(Exception):
    """A statement failed."""


class Conflicted(StoreFault):
    """Another transaction was in the way; nothing happened."""


class Lost(StoreFault):
    """The connection to the database is gone."""


class Unknown(Lost):
    """Connection lost during COMMIT, and the database did not say whether it committed."""


class Full(StoreFault):
    """The database cannot write now: disk full, I/O error, read-only."""


class Damaged(Full):
    """The database is damaged, and cannot be used before a person has repaired it. The text says how."""


class Replaced(Full):
    """The database that this process has open was removed or replaced, so nothing in it counts any more.

    Raised until the process ends, also by reads. Nothing was stored in the database that is at the URL now.
    """


class Refused(StoreFault):
    """The database refuses a row."""


class Taken(Refused):
    """A unique index refuses a row: another transaction has just written it. Only a store on which several processes
    write at once has to tell this from `Refused`."""


class Unreachable(StoreUnavailable):
    """No connection is possible now. Raised by `Store.open` only: a database that is starting accepts one later."""


class Tx(Protocol):
    """A write transaction, which is one turn. Used on the clerk's loop, one statement after the other."""

    now: int
    """The time of the turn in µs by the database's clock (invariant 13)."""
    position: int
    """The queue position of the rows this turn makes claimable, bound as `:position` in every statement.

    The kernel adds the number of instances it has started, since each has a position of its own. `begin` sets it to
    `now`, or to one more than the transaction before had in the end if that is larger: rows are claimed in the order
    of the turns.
    """
    xid: int
    """The number of the transaction, for `Store.committed` and for the order of events (invariant 17).

    It is higher than those of all turns that have ended, also after a restore. Of a turn in one call, it is at first
    what has to be added to the number that the function finds."""

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        """Send one statement and return all its rows; `now` and `position` are always bound.

        Args:
            sql: The statement. Without a row type its rows are whatever the driver returns: they can be unpacked.
            rows: The list for `{rows: …}`, one sequence per row, in the order of the columns.
            values: The other parameters by name; a list for `IN :name[type]`.

        Raises:
            StoreFault: The statement failed. The transaction can only be rolled back.
        """

    async def reserve(self, numbers: Sequence[int]) -> None:
        """Lock these numbers, in ascending order, until the transaction ends.

        Turns that start the same correlation key wait for each other here, not in a unique index. A store with one
        writer has nothing to do.

        Raises:
            StoreFault: As in `fetch`.
        """

    async def commit(self) -> None:
        """Make the turn durable: it survives a crash of the process, the machine and the server once this returns.

        Raises:
            Lost: The connection is gone and the outcome is unknown; the clerk calls `Store.committed`.
            Replaced: What was committed is not in the database at the URL.
            StoreFault: Nothing was committed; the clerk calls `rollback`.
        """

    async def rollback(self) -> None:
        """Undo the turn. Called after every failure except Lost in `commit`, also if the database has rolled back.

        Raises:
            StoreFault: Only if the transaction may still be open.
        """


class Lease(Protocol):
    """Renews the lease of one worker on a connection of its own, which a turn cannot delay.

    Every method blocks, and is called on the worker's lease thread.
    """

    def renew(self, worker: str, length: int, definitions: str, info: str) -> None:
        """Extend the lease (`statements.renew`) until `length` µs from now by the database's clock.

        Args:
            worker: The id of the worker.
            length: How long the lease is to last, in µs.
            definitions: The lanes that the worker can run, separated by commas.
            info: Its machine and its free slots, as JSON (`views/worker_info.py`).

        Raises:
            StoreFault: The lease was not renewed. The worker calls again; a lost connection must be replaced then.
        """

    def close(self) -> None:
        """Close the connection. Must not raise."""


Access = Literal["migrate", "write", "read"]
"""The access of `Store.open`: apply the missing migrations, use a store that has them all, or only read it."""


class Unmigrated(Exception):
    """`Store.open` was not allowed to migrate, and migrations are missing. `version` is 0 if there are no tables."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(version, newest)
        self.version = version
        self.newest = newest


class Server(NamedTuple):
    """The database behind a store, for people: `hark doctor` shows it."""

    name: str
    """The product and its version, and its place if that is not a secret."""
    problem: str | None = None
    """The reason why this version must not be used, and what to do; None if it is fine."""


class Store(Protocol):
    """A database, or one schema of it."""

    durable: bool
    """False if the data ends with the process (in-memory SQLite): no other process, so no lease to renew."""
    poll: float
    """Seconds between two calls of `changed`."""
    has_call_turns: bool
    """True if it can execute a frequent turn as one call (`statements.call_turn`), which pays only if a statement
    costs a round trip."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Make the event loop that the clerk's thread runs, and this store with it. Called once, before `open`."""

    async def open(self, access: Access = "migrate") -> None:
        """Connect, and apply the missing migrations under a lock that other processes respect. Called once.

        Args:
            access: With "write" and "read" nothing is created or migrated. With "read" nothing is written at all: a
                read-only file, or a role that may only SELECT, is enough, and only `read`, `time` and `server` work.

        Raises:
            Unmigrated: Migrations are missing, and `access` is not "migrate".
            InvalidInput: The URL names something that is not such a database.
            Unreachable: The database cannot be reached now; it may be starting.
            StoreUnavailable: The database refuses the connection, or cannot be migrated.
            StoreTooNew: A newer Hark has migrated it.
        """

    async def close(self) -> None:
        """Close all connections. Called once, when no other coroutine of the store is running. Must not raise."""

    async def begin(self, *, call_turn: bool = False) -> Tx:
        """Begin a turn. The clerk has ended the one before, so a store needs one write connection.

        A connection that was lost is replaced here.

        Args:
            call_turn: The turn sends `statements.call_turn` and nothing else, which finds out the time and number of
                the transaction; the kernel sets them. Only if the store `has_call_turns`.

        Raises:
            Conflicted: Another process has the only write lock for too long.
            StoreFault: The transaction did not begin.
        """

    def has_other_writers(self) -> bool:
        """Return True if another process has written lately and is kept out while a turn is running.

        The clerk then makes smaller turns and leaves gaps between them. Called twice per turn: must be cheap.
        """

    async def committed(self, xid: int) -> bool:
        """Find out whether a transaction was committed whose COMMIT raised Lost.

        Args:
            xid: The `Tx.xid` of the transaction.

        Returns:
            False if it did not commit and never will. True if it did, or if a server that crashed gave its number to
            another transaction that did: the clerk then checks the rows (`statements.proof_of_commit`).

        Raises:
            StoreFault: The database does not answer; the clerk calls again.
        """

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        """Send one statement outside the turns, on a connection that never writes. Calls may overlap.

        Sees what was committed before the call. Nothing is bound but `values`: see `Tx.fetch`.

        Raises:
            StoreFault: The statement failed. It can be sent again.
        """

    async def time(self) -> int:
        """The database's clock, in µs since 1970 (invariant 13).

        Raises:
            StoreFault: The database does not answer.
        """

    async def server(self) -> Server:
        """Describe the database.

        Raises:
            StoreFault: The database does not answer.
        """

    def no_reclaim_before(self) -> float:
        """Return the time by `time.monotonic` before which expired leases are ignored; 0 if there is none.

        After an outage every lease has expired, although the workers live: they get one lease to renew theirs (M5).
        """

    def lease(self) -> Lease:
        """Make the Lease of a worker. Called on the lease thread, which is the only one to use it.

        Raises:
            HarkError: As in `open`.
        """

    def listen(self, hint: Callable[[], None]) -> None:
        """Call `hint` on the clerk's loop when another process has announced something. Called once, after `open`.

        A hint may be lost, or come without a reason: `poll` covers the first, and the second costs one read.
        """

    async def announce(self) -> None:
        """Give the other processes a hint, outside the turn. Called after a turn that made work for them.

        Must not raise: a hint that is lost is found by the next poll.
        """

    async def changed(self) -> bool:
        """Return True if another process has written since the last call, or if the store cannot tell.

        Called every `poll` seconds, so it is also the place to reopen the connection that listens.

        Raises:
            StoreFault: The database does not answer.
        """


class StoreType(Protocol):
    """The class of a store, for a URL scheme (see connect.py); used before there is a store.

    No member opens a connection; any thread may call them.
    """

    def __call__(self, url: str, *, schema: str, lease: float, clock: Callable[[], int] | None) -> Store:
        """Make the store at `url`, without opening it.

        Args:
            url: As `check` accepted it.
            schema: Ignored by a database that has no schemas.
            lease: Seconds a worker's lease lasts. A turn that waits longer than that has lost its work.
            clock: The time in µs, instead of the database's own clock. For tests.
        """

    def check(self, url: str, schema: str) -> None:
        """Validate the URL and the schema.

        Raises:
            InvalidInput: The URL is malformed, or the database cannot have such a schema.
        """

    def exists(self, url: str) -> bool:
        """Return False if there is certainly no database at `url`; True if only a connection could tell."""

    def shared_url(self, url: str) -> str | None:
        """Return the URL by which another process, in another directory, opens the same database; None if none can."""

    def dump_migrations(self, schema: str) -> str:
        """Return the SQL that `open` would run on an empty database."""
