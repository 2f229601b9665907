"""What the engine asks of a database, and nothing more.

A store hands out one write transaction at a time (`begin`), answers reads beside it (`read`), renews
leases from a thread of its own (`Lease`) and passes hints between processes (`announce`, `listen`). All decisions are
made above, in kernel/; all SQL is in statements.py.

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
from typing import Any, Protocol

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

    def quiet_until(self) -> int:
        """Nobody reclaims before this time: after a restart, owners renew first."""
        ...

    def lease(self) -> Lease: ...
    def listen(self, hint: Callable[[], None]) -> None: ...
    async def announce(self) -> None: ...
    async def changed(self) -> bool:
        """Has another process written since the last call? True when the store cannot tell."""
        ...
