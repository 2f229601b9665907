"""A load generator: `python -m bench.load PORT` posts each request of stdin (path, tab, JSON) and prints one JSON line.

It uses keep-alive connections with one request in flight each, written by hand on asyncio's protocols, because it
must cost far less than the server it loads. It prints its own CPU time, so that a reader can check that. With `--pause`
a connection waits that long before each request, and the times just before each write are printed too: for latencies.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter

import uvloop

END = b"\r\n\r\n"
LENGTH = b"content-length: "


class Client(asyncio.Protocol):
    """One connection: sends the next request when it has the response to the last one."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.buffer = b""
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def send_next(self) -> None:
        """Send now, or after the pause."""
        if self.load.pause:
            asyncio.get_running_loop().call_later(self.load.pause, self.send)
        else:
            self.send()

    def send(self) -> None:
        request = next(self.load.requests, None)
        if request is not None:
            if self.load.pause:
                self.load.sent.append(time.monotonic())
            self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(END)
        if head < 0:
            return
        length = self.buffer.index(LENGTH) + len(LENGTH)
        size = head + len(END) + int(self.buffer[length : self.buffer.index(b"\r", length)])
        if len(self.buffer) >= size:
            self.load.answered(self.buffer[9:12])
            self.buffer = self.buffer[size:]
            self.send_next()

    def connection_lost(self, error: Exception | None) -> None:
        self.load.over(error)


class Load:
    def __init__(self, port: int, lines: list[str], pause: float) -> None:
        head = f" HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\ncontent-length: "
        posts = (line.split("\t", 1) for line in lines)
        self.requests = iter([f"POST {path}{head}{len(body)}\r\n\r\n{body}".encode() for path, body in posts])
        self.pause = pause
        self.sent: list[float] = []
        self.left = len(lines)
        self.statuses: Counter[bytes] = Counter()
        self.done = asyncio.get_running_loop().create_future()

    def answered(self, status: bytes) -> None:
        self.statuses[status] += 1
        self.left -= 1
        if self.left == 0:
            self.over(None)

    def over(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(error)


async def run(port: int, connections: int, lines: list[str], pause: float) -> dict[str, object]:
    load = Load(port, lines, pause)
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(lambda: Client(load), "127.0.0.1", port))[1] for _ in range(connections)]
    began, begin, used = time.monotonic(), time.perf_counter(), time.process_time()
    for client in clients:
        client.send_next()
    await load.done
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    statuses = {status.decode(): count for status, count in load.statuses.items()}
    for client in clients:
        client.transport.close()
    found = {"began": began, "seconds": seconds, "cpu_seconds": used, "statuses": statuses, "unanswered": load.left}
    return {**found, "sent": load.sent} if pause else found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0, help="seconds before each request")
    options = parser.parse_args()
    found = uvloop.run(run(options.port, options.connections, sys.stdin.read().splitlines(), options.pause))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
