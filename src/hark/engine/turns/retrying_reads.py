"""RetryingReads: a read-only store that retries during an outage until the caller's deadline (X5).

The driver's timeouts are for one connection and one statement, and a read that failed is tried again; a caller counts
all of it. The time begins anew with each answer, because a question of many statements may take longer. Once one has
failed it does not: a question whose second statement always fails would be asked for ever.

One timer for all reads looks for those that are late, a few times a second: a timer for each read took a tenth of the
time of a call that waits for a result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

from hark.engine.turns import caller_errors
from hark.store.protocol import Lost, Server, Store
from hark.store.sql import Sql

T = TypeVar("T")
_LOOK_EVERY = 0.25  # seconds


class ReadTimer:
    """Ends the reads that are late. Used on the clerk's loop."""

    def __init__(self) -> None:
        self.waiting: set[RetryingReads] = set()  # those with a statement that is not answered
        self._ticking = False

    def start(self) -> None:
        """Look for late reads as long as there are any."""
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        self._ticking = False
        now = time.monotonic()
        for reads in self.waiting:
            if reads.until <= now:
                reads.give_up()
        if self.waiting:
            self.start()


class RetryingReads:
    def __init__(self, store: Store, timer: ReadTimer) -> None:
        self.until = time.monotonic() + caller_errors.PATIENCE
        self._store = store
        self._timer = timer
        self._failed = False
        self._task: asyncio.Task[Any] | None = None  # what awaits the answer
        self._late = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def may_ask_again(self) -> bool:
        """Return True if the caller still waits after a failed statement. All that is asked again shares the time
        left."""
        self._failed = True
        return time.monotonic() < self.until

    def give_up(self) -> None:
        """End the read: its answer is late."""
        if self._task is not None and not self._late:
            self._late = True
            self._task.cancel()

    async def read(self, sql: Sql[Any], rows: Any = None, **values: Any) -> list[Any]:
        return await self._bounded(self._store.read(sql, rows, **values))

    async def time(self) -> int:
        return await self._bounded(self._store.time())

    async def server(self) -> Server:
        return await self._bounded(self._store.server())

    async def _bounded(self, answer: Awaitable[T]) -> T:
        task = self._task = asyncio.current_task()
        self._timer.waiting.add(self)
        self._timer.start()
        try:
            found = await answer
        except BaseException as error:
            if self._late and task is not None:
                self._late = False
                task.uncancel()
                if isinstance(error, asyncio.CancelledError):
                    raise Lost(f"no answer within {caller_errors.PATIENCE:g} s") from None
            raise
        finally:
            self._task = None
            self._timer.waiting.discard(self)
        if not self._failed:
            self.until = time.monotonic() + caller_errors.PATIENCE
        return found
