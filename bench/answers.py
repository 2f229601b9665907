"""Measure durable functions, awakeables and HTTP: `python -m bench.answers WORKLOAD URL` prints one JSON line.

The parked functions do the same work as those in bench/peers/. bench/load.py, a process of its own, sends the requests.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import uvloop

from hark import FunctionContext, Hark, __version__, workflow
from hark.app.door_access import DoorAccess
from hark.doors.http.api import ROUTES
from hark.doors.http.connections import Connections
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest, Route, RouteTable
from hark.doors.http.server import LimitedServer, address, config, limits, listen
from hark.doors.http.write_routes import Resolved

STEPS = 10
ENTRIES = 1000
PAUSE = 0.02  # seconds before each answer of a latency, ours and those of the peers
SETTINGS = {"event log": "on", "lease": 30.0, "connections": 64, "loop and gc": "as `hark worker` sets them"}
gc.set_threshold(20_000, 20, 100)
ANSWER = {"approved": True, "amount": 100}
asked: dict[str, str] = {}  # awakeable by instance: a replay creates the same awakeable again
resumed: dict[str, float] = {}


async def nothing() -> None:
    pass


@workflow
async def ten(ctx: FunctionContext) -> int:
    for _ in range(STEPS):
        await ctx.run(nothing)
    return STEPS


@workflow
async def ask(ctx: FunctionContext) -> Any:
    approval = await ctx.awakeable(timeout=3600, title="Deploy?")
    asked[ctx.id] = approval.id
    answer = await approval
    resumed[ctx.id] = time.monotonic()
    return answer


@workflow
async def long(ctx: FunctionContext, entries: int) -> None:
    for _ in range(entries):
        await ctx.run(nothing)
    await ctx.wait_for_signal("go")
    resumed[ctx.id] = time.monotonic()


def app_on(url: str, **options: Any) -> Hark:
    app = Hark(url, **options)
    app.register(ten, ask, long)
    return app


async def functions(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """Runs per second of functions with ten runs each; `bench.ours steps` measures the same for machines."""
    app = app_on(url)

    async def run(count: int) -> float:
        left = iter(range(count))

        async def client() -> None:
            for _ in left:
                assert await (await app.start(ten)).result(timeout=300) == STEPS

        begin = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(in_flight)))
        return time.perf_counter() - begin

    async with app, app.worker({"default": in_flight}):
        await run(in_flight)
        seconds = await run(n)
    return {"n": n, "seconds": seconds, "per_second": n * STEPS / seconds}


async def replay(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """What a journal of 1,000 entries adds to a wake-up: median from signal to resumed code, long minus short."""
    app = app_on(url, resident_functions=0)
    async with app, app.worker({"default": in_flight}):
        pairs = [[(await app.start(long, entries)).id for entries in (1, ENTRIES)] for _ in range(n)]
        while len(await app.waits(kind="signal")) < 2 * n:
            await asyncio.sleep(0.05)
        times: dict[str, float] = {}
        for id in (id for pair in pairs for id in pair):
            begin = time.monotonic()
            await app.signal(id, "go")
            await app.result(id, timeout=60)
            times[id] = resumed[id] - begin
    brief, whole = (statistics.median(times[pair[which]] for pair in pairs) for which in (0, 1))
    return {"n": n, "short_seconds": brief, "long_seconds": whole, "replay_seconds": whole - brief}


async def park(app: Hark, n: int) -> list[str]:
    """Start `n` functions that create an awakeable; return the instance ids once all of them are parked."""
    asked.clear()
    ids = [handle.id for handle in await app.start_many([(ask, None)] * n)]
    while len(asked) < n or len(await app.waits(kind="awakeable")) < n:
        await asyncio.sleep(0.05)
    return ids


async def answer(url: str, n: int, in_flight: int, **options: Any) -> dict[str, Any]:
    """Answer `n` parked functions in this process, until all are done."""
    app = app_on(url, **options)
    async with app, app.worker({"default": in_flight}):
        for count in (100, n):
            ids = await park(app, count)
            begin, turns = time.perf_counter(), DoorAccess(app).turns
            first = time.monotonic()
            sent = [app.resolve(asked[id], ANSWER) for id in ids]
            for reply in [*sent, *(app.result(id, timeout=300) for id in ids)]:
                await reply
            seconds = time.perf_counter() - begin
            ran = max(resumed[id] for id in ids) - first
    rates = {"per_second": n / seconds, "run_per_second": n / ran}
    return {"n": n, "seconds": seconds, **rates, "turns": DoorAccess(app).turns - turns}


async def answer_replayed(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """The same with functions that do not stay in memory while they wait."""
    return await answer(url, n, in_flight, resident_functions=0)


async def trivial(request: HttpRequest) -> Response:
    """Handled like `resolve`: authenticated, routed, parsed, responded to. It commits nothing."""
    return json_response(Resolved("none", await request.json_body()))


class Beside:
    """The app's own API with the trivial route, and an echo that shows what the web server alone costs."""

    def __init__(self, app: Hark) -> None:
        self.api = app.asgi()
        route = Route("POST", "/trivial", trivial, "answer", "For the bench.", {}, id="postTrivial", tag="Server")
        self.api._table = RouteTable([*ROUTES, route])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != "/echo":
            await self.api(scope, receive, send)
            return
        body = msgspec.json.encode(msgspec.json.decode((await receive())["body"]))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def served(app: Hark) -> AsyncIterator[int]:
    """Run the server of `hark serve` with the trivial route and the echo; yields its port."""
    listener = listen("127.0.0.1", 0)
    DoorAccess(app).origin = address(listener)
    connections = Connections(limits(None, None))
    server = LimitedServer(config(Beside(app), connections), connections)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving


async def load(port: int, paths: list[str], connections: int = 64, pause: float = 0) -> dict[str, Any]:
    """Post the answer to each path from another process; return its measurements. Every status must be 200."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.load", str(port), "--connections", str(connections), "--pause", str(pause),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    body = json.dumps(ANSWER)
    out, _ = await process.communicate("\n".join(f"{path}\t{body}" for path in paths).encode())
    found: dict[str, Any] = json.loads(out)
    assert found["statuses"] == {"200": len(paths)}, found
    return found


def resolve_path(awakeable: str) -> str:
    return f"/awakeables/{awakeable}/resolve"


async def http(url: str, n: int, connections: int) -> dict[str, Any]:
    """Requests per second on one server: answers, trivial posts, echoes. No worker: only calls and their commits."""
    app = app_on(url)
    async with app:
        async with app.worker({"default": 500}):
            ids = await park(app, n + 500)
        async with served(app) as port:
            answers = [resolve_path(asked[id]) for id in ids]
            for paths in (answers[n:], ["/trivial"] * 500, ["/echo"] * 500):
                await load(port, paths, connections)
            turns = DoorAccess(app).turns
            resolve = await load(port, answers[:n], connections)
            turns = DoorAccess(app).turns - turns
            trivial, echo = [await load(port, [path] * n, connections) for path in ("/trivial", "/echo")]
    found = {"resolve": resolve, "trivial": trivial, "echo": echo}
    rates = {name: n / one["seconds"] for name, one in found.items()}
    busy = {name: round(one["cpu_seconds"] / one["seconds"], 2) for name, one in found.items()}
    return {"n": n, **rates, "turns": turns, "load generator busy": busy}


async def answer_http(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """Answer `n` parked functions over HTTP, until all are done; server and worker in one process, as `hark serve`."""
    app = app_on(url)
    async with app, app.worker({"default": in_flight}), served(app) as port:
        for count in (100, n):
            ids = await park(app, count)
            ended = asyncio.create_task(when_done(app, ids))
            turns = DoorAccess(app).turns
            found = await load(port, [resolve_path(asked[id]) for id in ids])
            seconds = await ended - found["began"]
            ran = max(resumed[id] for id in ids) - found["began"]
    rates = {"per_second": n / seconds, "run_per_second": n / ran}
    return {"n": n, "seconds": seconds, **rates, "turns": DoorAccess(app).turns - turns}


async def when_done(app: Hark, ids: list[str]) -> float:
    for end in [app.result(id, timeout=300) for id in ids]:
        await end
    return time.monotonic()


async def latency(url: str, n: int, in_flight: int, **options: Any) -> dict[str, Any]:
    """When idle: the time from the answer to the resumed code, in one process."""
    app = app_on(url, **options)
    found = []
    async with app, app.worker():
        ids = await park(app, n)
        await asyncio.sleep(0.5)
        for id in ids:
            await asyncio.sleep(PAUSE)
            begin = time.monotonic()
            await app.resolve(asked[id], ANSWER)
            await app.result(id, timeout=30)
            found.append(resumed[id] - begin)
    return {"n": n, "median_seconds": statistics.median(found)}


async def latency_replayed(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """The same with functions that do not stay in memory while they wait."""
    return await latency(url, n, in_flight, resident_functions=0)


async def latency_http(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the same over HTTP, server and worker in one process as in `hark serve`, the client in another one.

    From just before the client writes a request on its one connection to the resumed code.
    """
    app = app_on(url)
    async with app, app.worker(), served(app) as port:
        ids = await park(app, n)
        await asyncio.sleep(0.5)
        found = await load(port, [resolve_path(asked[id]) for id in ids], connections=1, pause=PAUSE)
        for id in ids:
            await app.result(id, timeout=30)
    times = [resumed[id] - at for id, at in zip(ids, found["sent"], strict=True)]
    return {"n": n, "median_seconds": statistics.median(times)}


async def latency_apart(url: str, n: int, in_flight: int) -> dict[str, Any]:
    """When idle: the same, answered by another process."""
    app = app_on(url)
    async with app, app.worker():
        ids = await park(app, n)
        await asyncio.sleep(0.5)
        sender = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.answers", "send", url, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        out, _ = await sender.communicate("\n".join(asked[id] for id in ids).encode())
        for id in ids:
            await app.result(id, timeout=30)
    sent = json.loads(out)
    return {"n": n, "median_seconds": statistics.median(resumed[id] - at for id, at in zip(ids, sent, strict=True))}


async def send(url: str, n: int, in_flight: int) -> None:
    """The other process: answer each awakeable on stdin, one at a time, with a pause; print the times."""
    sent = []
    async with app_on(url) as app:
        for id in sys.stdin.read().split():
            await asyncio.sleep(PAUSE)
            sent.append(time.monotonic())
            await app.resolve(id, ANSWER)
    print(json.dumps(sent))


Workload = Callable[[str, int, int], Awaitable[dict[str, Any] | None]]
WORKLOADS: dict[str, tuple[Workload, int]] = {
    "functions": (functions, 3000),
    "replay": (replay, 30),
    "answer": (answer, 2000),
    "answer_replayed": (answer_replayed, 2000),
    "answer_http": (answer_http, 2000),
    "http": (http, 5000),
    "latency": (latency, 100),
    "latency_replayed": (latency_replayed, 100),
    "latency_http": (latency_http, 100),
    "latency_apart": (latency_apart, 100),
    "send": (send, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("url")
    parser.add_argument("--n", type=int)
    parser.add_argument("--in-flight", type=int, default=500, help="for http: the number of connections")
    options = parser.parse_args()
    work, best = WORKLOADS[options.workload]
    found = uvloop.run(work(options.url, options.n or best, options.in_flight))  # type: ignore[arg-type]
    if found is not None:
        line = {"workload": options.workload, "peer": "hark", "version": __version__, **found, "settings": SETTINGS}
        print(json.dumps({**line, "pid": os.getpid()}))


if __name__ == "__main__":
    main()
