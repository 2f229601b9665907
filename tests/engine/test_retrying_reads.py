"""X5: how long a caller waits for an answer to a question of several statements."""

import asyncio
from typing import Any

import pytest

from hark import Hark, StoreUnavailable
from hark.engine.turns import caller_errors
from hark.store import reads
from hark.store.protocol import Conflicted
from tests.support.stores import Store


async def test_x5_a_question_whose_second_statement_always_fails_is_given_up(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a list that runs into the statement timeout: what was read before it is answered each time."""
    monkeypatch.setattr(caller_errors, "PATIENCE", 0.5)
    async with Hark(sqlite_store.url) as app:
        store = app._clerk.store
        read = store.read

        async def fail(sql: Any, rows: Any = None, **values: Any) -> Any:
            if sql is reads.list_instances:
                raise Conflicted("canceling statement due to statement timeout")
            return await read(sql, rows, **values)

        monkeypatch.setattr(store, "read", fail)
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(app.list(), 20)
