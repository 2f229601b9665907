"""Measure `hark serve --no-worker` and `hark worker`, two processes: `python -m bench.served WORKLOAD URL`.

Prints one JSON line. Both commands load the `app` of this module; a third process, bench/load.py, sends the answers
over HTTP. bench/answers.py measures the same with the server and the worker in one process.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvloop

from bench.answers import PAUSE, load, resolve_path
from hark import FunctionContext, Hark, __version__, workflow

WORKING, SERVING = "working;", "serving on "


@workflow
async def ask(ctx: FunctionContext) -> float:
    """Return when it was resumed: on one machine, all processes have the same monotonic clock."""
    await (await ctx.awakeable(timeout=3600, title="Deploy?"))
    return time.monotonic()


app = Hark(os.environ.get("HARK_DB", "sqlite://"))
app.register(ask)


@contextlib.asynccontextmanager
async def running(url: str, announced: str, *arguments: str) -> AsyncIterator[str]:
    """Run a `hark` command on the app of this module; yields the line in which it says that it is ready."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hark", *arguments, "--app", "bench.served:app",
        stdout=subprocess.PIPE, env={**os.environ, "HARK_DB": url},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        assert announced in line, f"hark {' '.join(arguments)} said: {line!r}"
        yield line
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def port_in(line: str) -> int:
    """The port of the server, from what it says when it is ready."""
    found = re.search(r":(\d+)", line.partition(SERVING)[2])
    assert found is not None, line
    return int(found[1])


@contextlib.asynccontextmanager
async def server_and_worker(url: str, in_flight: int) -> AsyncIterator[int]:
    """Run both commands; yields the port of the server."""
    async with (
        running(url, SERVING, "serve", "--no-worker", "--port", "0") as line,
        running(url, WORKING, "worker", "--queue", f"default={in_flight}"),
    ):
        yield port_in(line)


@contextlib.asynccontextmanager
async def two_processes(url: str, in_flight: int) -> AsyncIterator[int]:
    """Run `hark serve` in two processes, each with a server and a worker; yields their port."""
    arguments = ("serve", "--processes", "2", "--port", "0", "--queue", f"default={in_flight}")
    async with running(url, SERVING, *arguments) as line:
        yield port_in(line)


async def park(url: str, n: int) -> list[tuple[str, str]]:
    """Start `n` functions; return the ids of instances and their awakeables once all are parked.

    The app is closed then: a third app that is notified of each commit would take part in the measurement.
    """
    async with Hark(url) as client:
        ids = {
            handle.id for handle in await client.start_many([("ask", None)] * n) if not isinstance(handle, Exception)
        }
        while True:
            found = [(one.instance_id, one.id) for one in await client.awakeables(status="PENDING", limit=10_000)]
            if len(found) == n and len(await client.waits(kind="awakeable")) == n:
                break
            await asyncio.sleep(0.05)
    assert {instance for instance, _ in found} == ids
    await asyncio.sleep(0.5)
    return found


async def answer(
    url: str, n: int, in_flight: int, processes: Callable[[str, int], Any] = server_and_worker
) -> dict[str, Any]:
    """Answer `n` parked functions over HTTP, until the code of the last one has run, as for Restate."""
    async with processes(url, in_flight) as port:
        for count in (100, n):
            parked = await park(url, count)
            found = await load(port, [resolve_path(awakeable) for _, awakeable in parked])
            seconds = max(await resumed(url, parked)) - found["began"]
    return {"n": n, "seconds": seconds, "per_second": n / seconds}


async def answer_by_two(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """The same with `hark serve --processes 2`."""
    return await answer(url, n, in_flight, two_processes)


async def latency(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the time from just before a request is written to the resumed code."""
    async with server_and_worker(url, in_flight) as port:
        parked = await park(url, n)
        found = await load(port, [resolve_path(awakeable) for _, awakeable in parked], connections=1, pause=PAUSE)
        times = [at - sent for at, sent in zip(await resumed(url, parked), found["sent"], strict=True)]
    return {"n": n, "median_seconds": statistics.median(times)}


async def resumed(url: str, parked: list[tuple[str, str]]) -> list[float]:
    """When each function was resumed."""
    async with Hark(url) as client:
        return [await client.result(id, timeout=300) for id, _ in parked]


Workload = Callable[[str, int, int], Awaitable[dict[str, Any]]]
WORKLOADS: dict[str, tuple[Workload, int]] = {
    "answer": (answer, 2000),
    "answer_by_two": (answer_by_two, 2000),
    "latency": (latency, 100),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("url")
    parser.add_argument("--n", type=int)
    parser.add_argument("--in-flight", type=int, default=500)
    options = parser.parse_args()
    work, best = WORKLOADS[options.workload]
    found: dict[str, Any] = uvloop.run(work(options.url, options.n or best, options.in_flight))  # type: ignore[arg-type]
    print(json.dumps({"workload": options.workload, "peer": "hark", "version": __version__, **found}))


if __name__ == "__main__":
    main()
