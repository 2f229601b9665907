"""Measure jobs: `python -m bench.job_work WORKLOAD URL` prints one JSON line."""

import argparse
import asyncio
import gc
import json
import statistics
import time
from itertools import pairwise
from typing import Any

import uvloop

from hark import Child, Context, Dag, Done, Hark, Job, Machine, Next, Spawn, TaskContext, step
from hark.programs.jobs.job_spec import JobSpec, TaskSpec

gc.set_threshold(20_000, 20, 100)


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(None)


class Top(Machine):
    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, {}) for _ in range(ctx.state["n"])], then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(None)


def parallel(n: int) -> Job:
    return Job(JobSpec(f"parallel-{n}", tuple(TaskSpec(f"t{i}", handler="nothing") for i in range(n))))


def chain(n: int) -> Job:
    needs = [(f"t{i - 1}",) if i else () for i in range(n)]
    return Job(JobSpec(f"chain-{n}", tuple(TaskSpec(f"t{i}", needs=needs[i], handler="nothing") for i in range(n))))


def app_on(url: str) -> Hark:
    app = Hark(url)
    app.register(Leaf, Top)

    @app.handler("nothing")
    async def nothing(task: TaskContext) -> None:
        return None

    return app


async def timed(app: Hark, definition: Any, input: Any = None) -> float:
    """Seconds from the start of an instance to its end."""
    begin = time.perf_counter()
    handle = await app.start(definition, input)
    await handle.result()
    return time.perf_counter() - begin


async def fan(url: str, n: int) -> dict[str, float]:
    """Tasks of a job, and children of a machine, per second; in turns on one worker."""
    app, job = app_on(url), parallel(n)
    app.register(job)
    jobs, machines = [], []
    async with app, app.worker():
        for _ in range(12):
            jobs.append(await timed(app, job))
            machines.append(await timed(app, Top, {"n": n}))
    return {"job": n / statistics.median(jobs[2:]), "machine": n / statistics.median(machines[2:])}


async def wide(url: str, n: int) -> dict[str, float]:
    """Seconds per task of a job with `n` parallel tasks, and of one with a hundred."""
    app, large, small = app_on(url), parallel(n), parallel(100)
    app.register(large, small)
    async with app, app.worker():
        few = [await timed(app, small) / 100 for _ in range(12)]
        return {"few": statistics.median(few[2:]), "many": await timed(app, large) / n}


async def line(url: str, n: int) -> dict[str, float]:
    """Seconds that the first and the last hundred tasks of a chain take, from the median of each hundred."""
    app, job = app_on(url), chain(n)
    app.register(job)
    ends: list[float] = []

    @app.handler("timed")
    async def timed_end(task: TaskContext) -> None:
        ends.append(time.perf_counter())

    tasks = tuple(TaskSpec(task.name, needs=task.needs, handler="timed") for task in job.spec.tasks)
    job = Job(JobSpec(job.name, tasks))
    async with app, app.worker():
        await timed(app, job)
    each = [after - before for before, after in pairwise(ends)]
    first, last = statistics.median(each[:100]), statistics.median(each[-100:])
    return {"first": first * 100, "last": last * 100, "all": ends[-1] - ends[0]}


async def wait(url: str, n: int) -> dict[str, float]:
    """Median seconds from sending a signal to the return of `wait_for_signal`, idle."""
    app = Hark(url)
    dag = Dag("waiting")
    dag.task("wait", "wait")
    app.register(dag)
    returned: list[float] = []
    armed = asyncio.Event()

    @app.handler("wait")
    async def waiting(task: TaskContext) -> None:
        for _ in range(n):
            wait = task.wait_for_signal("go", timeout=60)
            armed.set()
            await wait
            returned.append(time.perf_counter())

    sent: list[float] = []
    async with app, app.worker():
        job = await app.start(dag)
        for number in range(n):
            await armed.wait()
            armed.clear()
            while not await app.waits(name="go"):
                await asyncio.sleep(0.002)
            await asyncio.sleep(0.01)
            sent.append(time.perf_counter())
            app.signal(job, "go", number)
            while len(returned) <= number:
                await asyncio.sleep(0.001)
        await job.result()
    return {"median": statistics.median(end - begin for begin, end in zip(sent, returned, strict=True))}


async def stream(url: str, n: int) -> dict[str, float]:
    """Steps per second of other instances without and with a handler that streams, and chunks per second meanwhile.

    Measured in turns of a second each, so that what else the computer does affects both alike."""
    app = Hark(url)
    dag = Dag("streaming")
    dag.task("stream", "stream")
    steps = chunks = 0
    streams, ends = asyncio.Event(), False

    class Stepping(Machine):
        @step
        async def start(self, ctx: Context) -> Next | Done:
            nonlocal steps
            steps += 1
            return Done(None) if ends else Next(self.start)

    @app.handler("stream")
    async def streaming(task: TaskContext) -> None:
        nonlocal chunks
        while not ends:
            await streams.wait()
            await task.put_stream({"n": chunks})
            chunks += 1

    app.register(Stepping, dag)
    rates: dict[bool, list[float]] = {False: [], True: []}
    chunk_rates = []
    async with app, app.worker():
        handles = [await app.start(Stepping) for _ in range(20)]
        job = await app.start("streaming")
        for turn in range(2 * n):
            (streams.set if turn % 2 else streams.clear)()
            await asyncio.sleep(0.2)
            before, begin = (steps, chunks), time.perf_counter()
            await asyncio.sleep(1)
            took = time.perf_counter() - begin
            rates[bool(turn % 2)].append((steps - before[0]) / took)
            if turn % 2:
                chunk_rates.append((chunks - before[1]) / took)
        ends = True
        streams.set()
        for handle in [*handles, job]:
            await handle.result()
    return {
        "alone": statistics.median(rates[False]),
        "beside": statistics.median(rates[True]),
        "chunks": statistics.median(chunk_rates),
    }


WORKLOADS = {"fan": (fan, 100), "wide": (wide, 5000), "line": (line, 1000), "wait": (wait, 100), "stream": (stream, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("url")
    parser.add_argument("--n", type=int)
    options = parser.parse_args()
    work, n = WORKLOADS[options.workload]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work(options.url, options.n or n))), flush=True)


if __name__ == "__main__":
    main()
