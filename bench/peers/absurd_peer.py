"""Measure Absurd. Runs in the interpreter of its own environment and prints one JSON line.

A client of the Python SDK owns one connection, which all its tasks share. So one process runs several clients
(`--clients`), each a worker for its share of the tasks in flight. For steps that is about twice as fast as the
single client of the documentation, for signals the gain is smaller. Workers poll, here more often than by default,
because the SDK has no notifications.
"""

import asyncio
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import AsyncAbsurd, AsyncTaskContext
from result import PAUSE, STEPS, command_line, parse, report

QUEUE = "bench"
BEST: dict[str, dict[str, Any]] = {
    "steps": {"n": 2000, "clients": 16, "senders": 4},
    "signals": {"n": 3000, "clients": 4, "senders": 8},
    "latency": {"n": 100, "clients": 1, "senders": 1},
}
resumed: list[float] = []
Watch = psycopg.AsyncConnection[Any]
Action = Callable[[AsyncAbsurd, int], Awaitable[Any]]


async def steps(params: dict[str, int], context: AsyncTaskContext) -> int:
    value = params["number"]

    async def step() -> int:
        return value + 1

    for index in range(STEPS):
        value = await context.step(f"step-{index}", step)
    return value


async def parked(params: dict[str, int], context: AsyncTaskContext) -> Any:
    event = await context.await_event(f"go:{params['number']}")
    resumed.append(time.monotonic())
    return event


def create_schema(url: str) -> None:
    absurdctl = Path(sys.executable).with_name("absurdctl")
    for command in (["init"], ["create-queue", QUEUE]):
        subprocess.run([absurdctl, *command, "--database", url], check=True, stdout=sys.stderr)


async def spread(clients: list[AsyncAbsurd], numbers: range, action: Action) -> None:
    """Execute `action` once for each number; each client handles one at a time."""
    todo = iter(numbers)

    async def lane(client: AsyncAbsurd) -> None:
        for number in todo:
            await action(client, number)

    await asyncio.gather(*map(lane, clients))


async def until(watch: Watch, state: str, count: int) -> None:
    """Wait until `count` tasks are in `state`."""
    statement = f"SELECT count(*) >= %s FROM absurd.t_{QUEUE} WHERE state = %s"
    while True:
        cursor = await watch.execute(statement, (count, state))
        if await cursor.fetchone() == (True,):
            return
        await asyncio.sleep(0.02)


async def spawn(senders: list[AsyncAbsurd], task: str, numbers: range) -> None:
    await spread(senders, numbers, lambda client, number: client.spawn(task, {"number": number}, queue=QUEUE))


async def run_steps(senders: list[AsyncAbsurd], watch: Watch, numbers: range) -> float:
    """Seconds from the first spawn until all are done; `numbers` continue from those of the warm-up."""
    begin = time.perf_counter()
    await spawn(senders, "steps", numbers)
    await until(watch, "completed", numbers.stop)
    return time.perf_counter() - begin


async def run_signals(senders: list[AsyncAbsurd], watch: Watch, numbers: range) -> float:
    """Seconds from the first event until all are done; `numbers` continue from those of the warm-up."""
    await spawn(senders, "parked", numbers)
    await until(watch, "sleeping", len(numbers))
    begin = time.perf_counter()
    await spread(senders, numbers, lambda client, number: client.emit_event(f"go:{number}", "event"))
    await until(watch, "completed", numbers.stop)
    return time.perf_counter() - begin


async def run_latency(senders: list[AsyncAbsurd], watch: Watch, numbers: range) -> float:
    """Median seconds from an event to the code that it wakes, one at a time."""
    found = []
    for number in numbers:
        await spawn(senders, "parked", range(number, number + 1))
        await until(watch, "sleeping", 1)
        # Otherwise every event would arrive at the same point between two polls.
        await asyncio.sleep(PAUSE + 0.001 * (number % 20))
        begin = time.monotonic()
        await senders[0].emit_event(f"go:{number}", "event")
        await until(watch, "completed", number + 1)
        found.append(resumed.pop() - begin)
    return statistics.median(found)


async def measure(options: Namespace, worker: dict[str, Any]) -> float:
    """Start the workers, warm up, measure, stop the workers."""
    workers = [AsyncAbsurd(options.url, queue_name=QUEUE) for _ in range(options.clients)]
    senders = [AsyncAbsurd(options.url, queue_name=QUEUE) for _ in range(options.senders)]
    for client in workers:
        client.register_task("steps")(steps)
        client.register_task("parked")(parked)
    working = [asyncio.create_task(client.start_worker(**worker)) for client in workers]
    run = {"steps": run_steps, "signals": run_signals, "latency": run_latency}[options.workload]
    async with await psycopg.AsyncConnection.connect(options.url, autocommit=True) as watch:
        await run(senders, watch, range(options.warm_up))
        seconds = await run(senders, watch, range(options.warm_up, options.warm_up + options.n))
    for client in workers:
        client.stop_worker()
    await asyncio.gather(*working)
    for client in (*workers, *senders):
        await client.close()
    return seconds


def arguments() -> Namespace:
    parser = command_line("measure Absurd")
    parser.add_argument("--clients", type=int, help="workers, each with a connection")
    parser.add_argument("--senders", type=int, help="connections that spawn and emit")
    parser.add_argument("--poll-interval", type=float, default=0.02, help="seconds")
    parser.add_argument("--warm-up", type=int, default=100)
    return parse(parser, BEST)


def main() -> None:
    options = arguments()
    create_schema(options.url)
    worker = {"concurrency": options.in_flight // options.clients, "poll_interval": options.poll_interval}
    seconds = asyncio.run(measure(options, worker))
    settings = {name: getattr(options, name) for name in ("in_flight", "clients", "senders")}
    report("absurd", "absurd-sdk", options.workload, options.n, seconds, {**settings, **worker})


if __name__ == "__main__":
    main()
