"""SQLite: a write waits for the lock of another program, but only so long (X5)."""

import time
from types import SimpleNamespace

import apsw
import pytest

from hark.store import sqlite
from hark.store.protocol import Conflicted
from tests.support.stores import Store


async def test_x5_a_write_waits_for_a_lock_ten_seconds_on_a_slow_machine_too(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        clock += seconds + 0.5

    store = sqlite.SqliteStore(sqlite_store.url)
    await store.open()
    other = apsw.Connection(str(sqlite.path_of(sqlite_store.url)))
    other.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(sqlite, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(monotonic=lambda: clock, sleep=time.sleep))
    with pytest.raises(Conflicted):
        await store.begin()
    assert 10 <= clock < 11
    monkeypatch.undo()
    other.close()
    tx = await store.begin()
    await tx.rollback()
    await store.close()
