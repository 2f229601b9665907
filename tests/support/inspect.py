"""Inspect a store from outside: its whole content, and the statements that turns send to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import apsw
import asyncpg
import pytest

from hark import Hark, NoTarget
from hark.store import reads, statements
from hark.store.postgres import PostgresTx
from hark.store.sql import Sql
from hark.store.sqlite import SqliteTx, path_of
from tests.support.stores import Store

Tables = dict[str, list[tuple[Any, ...]]]
_NAMES = {id(value): name for name, value in (vars(statements) | vars(reads)).items() if isinstance(value, Sql)}
_TABLES = {
    "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1",
    "postgres": "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1",
}
# Leases are renewed all the time, and near misses are recorded for `why`: neither counts as a change.
_UNTOLD = ("workers", "migrations", "misses")


def name_of(sql: Sql) -> str:
    """A statement by the name it has in store/statements."""
    return _NAMES[id(sql)]


@asynccontextmanager
async def asking(store: Store) -> AsyncIterator[Callable[[str], Awaitable[list[tuple[Any, ...]]]]]:
    """A separate connection, for any SQL."""
    if store.name == "sqlite":
        db = apsw.Connection(path_of(store.url) or "", flags=apsw.SQLITE_OPEN_READWRITE)
        db.set_busy_timeout(10_000)

        async def ask(sql: str) -> list[tuple[Any, ...]]:
            return [tuple(row) for row in db.execute(sql)]

        try:
            yield ask
        finally:
            db.close()
        return
    connection = await asyncpg.connect(store.url, server_settings={"search_path": store.options["schema"]})

    async def fetch(sql: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(sql)]

    try:
        yield fetch
    finally:
        await connection.close()


async def query(store: Store, sql: str) -> list[tuple[Any, ...]]:
    async with asking(store) as ask:
        return await ask(sql)


async def table_names(store: Store) -> list[str]:
    return [row[0] for row in await query(store, _TABLES[store.name])]


async def everything(store: Store) -> Tables:
    """Every row of every table that a request could have changed."""
    async with asking(store) as ask:
        names = [row[0] for row in await ask(_TABLES[store.name])]
        return {name: sorted(await ask(f"SELECT * FROM {name}"), key=repr) for name in names if name not in _UNTOLD}


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str, seconds: float = 30) -> None:
    """Poll until the condition holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert loop.time() < end, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.005)


async def pass_through_the_clerk(app: Hark) -> None:
    """Return when every request queued before has been committed, by means of a request that writes no row."""
    with pytest.raises(NoTarget):
        await app.signal("nobody-has-this-name", "x")


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the statements sent by turns, in their order."""
    sent: list[str] = []
    with monkeypatch.context() as patch:
        for kind in (SqliteTx, PostgresTx):
            patch.setattr(kind, "fetch", _noting(kind.fetch, sent))
        yield sent


def _noting(fetch: Callable[..., Awaitable[Any]], sent: list[str]) -> Callable[..., Awaitable[Any]]:
    async def noted(tx: Any, sql: Sql, /, *args: Any, **values: Any) -> Any:
        sent.append(name_of(sql))
        return await fetch(tx, sql, *args, **values)

    return noted
