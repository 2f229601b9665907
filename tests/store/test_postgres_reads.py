"""PostgreSQL: a read whose caller gave up says nothing about the database (M5)."""

import asyncio
import time

from hark.store.sql import Sql
from tests.support.inspect import query, until
from tests.support.stores import Store


async def test_m5_a_read_that_its_caller_gave_up_does_not_put_off_the_search_for_dead_workers(pg_store: Store) -> None:
    async with pg_store.opened(lease=3600.0) as store:
        store._quiet = 0.0  # the server of the tests has not run for an hour
        slow = asyncio.create_task(store.read(Sql("SELECT pg_sleep(60)")))
        await until(lambda: sleeps(pg_store), "the read to begin")
        slow.cancel()
        await asyncio.wait([slow])
        assert slow.cancelled()
        assert await store.read(Sql("SELECT 1"))
        assert store.no_reclaim_before() < time.monotonic()


async def sleeps(store: Store) -> bool:
    found = await query(
        store, "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    )
    return bool(found)
