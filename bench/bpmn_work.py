"""Measure processes: `python -m bench.bpmn_work WORKLOAD URL` prints one JSON line."""

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from bench import bpmn_files as files
from hark import Child, Context, Done, Hark, Machine, Spawn, TaskContext, step

gc.set_threshold(20_000, 20, 100)


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(None)


class ThreeChildren(Machine):
    """What the process of three service tasks does, as a machine: a child for each, one after the other."""

    @step
    async def start(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, {})], then=self.second)

    @step
    async def second(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, {})], then=self.third)

    @step
    async def third(self, ctx: Context) -> Spawn:
        return Spawn([Child(Leaf, {})], then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done("large" if ctx.state["n"] > 100 else "small")


def app_on(url: str) -> Hark:
    app = Hark(url)
    app.register(Leaf, ThreeChildren)

    @app.handler("nothing")
    async def nothing(task: TaskContext) -> None:
        return None

    return app


async def timed(app: Hark, definition: Any, n: int, in_flight: int) -> float:
    """Seconds for `n` instances by `in_flight` clients, each of which starts the next one when its last is done."""
    left = iter(range(n))

    async def client() -> None:
        for number in left:
            started = await app.start(definition, {"n": number % 10})
            await started.result(timeout=300)

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    return time.perf_counter() - begin


async def services(url: str, n: int) -> dict[str, float]:
    """Instances per second of a process of three service tasks, and of a machine with three children; in turns."""
    app = app_on(url)
    found: dict[str, list[float]] = {"process": [], "machine": []}
    async with app, app.worker({"default": 500}):
        await app.deploy(files.services())
        for _ in range(4):
            found["process"].append(n / await timed(app, "services", n, 500))
            found["machine"].append(n / await timed(app, ThreeChildren, n, 500))
    return {name: statistics.median(rates[1:]) for name, rates in found.items()}


async def scripts(url: str, n: int) -> dict[str, float]:
    """Instances per second of a process without handlers."""
    app = app_on(url)
    async with app, app.worker({"default": 500}):
        await app.deploy(files.scripts(python=False))
        checked = await (await app.start("scripts", {"n": 2})).result()
        assert checked == {"n": 9, "double": 6, "size": "small", "done": 9}, checked
        await timed(app, "scripts", n // 4, 500)
        return {"per_second": n / await timed(app, "scripts", n, 500)}


async def signal(url: str, n: int) -> dict[str, float]:
    """One broadcast to `n` processes that wait for it, until all inboxes are written, per second."""
    app = app_on(url)
    async with app:
        await app.deploy(files.listening())
        async with app.worker():
            for first in range(0, n, 5000):
                await app.start_many([("listening", {})] * min(5000, n - first))
            while len(await app.waits(kind="broadcast")) < n:
                await asyncio.sleep(0.05)
        begin = time.perf_counter()
        count = await app.broadcast("go", {"price": 1})
        seconds = time.perf_counter() - begin
        assert count == n, count
    return {"per_second": n / seconds}


async def answer_all(app: Hark, n: int) -> None:
    """Answer the open user tasks, once all `n` are there."""
    while len(open_tasks := await app.awakeables(status="PENDING", limit=10_000)) < n:
        await asyncio.sleep(0.005)
    for reply in [app.resolve(one.id, {"seen": True}) for one in open_tasks]:
        await reply


async def many(url: str, n: int) -> dict[str, float]:
    """Seconds per token of a multi-instance of `n`, and of one of 50, for each kind of task and of loop."""
    app = app_on(url)
    found = {}
    async with app, app.worker():

        async def once(process: str, size: int) -> float:
            begin = time.perf_counter()
            started = await app.start(process, {"n": size, "items": list(range(size))})
            if process.startswith("user"):
                await answer_all(app, size)
            await started.result(timeout=600)
            return (time.perf_counter() - begin) / size

        for activity in ("service", "script", "user"):
            for loop in ("collection", "cardinality"):
                await app.deploy(files.many(activity, collection=loop == "collection"))
                process = f"{activity}-{loop}"
                few = [await once(process, 50) for _ in range(12)]
                found[f"{process} few"] = statistics.median(few[2:])
                found[f"{process} many"] = await once(process, n)
    return found


async def parse(url: str, n: int) -> dict[str, float]:
    """Seconds to read and check a file of 500 elements."""
    from hark.programs.bpmn.file import read_bpmn

    times = []
    for number in range(n):
        data = files.large(500, salt=1000 * number).encode()
        begin = time.perf_counter()
        read_bpmn(data)
        times.append(time.perf_counter() - begin)
    return {"median_seconds": statistics.median(times)}


Workload = Callable[[str, int], Awaitable[dict[str, float]]]
WORKLOADS: dict[str, tuple[Workload, int]] = {
    "services": (services, 1000),
    "scripts": (scripts, 6000),
    "signal": (signal, 50_000),
    "many": (many, 5000),
    "parse": (parse, 15),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("url")
    parser.add_argument("--n", type=int)
    options = parser.parse_args()
    work, n = WORKLOADS[options.workload]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(work(options.url, options.n or n))), flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
