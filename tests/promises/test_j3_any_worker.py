"""J3: independent tasks run in parallel and on any worker. The death of every process: tests/crash."""

import asyncio
from typing import Any

from hark import Dag, Hark
from tests.promises.support_jobs import Script, handlers, started, statuses
from tests.promises.support_machines import neighbour
from tests.support.stores import Store


async def test_j3_independent_tasks_run_at_the_same_time(store: Store) -> None:
    dag = Dag("meeting")
    for name in ("ann", "bob", "eve"):
        dag.task(name, "meet")
    app = Hark(store.url, **store.options)
    app.register(dag)
    here: list[str] = []
    all_here = asyncio.Event()

    @app.handler("meet")
    async def meet(task: Any) -> str:
        here.append(task.name)
        if len(here) == 3:
            all_here.set()
        await all_here.wait()
        return "met"

    async with app, app.worker():
        job = await app.start(dag)
        assert await job.result(timeout=60) == {"ann": "met", "bob": "met", "eve": "met"}


async def test_j3_each_task_runs_on_a_worker_that_has_its_handler(store: Store) -> None:
    dag = Dag("anywhere")
    dag.task("first", "one")
    dag.task("second", "two", after=["first"])
    dag.task("third", "one", after=["second"])
    async with started(store, dag) as (app, job):
        await app.drain()
        assert statuses(await job.get())["first"] == "pending", "it waits for a worker that has the handler"
        async with neighbour(app, store) as one, neighbour(app, store) as two:
            ran, other = Script(), Script()
            handlers(one, one=ran)
            handlers(two, two=other)
            for worker in (one, two, one):
                await worker.drain()
            assert (ran.ran, other.ran) == (["first", "third"], ["second"])
        assert (await job.get()).result == {"first": "first", "second": "second", "third": "third"}
