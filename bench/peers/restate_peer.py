"""Measure Restate. Runs in the interpreter of its own environment and prints one JSON line.

Its server writes a log of its own, with fsync as by default, so no database is needed; the log is in a temporary
directory, like the data of PostgreSQL. The service runs in this process, over HTTP/2 in both directions, and stays
connected while it waits. That is faster than to suspend and replay it, as the server does after a minute (with
`--suspend`: immediately). bench/load.py sends invocations and answers to the ingress. An invocation counts as done
when the code of the service has run; its last record is not awaited.
"""

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import restate
from granian.constants import HTTPModes
from granian.server.embed import Server
from hypercorn.asyncio import serve
from hypercorn.config import Config
from result import PAUSE, command_line, parse, report

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH.parent))

from bench.peers.node import VERSION, restate_server  # noqa: E402

BEST: dict[str, dict[str, Any]] = {
    "signals": {"n": 2000, "partitions": 4, "server": "granian"},
    "latency": {"n": 100, "partitions": 4, "server": "granian"},
}
asked: list[str] = []
resumed: list[float] = []
service = restate.Service("Bench")


@service.handler()
async def parked(context: restate.Context, number: int) -> Any:
    id, answer = context.awakeable()
    asked.append(id)
    event = await answer
    resumed.append(time.monotonic())
    return event


@asynccontextmanager
async def serving(kind: str) -> AsyncIterator[int]:
    """Run the service; yields its port."""
    app, [port], stop = restate.app([service]), free_ports(1), asyncio.Event()
    if kind == "granian":
        server = Server(
            app, address="127.0.0.1", port=port, interface="asginl", http=HTTPModes.http2, log_enabled=False
        )
        task = asyncio.create_task(server.serve())
    else:
        config = Config()
        config.bind, config.errorlog, config.h2_max_concurrent_streams = [f"127.0.0.1:{port}"], None, 10_000
        task = asyncio.create_task(serve(app, config, shutdown_trigger=stop.wait))  # type: ignore[arg-type]
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def restate_running(partitions: int, suspend: bool) -> AsyncIterator[tuple[int, int]]:
    """Run the server of Restate; yields the ports of its ingress and its admin API."""
    ingress, admin, node = free_ports(3)
    with tempfile.TemporaryDirectory(prefix="hark-bench-restate-") as home:
        settings = {
            "LISTEN_MODE": "tcp", "BIND_IP": "127.0.0.1", "BIND_PORT": node, "BASE_DIR": home,
            "ADMIN__BIND_PORT": admin, "INGRESS__BIND_PORT": ingress, "DISABLE_TELEMETRY": "true", "LOG_FILTER": "off",
            "DEFAULT_NUM_PARTITIONS": partitions, "WORKER__INVOKER__CONCURRENT_INVOCATIONS_LIMIT": 10_000,
            "WORKER__INVOKER__INACTIVITY_TIMEOUT": "0s" if suspend else "10m",
        }  # fmt: skip
        environment = {**os.environ, **{f"RESTATE_{name}": str(value) for name, value in settings.items()}}
        process = await asyncio.create_subprocess_exec(
            restate_server(), "--no-logo", env=environment, stdout=sys.stderr
        )
        try:
            yield ingress, admin
        finally:
            process.kill()
            await process.wait()


def free_ports(count: int) -> list[int]:
    """Different ones: all are held until the last is found."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


async def register(admin: int, port: int) -> None:
    """Register the service as soon as the server responds."""
    body = json.dumps({"uri": f"http://127.0.0.1:{port}"}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{admin}/deployments", body, {"content-type": "application/json"}
    )
    until = time.monotonic() + 60
    while True:
        try:
            await asyncio.to_thread(urllib.request.urlopen, request, timeout=10)
            return
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


async def load(ingress: int, lines: list[str], connections: int, pause: float = 0) -> dict[str, Any]:
    options = ["--connections", str(connections), "--pause", str(pause)]
    command = [sys.executable, BENCH / "load.py", str(ingress), *options]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await process.communicate("\n".join(lines).encode())
    found: dict[str, Any] = json.loads(out)
    assert found["statuses"] == {"202": len(lines)}, found
    return found


async def park(ingress: int, n: int, connections: int) -> list[str]:
    """Start `n` invocations; return the ids of their awakeables once all exist."""
    asked.clear()
    resumed.clear()
    await load(ingress, [f"/Bench/parked/send\t{number}" for number in range(n)], connections)
    while len(asked) < n:
        await asyncio.sleep(0.02)
    return list(asked)


def answer(id: str) -> str:
    return f'/restate/awakeables/{id}/resolve\t"event"'


async def run_signals(ingress: int, n: int, connections: int) -> float:
    """Seconds from the first answer until `n` parked invocations have run to their end."""
    ids = await park(ingress, n, connections)
    await asyncio.sleep(0.5)
    found = await load(ingress, [answer(id) for id in ids], connections)
    while len(resumed) < n:
        await asyncio.sleep(0.01)
    return max(resumed) - float(found["began"])


async def run_latency(ingress: int, n: int) -> float:
    """Median seconds from an answer to the code that it wakes, one at a time. The process of the service answers."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ingress)
    found = []
    ids = await park(ingress, n, 1)
    await asyncio.sleep(0.5)
    for id in ids:
        path, body = answer(id).split("\t")
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{ingress}\r\ncontent-type: application/json\r\n"
        await asyncio.sleep(PAUSE)
        begin = time.monotonic()
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 202")
        while not resumed:
            await asyncio.sleep(0.0005)
        found.append(resumed.pop() - begin)
    writer.close()
    return statistics.median(found)


async def run_latency_apart(ingress: int, n: int) -> float:
    """The same, answered by another process on one connection."""
    ids = await park(ingress, n, 1)
    await asyncio.sleep(0.5)
    found = await load(ingress, [answer(id) for id in ids], 1, PAUSE)
    while len(resumed) < n:
        await asyncio.sleep(0.01)
    return statistics.median(end - begin for end, begin in zip(resumed, found["sent"], strict=True))


async def measure(options: Namespace) -> float:
    async with (
        restate_running(options.partitions, options.suspend) as (ingress, admin),
        serving(options.server) as port,
    ):
        await register(admin, port)
        if options.workload == "latency":
            return await (run_latency_apart if options.apart else run_latency)(ingress, options.n)
        await run_signals(ingress, options.warm_up, options.connections)
        return await run_signals(ingress, options.n, options.connections)


def main() -> None:
    parser = command_line("measure Restate")
    parser.add_argument("--partitions", type=int, help="partitions of its log; its own default is 24")
    parser.add_argument("--server", choices=("hypercorn", "granian"), help="the ASGI server of the service")
    parser.add_argument("--connections", type=int, default=64, help="connections to the ingress")
    parser.add_argument("--suspend", action="store_true", help="suspend waiting invocations immediately")
    parser.add_argument(
        "--apart", action="store_true", help="latency: another process answers, not that of the service"
    )
    parser.add_argument("--warm-up", type=int, default=100)
    options = parse(parser, BEST)
    seconds = asyncio.run(measure(options))
    settings = {name: getattr(options, name) for name in ("partitions", "server", "suspend", "apart", "connections")}
    report("restate", "restate-sdk", options.workload, options.n, seconds, {"server version": VERSION, **settings})


if __name__ == "__main__":
    main()
