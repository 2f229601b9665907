"""`make bench-http`: resolving awakeables over HTTP beside a trivial JSON POST, on the same server; prints ratios.

One server process (uvicorn, no worker), PostgreSQL with fsync on, keep-alive connections from this process. The
trivial POST goes through the same door, is parsed and answered, and commits nothing; the echo is an ASGI function
beside the door that only reads, parses and writes: what uvicorn itself costs. Medians of rounds taken in turns.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.postgres import create_database, postgres  # noqa: E402
from hark import FunctionContext, Hark, workflow  # noqa: E402

BODY = b'{"action":"approve","data":{"key":"value"}}'
TARGET = 1 / 3


@workflow
async def asks(ctx: FunctionContext) -> Any:
    return await (await ctx.awakeable())


async def questions(url: str, number: int) -> list[str]:
    """So many pending awakeables."""
    app = Hark(url)
    app.register(asks)
    async with app:
        async with app.worker({"default": 500}):
            await app.start_many([(asks, None)] * number)
            while len(found := await app.awakeables(status="PENDING", limit=10_000)) < number:
                await asyncio.sleep(0.05)
        return [one.id for one in found]


def serve(url: str) -> None:
    """The server's half, in a process of its own."""
    import msgspec
    import uvloop

    from hark.doors.http import server
    from hark.doors.http.asgi import Door

    app = Hark(url)
    door = Door(app)

    async def beside(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") != "/echo":
            await door(scope, receive, send)
            return
        body = msgspec.json.encode(msgspec.json.decode((await receive())["body"]))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def main() -> None:
        listener = server.listen("127.0.0.1", 0)
        async with app:
            print(listener.getsockname()[1], flush=True)
            await server._Server(server._config(beside)).serve([listener])  # type: ignore[arg-type]

    uvloop.run(main())


async def rate(port: int, paths: Iterable[str], clients: int) -> float:
    """Requests a second, each client one after the other on a connection of its own."""
    left, sent = iter(paths), 0

    async def client() -> None:
        nonlocal sent
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for path in left:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
            writer.write(head.encode() + BODY)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            sent += 1
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return sent / (time.perf_counter() - begin)


async def run(url: str, rounds: int, number: int, clients: int) -> None:
    ids = await questions(url, rounds * number)
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(sys.executable, __file__, "--serve", url, stdout=pipe)
    try:
        assert server.stdout is not None
        port = int(await server.stdout.readline())
        figures: dict[str, list[float]] = {"resolve": [], "trivial": [], "echo": []}
        for n in range(rounds):
            mine = ids[n * number : (n + 1) * number]
            figures["echo"].append(await rate(port, ["/echo"] * number, clients))
            figures["trivial"].append(await rate(port, ["/awakeables/x/reject"] * number, clients))
            figures["resolve"].append(await rate(port, [f"/awakeables/{id}/resolve" for id in mine], clients))
    finally:
        server.kill()
        await server.wait()
    resolve, trivial, echo = (statistics.median(figures[name]) for name in figures)
    mark = "ok  " if resolve / trivial >= TARGET else "MISS"
    print(
        f"{mark} POST resolve, {clients:>3} clients   {resolve / trivial:.2f}× of a trivial POST (≥ {TARGET:.2f}), "
        f"{resolve / echo:.2f}× of an echo   ours {resolve:,.0f}/s against {trivial:,.0f}/s and {echo:,.0f}/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", metavar="URL")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve)
        return
    with postgres() as maintenance:
        for clients in (16, 64, 256):
            asyncio.run(run(create_database(maintenance, f"http_{clients}"), given.rounds, 3000, clients))


if __name__ == "__main__":
    main()
