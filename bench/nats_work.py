"""Measure signals over NATS: `python -m bench.nats_work WORKLOAD URL` prints one JSON line.

The worker is in this process, the senders are in processes of their own.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from hark import Await, Context, Dag, Done, Hark, Machine, TaskContext, step
from hark.store.sql import Sql

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.nats_client import plain_client  # noqa: E402
from tests.support.nats_server import NatsServer  # noqa: E402

PATIENCE = 120.0  # seconds for a burst


class Sender:
    """A process that sends signals."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def send(self, run: str, count: int = 1) -> float:
        """Send so many signals. Returns when it began to."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{run} {count}\n".encode())
        return float(await self._process.stdout.readline())


@asynccontextmanager
async def sender(how: str, server: str) -> AsyncIterator[Sender]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.nats_sender", how, server, cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    try:
        yield Sender(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


class Parked(Machine):
    """Waits for another signal: those of the burst stay in its inbox."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


@asynccontextmanager
async def working(url: str) -> AsyncIterator[tuple[Hark, Sender, Sender, str]]:
    """A worker that reads the bucket, a process that puts, one that signals, and the URL of the server."""
    with tempfile.TemporaryDirectory(prefix="hark-bench-nats-") as folder, NatsServer(Path(folder)) as server:
        app = Hark(url, nats=server.url)
        app.register(Parked)
        async with app, app.worker({"default": 100}):
            while not app._clerk.counters.nats.is_reader:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
            async with sender("put", server.url) as putting, sender("signal", url) as signalling:
                yield app, putting, signalling, server.url


async def latency(url: str, n: int) -> dict[str, float]:
    """Median seconds from sending to the return of `wait_for_signal`, over NATS and over the store, alternately."""
    returned: list[float] = []
    async with working(url) as (app, putting, signalling, _):
        dag = Dag("waiting")
        dag.task("wait", "wait")

        @app.handler("wait")
        async def wait(task: TaskContext) -> None:
            while await task.wait_for_signal("go", timeout=600) != "end":
                returned.append(time.monotonic())

        job = await app.start(dag)
        while not await app.waits(name="go"):
            await asyncio.sleep(0.01)
        took: dict[str, list[float]] = {"put": [], "signal": []}
        for _ in range(n):
            for how, one in (("put", putting), ("signal", signalling)):
                before = len(returned)
                await asyncio.sleep(0.03)  # idle: the next wait is armed, and no check is due
                began = await one.send(job.id)
                while len(returned) == before:
                    await asyncio.sleep(0.001)
                took[how].append(returned[-1] - began)
        await job.signal("go", "end")
        await job.result()
    return {how: statistics.median(times[2:]) for how, times in took.items()}


async def burst(url: str, n: int) -> dict[str, float]:
    """Signals per second until all of a burst are committed, over NATS and over the store.

    Raises:
        TimeoutError: They have not all arrived after `PATIENCE` seconds.
        RuntimeError: Signals are missing in the store, or are there twice.
    """
    async with working(url) as (app, putting, signalling, server):
        parked = await app.start(Parked)
        received = app._clerk.counters.nats.received  # type: ignore[union-attr]
        async with asyncio.timeout(PATIENCE), plain_client(server, "signals") as client:
            began = await putting.send(parked.id, n)
            while received["delivered"] < n:
                await asyncio.sleep(0.002)
            put = n / (time.monotonic() - began)
            while await client.unread():
                await asyncio.sleep(0.01)
        arrived = await count_signals(app, parked.id)
        if arrived != n:
            raise RuntimeError(f"{arrived} signals are in the store after {n} puts.")
        began = await signalling.send(parked.id, n)
        return {"put": put, "signal": n / (time.monotonic() - began), "arrived": arrived}


async def count_signals(app: Hark, run: str) -> int:
    """How many signals the store has for a run."""
    count = Sql("SELECT count(*) FROM inbox WHERE instance_id = :run::text AND kind = 'signal'")
    [(found,)] = await app._read(lambda store: store.read(count, run=run))
    return int(found)


WORKLOADS = {"latency": (latency, 100), "burst": (burst, 5000)}


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
