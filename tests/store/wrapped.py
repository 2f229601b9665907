"""A store of another package: `pytest --store tests.store.wrapped:DATABASE`.

It delegates to SQLite but is not a SqliteStore, so the engine and the tests can use nothing but the protocol. Its URL
scheme is found through the entry point in wrapped_package/, which must be on PYTHONPATH as an installed package is.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hark.model.errors import InvalidInput
from hark.store.protocol import Access, Lease, Server, Tx
from hark.store.sql import R, Sql
from hark.store.sqlite import SqliteStore
from tests.support.stores import SQLITE, Database, Store, ask_sqlite

WRAPPED_PACKAGE = Path(__file__).parent / "wrapped_package"
_SCHEME = "wrapped://"


class WrappedStore:
    """`wrapped:///path`, which is also the shortest complete list of a store's members."""

    def __init__(self, url: str, *, schema: str, lease: float, clock: Callable[[], int] | None) -> None:
        self._inner = SqliteStore(_sqlite(url), clock=clock)
        self.durable = self._inner.durable
        self.has_call_turns = False
        self.poll = self._inner.poll

    @staticmethod
    def check(url: str, schema: str) -> None:
        if not url.startswith(_SCHEME):
            raise InvalidInput(f"{url!r} is not a URL of this store.")

    @staticmethod
    def exists(url: str) -> bool:
        return SqliteStore.exists(_sqlite(url))

    @staticmethod
    def shared_url(url: str) -> str | None:
        return url

    @staticmethod
    def dump_migrations(schema: str) -> str:
        return SqliteStore.dump_migrations(schema)

    def new_loop(self) -> Any:
        return self._inner.new_loop()

    async def open(self, access: Access = "migrate") -> None:
        await self._inner.open(access)

    async def close(self) -> None:
        await self._inner.close()

    async def begin(self, *, call_turn: bool = False) -> Tx:
        return WrappedTx(await self._inner.begin())

    def has_other_writers(self) -> bool:
        return self._inner.has_other_writers()

    async def committed(self, xid: int) -> bool:
        return await self._inner.committed(xid)

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        return await self._inner.read(sql, rows, **values)

    async def time(self) -> int:
        return await self._inner.time()

    async def server(self) -> Server:
        return Server("Wrapped 1.0")

    def no_reclaim_before(self) -> float:
        return self._inner.no_reclaim_before()

    def lease(self) -> Lease:
        return WrappedLease(self._inner.lease())

    def listen(self, hint: Callable[[], None]) -> None:
        self._inner.listen(hint)

    async def announce(self) -> None:
        await self._inner.announce()

    async def changed(self) -> bool:
        return await self._inner.changed()


class WrappedTx:
    def __init__(self, inner: Tx) -> None:
        self._inner = inner
        self.now, self.xid = inner.now, inner.xid

    @property
    def position(self) -> int:
        return self._inner.position

    @position.setter
    def position(self, position: int) -> None:
        self._inner.position = position

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        return await self._inner.fetch(sql, rows, **values)

    async def reserve(self, numbers: Sequence[int]) -> None:
        await self._inner.reserve(numbers)

    async def commit(self) -> None:
        await self._inner.commit()

    async def rollback(self) -> None:
        await self._inner.rollback()


class WrappedLease:
    def __init__(self, inner: Lease) -> None:
        self._inner = inner

    def renew(self, worker: str, length: int, definitions: str, info: str) -> None:
        self._inner.renew(worker, length, definitions, info)

    def close(self) -> None:
        self._inner.close()


def _sqlite(url: str) -> str:
    return url.replace(_SCHEME, "sqlite://", 1)


@contextmanager
def _fresh(request: pytest.FixtureRequest, directory: Path) -> Iterator[Store]:
    yield Store("sqlite", f"{_SCHEME}/{directory / 'wrapped.db'}", on=DATABASE)


DATABASE = Database(
    name="wrapped",
    fresh=_fresh,
    connect=lambda store: ask_sqlite(store.url.removeprefix(f"{_SCHEME}/")),
    tables=SQLITE.tables,
    tx=WrappedTx,
    lease=WrappedLease,
)


class LossyStore(WrappedStore):
    """A store with a bug: a read of several rows misses the last one."""

    async def read(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        found = await super().read(sql, rows, **values)
        return found[:-1] if len(found) > 1 else found


@contextmanager
def _fresh_lossy(request: pytest.FixtureRequest, directory: Path) -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{__name__}.WrappedStore", LossyStore)
        with _fresh(request, directory) as store:
            yield store


LOSSY = Database("lossy", _fresh_lossy, DATABASE.connect, DATABASE.tables, WrappedTx, WrappedLease)
