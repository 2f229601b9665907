"""Measure DBOS. Runs in the interpreter of its own environment and prints one JSON line.

Everything runs in one process, as fast as the documented settings allow on two cores. There the interpreter limits
DBOS, not the database: a small connection pool without pre-ping is best. For steps, workflows on the thread pool
of DBOS are a tenth faster than coroutines (`--style` selects either). For signals, coroutines woken by LISTEN/NOTIFY
with few threads are best. A SQLite file is put into WAL mode, which DBOS keeps and which is faster than its
default.
"""

import asyncio
import sqlite3
import statistics
import time
from argparse import Namespace
from collections import deque
from typing import Any

import psycopg
from dbos import DBOS, DBOSConfig, WorkflowHandle
from result import PAUSE, STEPS, command_line, parse, report

TOPIC = "go"
BEST: dict[str, dict[str, Any]] = {
    "steps": {"n": 1000, "style": "threads"},
    "signals": {"n": 2000, "style": "async"},
    "latency": {"n": 100, "style": "async"},
}
resumed: list[float] = []


@DBOS.step()
def step(value: int) -> int:
    return value + 1


@DBOS.step()
async def step_async(value: int) -> int:
    return value + 1


@DBOS.workflow()
def steps(value: int) -> int:
    for _ in range(STEPS):
        value = step(value)
    return value


@DBOS.workflow()
async def steps_async(value: int) -> int:
    for _ in range(STEPS):
        value = await step_async(value)
    return value


@DBOS.workflow()
async def parked() -> Any:
    event = await DBOS.recv_async(TOPIC, timeout_seconds=3600)
    resumed.append(time.monotonic())
    return event


def run_steps(n: int, in_flight: int) -> float:
    """Seconds for `n` workflows on DBOS's threads, awaiting the oldest before starting one more."""
    begin = time.perf_counter()
    running: deque[WorkflowHandle[int]] = deque()
    for value in range(n):
        if len(running) == in_flight:
            running.popleft().get_result()
        running.append(DBOS.start_workflow(steps, value))
    for handle in running:
        handle.get_result()
    return time.perf_counter() - begin


async def run_steps_async(n: int, in_flight: int) -> float:
    """Seconds for `n` coroutine workflows."""
    values = iter(range(n))

    async def lane() -> None:
        for value in values:
            handle = await DBOS.start_workflow_async(steps_async, value)
            await handle.get_result()

    begin = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    return time.perf_counter() - begin


async def run_signals(n: int, url: str) -> float:
    """Seconds from the first send until `n` parked workflows are done."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watch:
        handles = await asyncio.gather(*(DBOS.start_workflow_async(parked) for _ in range(n)))
        await until_parked(watch, n)
    begin = time.perf_counter()
    await asyncio.gather(*(DBOS.send_async(handle.workflow_id, "event", TOPIC) for handle in handles))
    results = await asyncio.gather(*(handle.get_result() for handle in handles))
    seconds = time.perf_counter() - begin
    assert results == ["event"] * n
    return seconds


async def run_latency(n: int, url: str) -> float:
    """Median seconds from a send to the code that it wakes, one at a time."""
    found = []
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watch:
        for _ in range(n):
            handle = await DBOS.start_workflow_async(parked)
            await until_parked(watch, 1)
            await asyncio.sleep(PAUSE)
            begin = time.monotonic()
            await DBOS.send_async(handle.workflow_id, "event", TOPIC)
            await handle.get_result()
            found.append(resumed.pop() - begin)
    return statistics.median(found)


async def until_parked(watch: psycopg.AsyncConnection[Any], n: int) -> None:
    """Wait until `n` workflows are parked: the last record of `recv` before it waits is that of its timeout."""
    statement = """
        SELECT count(*) = %s FROM dbos.operation_outputs JOIN dbos.workflow_status USING (workflow_uuid)
        WHERE function_name = 'DBOS.sleep' AND status = 'PENDING'"""
    while True:
        cursor = await watch.execute(statement, (n,))
        if await cursor.fetchone() == (True,):
            return
        await asyncio.sleep(0.1)


async def run_async(options: Namespace) -> float:
    """Warm up, then measure, on one event loop: the end of a loop shuts down the thread pool of DBOS."""
    if options.workload == "latency":
        return await run_latency(options.n, options.url)
    if options.workload == "signals":
        await run_signals(options.warm_up, options.url)
        return await run_signals(options.n, options.url)
    await run_steps_async(options.warm_up, options.in_flight)
    return await run_steps_async(options.n, options.in_flight)


def run_in_threads(options: Namespace) -> float:
    """Warm up, then measure, without an event loop."""
    run_steps(options.warm_up, options.in_flight)
    return run_steps(options.n, options.in_flight)


def arguments() -> Namespace:
    parser = command_line("measure DBOS")
    parser.add_argument("--style", choices=("threads", "async"), help="of the workflows")
    parser.add_argument("--pool", type=int, help="sys_db_pool_size")
    parser.add_argument("--threads", type=int, help="max_executor_threads")
    parser.add_argument("--warm-up", type=int, default=50)
    options = parse(parser, BEST)
    sqlite = options.url.startswith("sqlite")
    if options.workload != "steps" and (sqlite or options.style == "threads"):
        parser.error("signals are measured with async workflows on PostgreSQL only")
    options.pool = options.pool or (2 if sqlite else 5)
    options.threads = options.threads or (options.in_flight if options.style == "threads" else 4)
    return options


def configure(options: Namespace) -> DBOSConfig:
    return DBOSConfig(
        name="hark-bench",
        system_database_url=options.url,
        log_level="ERROR",
        sys_db_pool_size=options.pool,
        max_executor_threads=options.threads,
        db_engine_kwargs={"pool_pre_ping": False, "pool_timeout": 300},
        use_listen_notify=True,
    )


def prepare_sqlite(url: str) -> dict[str, Any]:
    """Create the file in WAL mode; return the settings that determine its durability."""
    file = sqlite3.connect(url.removeprefix("sqlite:///"))
    [journal_mode] = file.execute("PRAGMA journal_mode = WAL").fetchone()
    [synchronous] = file.execute("PRAGMA synchronous").fetchone()
    file.close()
    return {"sqlite": sqlite3.sqlite_version, "journal_mode": journal_mode, "synchronous": synchronous}


def main() -> None:
    options = arguments()
    config = configure(options)
    settings: dict[str, Any] = {"in_flight": options.in_flight, "style": options.style, **config}
    del settings["system_database_url"]
    if options.url.startswith("sqlite"):
        settings |= prepare_sqlite(options.url)
    DBOS(config=config)
    DBOS.launch()
    seconds = run_in_threads(options) if options.style == "threads" else asyncio.run(run_async(options))
    DBOS.destroy()
    report("dbos", "dbos", options.workload, options.n, seconds, settings)


if __name__ == "__main__":
    main()
