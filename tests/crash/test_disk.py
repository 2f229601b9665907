"""The disk is full, or fsync fails: nothing is acknowledged that is not stored, and work resumes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from hark import Hark, StoreUnavailable
from tests.crash.machines import Gated, Patient
from tests.crash.processes import Workers
from tests.support.faulty_disk import FaultyDisk
from tests.support.inspect import query, until
from tests.support.stores import Store

# The error of a server whose table cannot grow, raised by the server itself.
_FILL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$;
"""
_TABLES = ("instances", "inbox", "events", "workers")


class Disk(Protocol):
    async def fill(self) -> None: ...
    async def empty(self) -> None: ...


class PostgresDisk:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def fill(self) -> None:
        triggers = (
            f"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON {t} EXECUTE FUNCTION full_disk()" for t in _TABLES
        )
        for statement in (_FILL, *triggers):
            await query(self.store, statement)

    async def empty(self) -> None:
        await query(self.store, "DROP FUNCTION full_disk CASCADE")


class SqliteDisk:
    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk

    async def fill(self) -> None:
        self.disk.full = True

    async def empty(self) -> None:
        self.disk.full = False


@contextmanager
def disk_of(store: Store) -> Iterator[Disk]:
    if store.name == "postgres":
        yield PostgresDisk(store)
        return
    with FaultyDisk() as disk:
        yield SqliteDisk(disk)


async def test_x5_fault_38_a_full_disk_is_a_clean_error_and_work_resumes_automatically(
    store: Store, tmp_path: Path
) -> None:
    """The disk stays full for longer than the lease; neither of two workers reclaims the other's work."""
    workers = Workers(store, tmp_path, lease=3.0, max_crashes=1)
    with disk_of(store) as disk:
        first, second = (Hark(store.url, **workers.options) for _ in range(2))
        first.register(Gated, Patient)
        second.register(Gated, Patient)
        async with first, second, first.worker({"default": 1}), second.worker({"default": 1}):
            patient = await first.start(Patient, id="patient")
            await until(lambda: first.waits(name="tick"), "the park")
            gated = [await first.start(Gated), await first.start(Gated)]
            await workers.until_traced("start 0", times=2)

            await disk.fill()
            with pytest.raises(StoreUnavailable, match="Nothing was stored"):
                await patient.signal("tick", "lost")
            with pytest.raises(StoreUnavailable, match="Nothing was stored"):
                await first.start(Patient, id="another")
            workers.open_gate()
            await until(lambda: no_step_runs(first, second), "the steps to end")
            await until(lambda: leases_are_over(store), "the leases to run out")
            await disk.empty()

            await asyncio.gather(*(handle.result(timeout=60) for handle in gated))
            assert (await second.signal("patient", "tick", "kept")).status == "woke"
            assert await patient.result(timeout=60) == "kept"
    assert sorted(life.what for life in workers.trace()) == ["end 0"] * 2 + ["start 0"] * 2
    assert await query(store, "SELECT max(attempt), max(crashes), count(*) FROM instances") == [(0, 0, 3)]
    assert await query(store, "SELECT payload FROM inbox") == [('"kept"',)]


def no_step_runs(*apps: Hark) -> bool:
    return not any(app._clerk.worker._activations._asyncio_tasks for app in apps)


async def leases_are_over(store: Store) -> bool:
    now = {
        "sqlite": "CAST(unixepoch('subsec') * 1000000 AS integer)",
        "postgres": "extract(epoch FROM clock_timestamp()) * 1000000",
    }[store.name]
    return await query(store, f"SELECT count(*) FROM workers WHERE until < {now}") == [(2,)]


async def test_x5_fault_39_what_could_not_be_synced_is_not_acknowledged(sqlite_store: Store) -> None:
    with FaultyDisk() as disk:
        async with Hark(sqlite_store.url) as app:
            await app.start(Patient, id="patient")
            disk.unsynced = True
            with pytest.raises(StoreUnavailable, match="Nothing was stored"):
                await app.signal("patient", "tick", "lost")
            assert disk.failures > 0
            disk.unsynced = False
            assert await query(sqlite_store, "SELECT count(*) FROM inbox") == [(0,)]
            assert (await app.signal("patient", "tick", "kept")).status == "stored"
        app = Hark(sqlite_store.url)
        app.register(Patient)
        async with app, app.worker():
            assert await app.result("patient", timeout=60) == "kept"
    assert await query(sqlite_store, "SELECT payload FROM inbox") == [('"kept"',)]
