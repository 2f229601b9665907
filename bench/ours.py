"""Measure Hark: `python -m bench.ours WORKLOAD URL` prints one JSON line.

The work is the same as in bench/peers/: a ten-step workflow with 500 in flight, and parked instances that
are signalled. The other workloads have no peer; they are compared with the bare commit of floor.py, or with
Hark itself.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from hark import Await, Broadcast, Context, Done, Hark, Machine, Next, __version__, step

STEPS = 10
PAUSE = 0.02  # seconds before each signal of a latency
SETTINGS = {"event log": "on", "lease": 30.0, "sqlite synchronous": "FULL", "loop and gc": "as `hark worker` sets them"}
gc.set_threshold(20_000, 20, 100)
ran: list[float] = []


class Ten(Machine):
    @step
    async def start(self, ctx: Context) -> Next | Done:
        ctx.state["n"] += 1
        return Done(ctx.state["n"]) if ctx.state["n"] == STEPS else Next(self.start)


class Parked(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end, timeout=3600)

    @step
    async def end(self, ctx: Context) -> Done:
        ran.append(time.monotonic())
        return Done()


class Listening(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("go"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done()


class Sleeper(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        deadline = ctx.now() + timedelta(seconds=0.1)
        return Await(then=self.end, deadline=deadline, state={"deadline": deadline.timestamp()})

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.now().timestamp() - ctx.state["deadline"])


def app_on(url: str) -> Hark:
    app = Hark(url)
    app.register(Ten, Parked, Listening, Sleeper)
    return app


async def run_ten(app: Hark, n: int, in_flight: int) -> float:
    """Seconds for `n` workflows by `in_flight` clients, each of which starts the next one when its last is done."""
    left = iter(range(n))

    async def client() -> None:
        for _ in left:
            started = await app.start(Ten, {"n": 0})
            assert await started.result(timeout=300) == STEPS

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(in_flight)))
    return time.perf_counter() - begin


async def steps(url: str, n: int, in_flight: int) -> dict[str, Any]:
    app = app_on(url)
    async with app, app.worker({"default": in_flight}):
        await run_ten(app, in_flight, in_flight)
        seconds = await run_ten(app, n, in_flight)
    return {"n": n, "seconds": seconds, "per_second": n * STEPS / seconds}


async def park(app: Hark, machine: type[Machine], n: int, kind: str) -> list[str]:
    """Start `n` instances and return their ids once all of them are parked."""
    ids: list[str] = []
    for first in range(0, n, 5000):
        ids += [handle.id for handle in await app.start_many([(machine, None)] * min(5000, n - first))]
    while await parked(app, kind) < n:
        await asyncio.sleep(0.05)
    return ids


async def parked(app: Hark, kind: str) -> int:
    return len(await app.waits(kind=kind))


async def signals(url: str, n: int, in_flight: int) -> dict[str, Any]:
    app = app_on(url)
    async with app, app.worker({"default": in_flight}):
        for count in (100, n):
            ids = await park(app, Parked, count, "signal")
            begin = time.perf_counter()
            sent = [app.signal(id, "go", {"amount": 100}) for id in ids]  # takes effect when called, not when awaited
            for reply in [*sent, *(app.result(id, timeout=300) for id in ids)]:
                await reply
            seconds = time.perf_counter() - begin
    return {"n": n, "seconds": seconds, "per_second": n / seconds}


async def latency(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the time from the signal to the step it wakes, sender and worker in one process."""
    app = app_on(url)
    async with app, app.worker():
        found = []
        ids = await park(app, Parked, n, "signal")
        await asyncio.sleep(0.5)
        for id in ids:
            await asyncio.sleep(PAUSE)
            begin = time.monotonic()
            await app.signal(id, "go")
            await app.result(id, timeout=30)
            found.append(ran.pop() - begin)
    return {"n": n, "median_seconds": statistics.median(found)}


async def latency_apart(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the same with the sender in another process."""
    app = app_on(url)
    async with app, app.worker():
        ids = await park(app, Parked, n, "signal")
        await asyncio.sleep(0.5)
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.ours", "send", url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await sender.communicate("\n".join(ids).encode())
        while len(ran) < n:
            await asyncio.sleep(0.01)
    sent = json.loads(out)
    return {"n": n, "median_seconds": statistics.median(map(float.__sub__, ran, sent))}


async def send(url: str, n: int, in_flight: int) -> None:
    """The other process: signal each id on stdin, one at a time, with a pause; print the times."""
    sent = []
    async with app_on(url) as app:
        for id in sys.stdin.read().split():
            await asyncio.sleep(PAUSE)
            sent.append(time.monotonic())
            await app.signal(id, "go")
    print(json.dumps(sent))


async def timers(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the time from the deadline to the step it wakes."""
    app = app_on(url)
    async with app, app.worker():
        late = [await (await app.start(Sleeper)).result(timeout=30) for _ in range(n)]
    return {"n": n, "median_seconds": statistics.median(late)}


async def memory(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """How much the memory of a worker grows by parked instances that another process started."""
    import psutil

    app = app_on(url)
    async with app, app.worker({"default": in_flight}):
        await park(app, Parked, 2000, "signal")
        before = psutil.Process().memory_info().rss
        starter = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.ours", "fill", url, "--n", str(n))
        await starter.wait()
        after = psutil.Process().memory_info().rss
    return {"n": n, "grown_bytes": after - before}


async def fill(url: str, n: int, in_flight: int) -> None:
    """The other process: start `n` more and wait until they are parked."""
    async with app_on(url) as app:
        before = await parked(app, "signal")
        for first in range(0, n, 5000):
            await app.start_many([(Parked, None)] * min(5000, n - first))
        while await parked(app, "signal") < before + n:
            await asyncio.sleep(1)


async def broadcast(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """One broadcast to `n` subscribers, until all inboxes are written."""
    app = app_on(url)
    async with app:
        async with app.worker({"default": in_flight}):
            await park(app, Listening, n, "broadcast")
        begin = time.perf_counter()
        count = await app.broadcast("go", {"price": 1})
        seconds = time.perf_counter() - begin
        assert count == n
    return {"n": n, "seconds": seconds, "per_second": n / seconds}


async def crowd(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """The same steps in this process and a second one, half of the work each."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.ours", "steps", url, "--n", str(n // 2), "--in-flight", str(in_flight // 2),
        stdout=subprocess.PIPE,
    )  # fmt: skip
    mine = await steps(url, n // 2, in_flight // 2)
    out, _ = await other.communicate()
    theirs = json.loads(out)
    return {"n": n, "per_second": mine["per_second"] + theirs["per_second"]}


async def beside(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """Signals from another process beside a saturated worker: the 95th percentile of their latency."""
    app = app_on(url)
    async with app, app.worker({"default": in_flight}):
        busy = asyncio.create_task(run_ten(app, 1_000_000, in_flight))
        handle = await app.start(Parked, delay=3600)
        caller = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench.ours",
            "call",
            url,
            "--n",
            str(n),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        out, _ = await caller.communicate(handle.id.encode())
        busy.cancel()
    times = sorted(json.loads(out))
    return {"n": n, "p95_seconds": times[int(len(times) * 0.95)], "median_seconds": statistics.median(times)}


async def call(url: str, n: int, in_flight: int) -> None:
    """The other process: send `n` signals to the id on stdin; print how long each took."""
    id, times = sys.stdin.read().strip(), []
    async with app_on(url) as app:
        for number in range(n):
            begin = time.perf_counter()
            await app.signal(id, "note", number)
            times.append(time.perf_counter() - begin)
            await asyncio.sleep(0.005)
    print(json.dumps(times))


async def first(url: str, n: int, in_flight: int) -> None:
    """Open the app, start one machine, run it to its end, close."""
    app = app_on(url)
    async with app, app.worker():
        await (await app.start(Ten, {"n": STEPS - 1})).result()


Workload = Callable[[str, int, int], Awaitable[dict[str, Any] | None]]
WORKLOADS: dict[str, tuple[Workload, int]] = {
    "steps": (steps, 6000),
    "signals": (signals, 5000),
    "latency": (latency, 200),
    "latency_apart": (latency_apart, 200),
    "send": (send, 0),
    "timers": (timers, 100),
    "memory": (memory, 100_000),
    "fill": (fill, 0),
    "broadcast": (broadcast, 50_000),
    "crowd": (crowd, 6000),
    "beside": (beside, 300),
    "call": (call, 0),
    "first": (first, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("url")
    parser.add_argument("--n", type=int)
    parser.add_argument("--in-flight", type=int, default=500)
    options = parser.parse_args()
    work, best = WORKLOADS[options.workload]
    run = asyncio.run
    if options.workload != "first":  # that one measures the start of a process, without uvloop
        import uvloop

        run = uvloop.run  # as `hark worker` does
    found = run(work(options.url, options.n or best, options.in_flight))  # type: ignore[arg-type]
    if found is not None:
        line = {"workload": options.workload, "peer": "hark", "version": __version__, **found, "settings": SETTINGS}
        print(json.dumps({**line, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
