"""T2: each tick starts one instance, although workers are killed in the middle of it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hark import Hark
from tests.crash.machines import ALL, Witness
from tests.crash.processes import Workers, gone
from tests.support.inspect import query, until
from tests.support.stores import Store

EVERY = 20_000  # µs


async def test_t2_two_workers_and_kill_9_start_one_instance_per_tick(store: Store, tmp_path: Path) -> None:
    with Workers(store, tmp_path, lease=9.0) as workers:
        async with Hark(store.url, **workers.options) as app:
            await app.register(*ALL)
            await app.schedule("often", Witness, every=EVERY / 1e6, catch_up=1000, overlap="allow")

            async def more(than: int) -> bool:
                [[started]] = await query(store, "SELECT count(*) FROM instances")
                return int(started) > than

            workers.start()
            for _ in range(3):
                killed = workers.start()
                [[started]] = await query(store, "SELECT count(*) FROM instances")
                await until(lambda now=started: more(now + 10), "more ticks")
                killed.kill()
                await gone(killed)
            await app.pause_schedule("often")
            [schedule] = await app.schedules()
            ticks = [tick for (tick,) in await query(store, "SELECT scheduled_at FROM instances ORDER BY scheduled_at")]
            assert {later - earlier for earlier, later in pairwise(ticks)} == {EVERY}  # none twice, none left out
            assert (schedule.missed, schedule.skipped) == (0, 0)
