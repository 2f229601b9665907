"""PostgresTx: one turn on a write connection. Also sends statements for all connections."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, Final

import asyncpg

from hark.store.joined_writes import JoinedWrites
from hark.store.postgres_faults import FAULTS, failed
from hark.store.sql import R, Sql

_RESERVE: Final = """
    SELECT pg_advisory_xact_lock(hashtext('hark:' || current_schema()), n)
    FROM (SELECT unnest($1::int[]) AS n ORDER BY 1) t
"""


class PostgresTx:
    """A Tx on the write connection."""

    __slots__ = ("_db", "_waiting", "now", "position", "xid")

    def __init__(self, db: asyncpg.Connection, now: int, position: int, xid: int) -> None:
        self._db = db
        self._waiting = JoinedWrites()
        self.now = now
        self.position = position
        self.xid = xid

    async def fetch(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None = None, **values: Any) -> list[R]:
        values["now"], values["position"] = self.now, self.position
        if not sql.joinable and not self._waiting:
            return await fetch(self._db, sql, rows, values)
        return await self._fetch_joined(sql, rows, values)

    async def _fetch_joined(self, sql: Sql[R], rows: Sequence[Sequence[Any]] | None, values: dict[str, Any]) -> list[R]:
        """Let a write wait for the next statement, or send a statement with the writes that wait for it."""
        if not self._waiting.allow(sql):
            await self._send_waiting()
        self._waiting.add(sql, *sql.bind(rows, values))
        if sql.joinable:
            return []
        return _rows_of(sql, await self._send_waiting())

    async def _send_waiting(self) -> list[Any]:
        if not self._waiting:
            return []
        text, parameters = self._waiting.take()
        return await _send(self._db, text, parameters)

    async def reserve(self, numbers: Sequence[int]) -> None:
        await self._send_waiting()
        try:
            await self._db.fetch(_RESERVE, numbers)
        except FAULTS as error:
            raise failed(self._db, error) from error

    async def commit(self) -> None:
        await self._send_waiting()
        try:
            await self._db.execute("COMMIT")
        except FAULTS as error:
            raise failed(self._db, error) from error

    async def rollback(self) -> None:
        try:
            await self._db.execute("ROLLBACK")
        except FAULTS:
            self._db.terminate()  # the transaction may be open: the connection must not be used for the next BEGIN


async def fetch(
    db: asyncpg.Connection, sql: Sql[R], rows: Sequence[Sequence[Any]] | None, values: dict[str, Any]
) -> list[R]:
    return _rows_of(sql, await _send(db, *sql.bind(rows, values)))


async def _send(db: asyncpg.Connection, text: str, parameters: list[Any]) -> list[Any]:
    try:
        return await db.fetch(text, *parameters)
    except FAULTS as error:
        raise failed(db, error) from error
    except asyncio.CancelledError:
        db.terminate()  # as in `_reader`
        raise


def _rows_of(sql: Sql[R], found: list[Any]) -> list[R]:
    return found if sql.row is None else list(itertools.starmap(sql.row, found))
