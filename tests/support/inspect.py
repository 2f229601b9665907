"""Looking at a store from outside: its whole content, and the statements a turn sends to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import asyncpg
import pytest

from hark import Hark, NoTarget
from hark.store import statements
from hark.store.postgres import PostgresTx
from hark.store.sql import Sql
from hark.store.sqlite import SqliteTx, path_of
from tests.support.stores import Store

Tables = dict[str, list[tuple[Any, ...]]]
_NAMES = {id(value): name for name, value in vars(statements).items() if isinstance(value, Sql)}
_UNTOLD = ("workers", "migrations")  # leases are renewed all the time, whoever is refused


def name_of(sql: Sql) -> str:
    """A statement by the name it has in statements.py."""
    return _NAMES[id(sql)]


async def query(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Rows of any SQL, on a connection of our own."""
    if store.name == "sqlite":
        db = apsw.Connection(path_of(store.url) or "", flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(10_000)
            return [tuple(row) for row in db.execute(sql)]
        finally:
            db.close()
    connection = await asyncpg.connect(store.url, server_settings={"search_path": store.options["schema"]})
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def table_names(store: Store) -> list[str]:
    where = {
        "sqlite": "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1",
        "postgres": "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1",
    }[store.name]
    return [row[0] for row in await query(store, where)]


async def everything(store: Store) -> Tables:
    """Every row of every table that a request could have changed."""
    found: Tables = {}
    for name in await table_names(store):
        if name not in _UNTOLD:
            found[name] = sorted(await query(store, f"SELECT * FROM {name}"), key=repr)
    return found


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str, seconds: float = 30) -> None:
    """Look again until it is so."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while True:
        answer = condition()
        if await answer if isinstance(answer, Awaitable) else answer:
            return
        assert loop.time() < end, f"waited {seconds} s for {what}"
        await asyncio.sleep(0.005)


async def pass_through_the_clerk(app: Hark) -> None:
    """Return when all that was queued before has been decided; a request that leaves no row."""
    with pytest.raises(NoTarget):
        await app.signal("nobody-has-this-name", "x")


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the statements sent by turns, in their order."""
    sent: list[str] = []
    with monkeypatch.context() as patch:
        for kind in (SqliteTx, PostgresTx):
            original = kind.fetch

            async def fetch(tx: Any, sql: Sql, *args: Any, _original: Any = original, **values: Any) -> Any:
                sent.append(name_of(sql))
                return await _original(tx, sql, *args, **values)

            patch.setattr(kind, "fetch", fetch)
        yield sent
