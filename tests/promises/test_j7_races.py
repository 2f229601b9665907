"""J7: signals against lingers, parks, stops of workers and cancels. Whatever comes first, none is lost or repeated."""

import asyncio
import random
from typing import Any

import pytest

from hark import Conflict, Dag, Hark
from tests.support.inspect import query, until
from tests.support.stores import Store

SIGNALS = 40


def collecting(app: Hark) -> None:
    """A handler that collects signals, with a checkpoint now and then; what it has must be what was sent, in order."""

    @app.handler("collect")
    async def collect(task: Any) -> Any:
        kept = await task.load_checkpoint() or []
        while len(kept) < SIGNALS:
            kept.append(await task.wait_for_signal("s", timeout=600))
            assert kept == list(range(len(kept))), kept
            if len(kept) % 7 == 0:
                await task.checkpoint(kept)
            if len(kept) % 11 == 0:
                await task.put_stream(len(kept))
        return kept

    @app.handler("beside")
    def beside(task: Any) -> Any:
        """In a thread, with another name."""
        return [task.wait_for_signal("t", timeout=600).result() for _ in range(SIGNALS // 4)]


def collection() -> Dag:
    dag = Dag("collection")
    dag.task("collect", "collect")
    dag.task("beside", "beside")
    return dag


@pytest.mark.parametrize("seed", range(3))
async def test_j7_no_signal_is_lost_between_lingers_parks_and_workers_that_stop(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    dag = collection()
    apps = [Hark(store.url, **store.options, linger=linger) for linger in (0.0, 0.004)]
    for app in apps:
        collecting(app)
    first, second = apps
    async with first, second:
        job = await first.start(dag)

        async def send(name: str, count: int) -> None:
            for n in range(count):
                await chance.choice(apps).signal(job.id, name, n)
                await asyncio.sleep(chance.choice([0, 0, 0.002, 0.008]))

        async def work(app: Hark) -> None:
            while (await job.get()).finished_at is None:
                async with app.worker(grace=chance.choice([0, 10])):
                    await asyncio.sleep(chance.choice([0.01, 0.05, 0.2]))

        await asyncio.gather(send("s", SIGNALS), send("t", SIGNALS // 4), work(first), work(second))
        result = await job.result(timeout=60)
        assert result == {"collect": list(range(SIGNALS)), "beside": list(range(SIGNALS // 4))}
        assert (await job.get()).state["tasks"]["collect"]["attempt"] == 1
        assert not await query(store, "SELECT 1 FROM waits")


async def test_j7_a_cancel_against_a_signal_leaves_nothing_behind(store: Store) -> None:
    app = Hark(store.url, **store.options, linger=0.002)
    collecting(app)
    chance = random.Random(1)
    async with app, app.worker():
        jobs = [await app.start(collection()) for _ in range(12)]

        async def disturb(job: Any) -> None:
            for n in range(chance.randrange(4)):
                await app.signal(job.id, "s", n)
                await asyncio.sleep(chance.choice([0, 0.003]))
            await job.cancel()
            with pytest.raises(Conflict):
                await job.cancel()

        await asyncio.gather(*map(disturb, jobs))
        await until(lambda: not app._services.running, "the handlers to end")
        assert {(await job.get()).status for job in jobs} == {"cancelled"}
        assert {task.status for task in await app.list(kind="task")} == {"cancelled"}
        assert not await query(store, "SELECT 1 FROM waits")
        assert not await query(store, "SELECT 1 FROM instances WHERE lease_owner IS NOT NULL")
