"""Inspect a store from outside: its whole content, and the statements that turns send to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hark import Hark, NoTarget
from hark.store import reads, statements
from hark.store.sql import Sql
from tests.support.stores import Store

Tables = dict[str, list[tuple[Any, ...]]]
_NAMES = {id(value): name for name, value in (vars(statements) | vars(reads)).items() if isinstance(value, Sql)}
# Leases are renewed all the time, near misses are recorded for `why`, and the first turn on a server records it: none
# of it counts as a change.
_UNTOLD = ("workers", "migrations", "misses", "eras")


def name_of(sql: Sql) -> str:
    """A statement by the name it has in store/statements."""
    return _NAMES[id(sql)]


async def query(store: Store, sql: str) -> list[tuple[Any, ...]]:
    """Send any SQL on a separate connection."""
    async with store.database.connect(store) as ask:
        return await ask(sql)


async def table_names(store: Store) -> list[str]:
    return [row[0] for row in await query(store, store.database.tables)]


async def everything(store: Store) -> Tables:
    """Every row of every table that a request could have changed."""
    async with store.database.connect(store) as ask:
        names = [row[0] for row in await ask(store.database.tables)]
        return {name: sorted(await ask(f"SELECT * FROM {name}"), key=repr) for name in names if name not in _UNTOLD}


async def until(condition: Callable[[], Any | Awaitable[Any]], what: str, seconds: float = 120) -> None:
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
def counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the statements sent by turns, in their order."""
    sent: list[str] = []
    with monkeypatch.context() as patch:
        kind = store.database.tx
        patch.setattr(kind, "fetch", _noting(kind.fetch, sent))
        yield sent


@contextmanager
def rows_read(store: Store, monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[list[int]]:
    """How many rows each of these statements returned to turns, in their order."""
    counts: list[int] = []
    with monkeypatch.context() as patch:
        kind = store.database.tx
        fetch = kind.fetch

        async def noted(tx: Any, sql: Sql, /, *args: Any, **values: Any) -> Any:
            rows = await fetch(tx, sql, *args, **values)
            if name_of(sql) in names:
                counts.append(len(rows))
            return rows

        patch.setattr(kind, "fetch", noted)
        yield counts


def _noting(fetch: Callable[..., Awaitable[Any]], sent: list[str]) -> Callable[..., Awaitable[Any]]:
    async def noted(tx: Any, sql: Sql, /, *args: Any, **values: Any) -> Any:
        sent.append(name_of(sql))
        return await fetch(tx, sql, *args, **values)

    return noted
