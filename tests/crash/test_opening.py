"""Opening a store: ten processes at once, and a store with a newer schema."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import asyncpg
import pytest

from hark import Hark, StoreTooNew
from hark.store import migrate
from tests.crash.errand import Leaf
from tests.crash.processes import ROOT
from tests.support.inspect import everything, query
from tests.support.stores import Store


async def test_x1_ten_processes_that_open_an_empty_store_at_once_all_succeed(store: Store) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.crash.opener", store.url, json.dumps(store.options), "10"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert await query(store, "SELECT status, count(*) FROM instances GROUP BY status") == [("done", 10)]
    assert await query(store, "SELECT version FROM migrations") == [(migrate.newest(store.name),)]


async def test_x1_opening_waits_for_a_long_migration_of_another_process(pg_store: Store) -> None:
    schema = pg_store.options["schema"]
    migrating = await asyncpg.connect(pg_store.url)
    async with migrating.transaction():
        await migrating.execute(f"SELECT pg_advisory_xact_lock(hashtext('hark:migrate:{schema}'))")
        app = Hark(pg_store.url, lease=1.0, **pg_store.options)
        opening = asyncio.create_task(app.__aenter__())
        await asyncio.sleep(2)  # longer than any statement may take once the app is open
        assert not opening.done()
    await asyncio.wait_for(opening, 60)
    await app.__aexit__()
    await migrating.close()


async def test_x1_a_store_newer_than_the_code_is_refused_and_left_as_it_is(store: Store) -> None:
    async with Hark(store.url, **store.options) as app:
        await app.start(Leaf, {"errand": 1})
    await query(store, "INSERT INTO migrations (version) VALUES (9999)")
    before = await everything(store)
    with pytest.raises(StoreTooNew, match="schema version 9999"):
        async with Hark(store.url, **store.options):
            pass
    assert await everything(store) == before
    assert await query(store, "SELECT max(version) FROM migrations") == [(9999,)]
