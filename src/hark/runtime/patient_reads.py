"""PatientReads: a store as a caller reads it, who waits for an answer only so long (X5).

The driver's timeouts are for one connection and one statement, and a read that failed is tried again; a caller counts
all of it. The time begins anew with each answer, because a question of many statements may take longer. Once one has
failed it does not: a question whose second statement always fails would be asked for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from hark.runtime import caller_errors
from hark.store.protocol import Lost, Server, Store
from hark.store.sql import Sql

T = TypeVar("T")


class PatientReads:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._until = time.monotonic() + caller_errors.PATIENCE
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def may_ask_again(self) -> bool:
        """A statement has failed: whether the caller still waits. Then all that is asked again has the time that is
        left."""
        self._failed = True
        return time.monotonic() < self._until

    async def read(self, sql: Sql[Any], rows: Any = None, **values: Any) -> list[Any]:
        return await self._bounded(self._store.read(sql, rows, **values))

    async def time(self) -> int:
        return await self._bounded(self._store.time())

    async def server(self) -> Server:
        return await self._bounded(self._store.server())

    async def _bounded(self, answer: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._until - time.monotonic()):
                found = await answer
        except TimeoutError:
            raise Lost(f"no answer within {caller_errors.PATIENCE:g} s") from None
        if not self._failed:
            self._until = time.monotonic() + caller_errors.PATIENCE
        return found
