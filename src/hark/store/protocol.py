"""What the engine asks of a database, and nothing more.

A store hands out one write transaction at a time (`begin`), answers reads beside it (`read`), renews
leases from a thread of its own (`Lease`) and passes hints between processes (`announce`, `listen`). All decisions are
made above, in kernel/; all SQL is in statements/ and reads.py.

The four ways a statement can fail, whatever the driver calls them:

    StoreFault
     ├─ Conflicted   deadlock, serialisation, lock time-out, busy: nothing happened, run it again whole
     ├─ Lost         the connection is gone; whether a COMMIT happened is asked, never guessed
     ├─ Full         disk full, I/O error, read-only: no row's fault, nothing happened
     └─ Refused      a row the database will not take: find it, and fail it alone
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from hark.store.sql import R, Sql

Rows = Sequence[Any]


class StoreFault(Exception):
    """A statement failed."""


class Conflicted(StoreFault):
    """Another transaction was in the way; nothing happened."""


class Lost(StoreFault):
    """The connection to the database is gone."""


class Unknown(Lost):
    """The connection went in the middle of a COMMIT, and the database could not be asked what became of it."""


class Full(StoreFault):
    """The database cannot write now: disk full, I/O error, read-only."""


class Refused(StoreFault):
    """The database refuses this row."""


class Tx(Protocol):
    """One write transaction: a turn."""

    now: int
    """The turn's time in µs by the database's clock (invariant 13)."""
    position: int
    """The queue position of the rows this turn makes claimable: `now`, or one more than the last turn's."""
    xid: int
    """What `Store.committed` takes; also the order of events (invariant 17)."""

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]: ...
    async def reserve(self, numbers: Sequence[int]) -> None:
        """Hold these numbers until the end, in order: starters of equal keys meet here, not in an index."""
        ...

    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...


class Lease(Protocol):
    """Renews one process's lease on a connection of its own. Used by one thread, blocking."""

    def renew(self, worker: str, length: int, definitions: str) -> None: ...
    def close(self) -> None: ...


class Server(NamedTuple):
    """The database behind a store, for people: `hark doctor` shows it."""

    name: str
    """The product and its version, and where it is if that is not a secret."""
    problem: str | None = None
    """Why this version must not be used, and what to do; None if it is fine."""


class Store(Protocol):
    durable: bool
    """False for in-memory SQLite: no other process, so no lease to renew."""
    poll: float
    """Seconds between looks for what other processes did."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop it wants to live on."""
        ...

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def begin(self) -> Tx: ...
    def crowded(self) -> bool:
        """Does another process write beside us, and need a gap between our turns?"""
        ...

    async def committed(self, xid: int) -> bool:
        """False: it has not happened and never will. True: it has, or a crash gave its number to another that has."""
        ...

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]: ...
    async def time(self) -> int:
        """The database's clock, in µs."""
        ...

    async def server(self) -> Server:
        """Which database this is."""
        ...

    def quiet_until(self) -> int:
        """Nobody reclaims before this time: after a restart, owners renew first."""
        ...

    def lease(self) -> Lease: ...
    def listen(self, hint: Callable[[], None]) -> None: ...
    async def announce(self) -> None: ...
    async def changed(self) -> bool:
        """Has another process written since the last call? True when the store cannot tell."""
        ...


class StoreType(Protocol):
    """What a URL scheme stands for (see connect.py): the class of a store, asked before a store is made.

    No member opens a connection.
    """

    def __call__(self, url: str, *, schema: str, lease: float, clock: Callable[[], int] | None) -> Store:
        """Make the store at `url`, without opening it.

        Args:
            url: As `check` accepted it.
            schema: Ignored by a database that has no schemas.
            lease: Seconds a worker's lease lasts. A write that waits longer than that has lost its work.
            clock: The time in µs, instead of the database's own clock. For tests.
        """
        ...

    def check(self, url: str, schema: str) -> None:
        """Raise InvalidInput if the URL is malformed or the database cannot have such a schema."""
        ...

    def exists(self, url: str) -> bool:
        """Return False if there is certainly no database at `url`; True if only a connection could tell."""
        ...

    def dump_migrations(self, schema: str) -> str:
        """Return the SQL that `open` would run on an empty database."""
        ...
