"""X4: the server limits what a client may send, how long it may take, and how many connections there may be.

Time is counted in ticks of the server. The limits of these tests are so high that only ticks made by hand reach them.
"""

import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hark import Hark
from hark.doors.http import connections, server
from hark.doors.http.asgi import AsgiApp
from hark.doors.http.connections import ConnectionLimits, Connections
from hark.model.errors import InvalidInput
from tests.support.http import Order, serving
from tests.support.inspect import until

TICKS = 100_000  # of the server itself they would take a day
LIMITS = ConnectionLimits(connections=100, per_client=100, head_time=TICKS, stall_time=TICKS, idle_time=TICKS, rate=0)
OK = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Served:
    """A server, its connections, and raw sockets to it."""

    def __init__(self, app: Hark) -> None:
        self.app = app
        self.port = 0
        self.connections: Connections
        self.asgi: AsgiApp
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, *, window: int | None = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        sock.setblocking(False)
        if window is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=window or 1 << 16)
        self._writers.append(writer)
        return reader, writer

    async def send(self, *parts: bytes) -> tuple[int, dict[str, str], Any]:
        """Send a request and return its response, which has to close the connection."""
        reader, writer = await self.connect()
        for part in parts:
            writer.write(part)
            await writer.drain()
        return parsed(await reader.read())

    def ticks(self, number: int = TICKS + 2) -> None:
        for _ in range(number):
            self.connections.tick()

    async def arrived(self, number: int) -> None:
        await until(lambda: len(self.connections) == number, f"{number} connections")


def parsed(response: bytes) -> tuple[int, dict[str, str], Any]:
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.fixture
def limits() -> ConnectionLimits:
    return LIMITS


@pytest.fixture
async def served(limits: ConnectionLimits, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    app = Hark("sqlite://", max_payload=4 << 20)
    app.register(Order)
    found = Served(app)

    def noted(_: ConnectionLimits) -> Connections:
        found.connections = Connections(limits)
        return found.connections

    made = AsgiApp.__init__

    def noted_application(self: AsgiApp, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        found.asgi = self

    monkeypatch.setattr(server, "Connections", noted)
    monkeypatch.setattr(AsgiApp, "__init__", noted_application)
    async with app, serving(app) as client:
        found.port = client.base_url.port or 0
        yield found
        for writer in found._writers:
            writer.close()


async def test_x4_one_header_without_end_is_refused(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
    for _ in range(64):  # four megabytes, if the server took them
        writer.write(b"x" * (1 << 16))
        await asyncio.sleep(0)
        if reader._buffer:
            break
    status, headers, body = parsed(await reader.read())
    assert (status, body["type"], headers["connection"]) == (431, "HeadersTooLarge", "close")


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"H-%d: 1\r\n" % n for n in range(100)),
        b"".join(b"H-%d: %s\r\n" % (n, b"x" * 1000) for n in range(90)),
        b"X: " + b"x" * (70 << 10) + b"\r\n",
    ],
    ids=["count", "bytes of many", "bytes of one"],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_x4_too_many_or_too_large_headers_are_refused(served: Served, head: bytes, at_once: bool) -> None:
    request = OK[:-2] + head + b"\r\n"
    middle = len(request) - 1
    status, _, body = await served.send(*([request] if at_once else [request[:middle], request[middle:]]))
    assert (status, body["type"]) == (431, "HeadersTooLarge")


async def test_x4_headers_below_the_limits_are_accepted_with_a_large_body(served: Served) -> None:
    body = json.dumps("x" * (1 << 20)).encode()
    head = OK.replace(b"GET /health", b"POST /instances/x/signals/y")[:-2]
    head += b"".join(b"H-%d: %s\r\n" % (n, b"x" * 500) for n in range(90))
    head += b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    status, _, error = await served.send(head + body)
    assert (status, error["type"]) == (404, "NoTarget")


async def test_x4_a_long_url_is_refused(served: Served) -> None:
    status, _, body = await served.send(OK.replace(b"/health", b"/" + b"x" * 9000))
    assert (status, body["type"]) == (414, "UrlTooLong")


@pytest.mark.parametrize("sent", [b"\x16\x03\x01 nonsense\r\n\r\n", b"CONNECT other.example:443 HTTP/1.1\r\n\r\n"])
async def test_x4_what_is_not_http_gets_a_typed_error(served: Served, sent: bytes) -> None:
    status, _, body = await served.send(sent)
    assert (status, body["type"]) == (400, "MalformedRequest")


async def test_x4_an_upgrade_is_ignored(served: Served) -> None:
    status, _, body = await served.send(OK[:-2] + b"Upgrade: h2c\r\nConnection: upgrade, close\r\n\r\n")
    assert (status, body["status"]) == (200, "ok")


async def test_x4_requests_without_waiting_for_responses_are_answered_in_order_up_to_a_limit(served: Served) -> None:
    reader, writer = await served.connect()
    writer.write(OK * 30)
    for _ in range(30):
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    writer.write(OK * 100)
    seen = b""
    with contextlib.suppress(ConnectionError):
        seen = await reader.read()
    assert seen.count(b"HTTP/1.1") < 100
    await served.arrived(0)


@pytest.mark.parametrize("trailer", [b"X: " + b"x" * (1 << 20), b"A: b\r\n" * 1000], ids=["one", "many"])
async def test_x4_trailers_without_end_are_refused(served: Served, trailer: bytes) -> None:
    head = OK.replace(b"GET /health", b"POST /signal")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    reader, writer = await served.connect()
    writer.write(head)
    await until(lambda: served.connections._open and not next(iter(served.connections._open))._in_head, "the headers")
    writer.write(b'1d\r\n{"SignalName": "market-open"}\r\n0\r\n' + trailer)
    status, _, body = parsed(await reader.read())
    assert (status, body["type"]) == (431, "HeadersTooLarge")


async def test_x4_a_connection_that_sends_nothing_is_closed(served: Served) -> None:
    reader, _ = await served.connect()
    await served.arrived(1)
    served.ticks(TICKS)
    assert not reader.at_eof()
    served.ticks(2)
    assert await reader.read() == b""
    await served.arrived(0)


async def test_x4_headers_that_take_too_long_are_refused(served: Served) -> None:
    reader, writer = await served.connect()
    await served.arrived(1)
    [connection] = served.connections._open
    writer.write(b"GET /health HT")
    await until(lambda: connection._head_bytes == 14, "the first bytes")
    writer.write(b"TP/1.1\r\nHost: local")
    await until(lambda: connection._head_bytes == 33, "more bytes, which give it no more time")
    served.ticks()
    status, headers, body = parsed(await reader.read())
    assert (status, body["type"], headers["connection"]) == (408, "RequestTooSlow", "close")
    served.ticks(4)
    await served.arrived(0)


@pytest.mark.parametrize("limits", [replace(LIMITS, rate=1, stall_time=100)])
@pytest.mark.parametrize("keeps_it", [True, False])
async def test_x4_a_body_has_to_keep_a_rate(served: Served, keeps_it: bool) -> None:
    body = json.dumps({"definition": "Order", "input": {"text": "x" * 1000}}).encode()
    reader, writer = await served.connect()
    await served.arrived(1)
    [connection] = served.connections._open
    writer.write(OK.replace(b"GET /health", b"POST /instances")[:-2] + b"Content-Length: %d\r\n\r\n" % len(body))
    await until(lambda: not connection._in_head, "the headers")
    for sent in (200, 400):
        writer.write(body[sent - 200 : sent])
        await until(lambda sent=sent: connection._received == sent, "a part")  # type: ignore[misc]
        served.ticks(102)
    if keeps_it:
        writer.write(body[400:])
        assert (await reader.readline()).split()[1] == b"201"
    else:
        served.ticks(102)
        status, _, error = parsed(await reader.read())
        assert (status, error["type"]) == (408, "RequestTooSlow")


async def test_x4_a_client_that_waits_until_it_may_send_its_body_is_not_too_slow(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()
    authenticate = served.asgi._authenticate

    async def slow(scope: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await authenticate(scope)

    monkeypatch.setattr(served.asgi, "_authenticate", slow)
    body = b'{"definition": "Order"}'
    head = OK.replace(b"GET /health", b"POST /instances")[:-2] + b"Content-Length: %d\r\n" % len(body)
    reader, writer = await served.connect()
    writer.write(head + b"Expect: 100-continue\r\n\r\n")
    await asked.wait()
    [connection] = served.connections._open
    connection._limits = replace(LIMITS, rate=1)
    served.ticks()
    go_on.set()
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    writer.write(body)
    assert (await reader.readline()).split()[1] == b"201"


async def test_x4_the_rest_of_a_refused_body_is_not_awaited_without_end(served: Served) -> None:
    reader, writer = await served.connect()
    head = OK.replace(b"GET /health", b"POST /instances")[:-2] + b"Content-Length: 1000000000\r\n\r\n"
    writer.write(head + b"[")
    assert (await reader.readline()).split()[1] == b"413"
    writer.write(b" " * 1000)
    [connection] = served.connections._open
    await until(lambda: connection._received, "the rest of the body")
    served.ticks()
    await reader.read()
    await served.arrived(0)


async def test_x4_a_request_that_is_being_answered_has_no_deadline(served: Served) -> None:
    await served.app.start("Order", id="o-1")
    reader, writer = await served.connect()
    writer.write(OK.replace(b"/health", b"/instances/o-1/stream"))
    assert (await reader.readline()).split()[1] == b"200"
    writer.write(b"GET ")  # a part of the next request
    [connection] = served.connections._open
    await until(lambda: connection._head_bytes == 4, "the part")
    served.ticks(3 * TICKS)
    await served.app.signal("o-1", "paid")
    await reader.readuntil(b"event: end")


async def test_x4_the_refusal_of_a_request_is_not_sent_as_the_answer_to_the_one_before(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, never = asyncio.Event(), asyncio.Event()

    async def get(_: str) -> Any:
        asked.set()
        await never.wait()

    monkeypatch.setattr(served.app, "get", get)
    reader, writer = await served.connect()
    writer.write(OK.replace(b"/health", b"/instances/o-1"))
    await asked.wait()
    writer.write(b"GET /health HTTP/1.1\r\nX: " + b"x" * (100 << 10))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    await served.arrived(0)
    never.set()


@pytest.mark.parametrize("limits", [replace(LIMITS, head_time=100)])
async def test_x4_a_connection_is_closed_after_the_idle_time(served: Served) -> None:
    reader, writer = await served.connect()
    for _ in range(3):
        writer.write(OK)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"}")
        served.ticks(TICKS)  # longer than the time for headers
    served.ticks(2)
    assert await reader.read() == b""
    await served.arrived(0)


async def test_x4_a_client_that_does_not_read_its_responses_is_disconnected(served: Served) -> None:
    await served.app.start("Order", {"text": "x" * (1 << 20)}, id="o-1")
    _, writer = await served.connect(window=4096)
    writer.write(OK.replace(b"/health", b"/instances/o-1") * 20)
    await served.arrived(1)
    [connection] = served.connections._open
    await until(lambda: connection.flow.write_paused, "the buffer to be full")
    served.connections.limits = connection._limits = replace(LIMITS, rate=1)
    served.ticks()
    await served.arrived(0)


async def test_x4_a_client_that_reads_slowly_gets_its_response(served: Served) -> None:
    await served.app.start("Order", {"text": "x" * (3 << 20)}, id="o-1")
    reader, writer = await served.connect(window=4096)
    await served.arrived(1)
    [connection] = served.connections._open
    connection._limits = replace(LIMITS, rate=1, stall_time=1000)
    writer.write(OK.replace(b"/health", b"/instances/o-1"))
    await until(lambda: connection.flow.write_paused, "the buffer to be full")
    while connection.flow.write_paused:
        unsent = connection.transport.get_write_buffer_size()
        while connection.flow.write_paused and unsent - connection.transport.get_write_buffer_size() < 1000:
            assert await reader.read(1 << 16)
        served.ticks(1000)
    assert len(served.connections) == 1


async def test_x4_a_closed_connection_whose_last_bytes_are_not_read_is_aborted(served: Served) -> None:
    """Fewer bytes than make uvicorn wait, but enough to keep the descriptor for ever."""
    reader, writer = await served.connect()
    writer.write(OK)
    await reader.readuntil(b"}")
    [connection] = served.connections._open
    transport = Unsent()
    connection.transport = transport
    transport.close()
    served.ticks()
    assert not transport.aborted
    connection._limits = replace(LIMITS, rate=1)
    served.ticks()
    assert transport.aborted


class Unsent(asyncio.Transport):
    """A transport whose client does not read the last bytes."""

    aborted = closing = False

    def close(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 10

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize(
    "limits",
    [replace(LIMITS, connections=3), replace(LIMITS, per_client=3)],
    ids=["in total", "from one address"],
)
async def test_x4_connections_above_the_limit_are_told_so(
    served: Served, limits: ConnectionLimits, caplog: pytest.LogCaptureFixture
) -> None:
    kept = [await served.connect() for _ in range(3)]
    await served.arrived(3)
    for _ in range(2):
        status, headers, body = await served.send(OK)
        assert (status, body["type"], headers["retry-after"]) == (503, "TooManyConnections", "5")
    served.ticks(4)
    assert len([one for one in caplog.records if "Refused 2 connections" in one.message]) == 1
    kept[0][1].close()
    await served.arrived(2)
    reader, writer = await served.connect()
    writer.write(OK)
    assert (await reader.readline()).split()[1] == b"200"


@pytest.mark.parametrize("limits", [replace(LIMITS, connections=3)])
async def test_x4_a_flood_of_connections_is_closed_without_an_answer(served: Served) -> None:
    opened = [await served.connect() for _ in range(60)]
    await until(lambda: sum(reader.at_eof() for reader, _ in opened) >= 60 - 3 - connections._SPARE, "the closing")
    assert len(served.connections) <= 3 + connections._SPARE


async def test_x4_a_client_that_does_not_wait_and_disconnects_leaves_no_stream_behind(served: Served) -> None:
    await served.app.start("Order", id="o-1")
    reader, writer = await served.connect()
    writer.write(OK.replace(b"/health", b"/instances/o-1/stream") + OK)
    assert (await reader.readline()).split()[1] == b"200"
    await until(lambda: served.asgi.feed._clients, "the stream")
    [connection] = served.connections._open
    connection.transport.abort()
    await until(lambda: not served.asgi.feed._clients, "the stream to be dropped")


@pytest.mark.parametrize(
    ("descriptors", "expected"), [(200, 100), (256, 156), (1024, 924), (100_000, 10_000), (-1, 10_000), (50, 25)]
)
def test_x4_connections_leave_descriptors_for_the_database(
    monkeypatch: pytest.MonkeyPatch, descriptors: int, expected: int
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    found = server.limits(None, None)
    assert (found.connections, found.per_client) == (expected, expected // 2)


def test_x4_addresses_of_one_ipv6_network_are_one_client() -> None:
    assert connections._client_of("2001:db8::1") == connections._client_of("2001:db8::ffff:1")
    assert connections._client_of("2001:db8::1") != connections._client_of("2001:db8:0:1::1")
    assert connections._client_of("fe80::1%eth0") == connections._client_of("fe80::2")
    assert connections._client_of("10.0.0.1") != connections._client_of("10.0.0.2")
    assert connections._client_of("::ffff:10.0.0.1") == connections._client_of("10.0.0.1")


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "7"])
async def test_x4_the_numbers_of_connections_are_checked(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="max_connections="):
        await Hark("sqlite://").serve(port=0, max_connections=bad)
    with pytest.raises(InvalidInput, match="max_connections_per_client="):
        await Hark("sqlite://").serve(port=0, max_connections_per_client=bad)


@pytest.mark.slow
async def test_x4_more_silent_connections_than_descriptors_do_not_shut_the_server(tmp_path: Path) -> None:
    code = "import resource, hark.doors.cli as cli; resource.setrlimit(resource.RLIMIT_NOFILE, (200,) * 2); cli.main()"
    command = [sys.executable, "-c", code, "--db", f"sqlite:///{tmp_path / 'hark.db'}", "serve", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    silent: list[socket.socket] = []
    try:
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[2].rstrip(b";").rpartition(b":")[2])
        for n in range(260):
            silent.append(socket.create_connection(("127.0.0.1", port)))
            if n % 2:
                with contextlib.suppress(ConnectionError):  # closed by the server: that is the point
                    silent[-1].send(OK[:-2])
        await until(lambda: _is_healthy(port), "the server to respond", 100)
        assert process.returncode is None
    finally:
        process.terminate()
        assert await process.wait() == 0
        for sock in silent:
            sock.close()


@pytest.mark.slow
async def test_x4_a_burst_of_connections_does_not_take_all_descriptors(tmp_path: Path) -> None:
    code = f"""
import asyncio, resource
from hark import Hark
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
asyncio.run(Hark("sqlite:///{tmp_path / "hark.db"}").serve(port=0))
"""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=pipe, stderr=pipe)
    silent: list[socket.socket] = []
    try:
        assert process.stdout is not None
        port = int((await process.stdout.readline()).split()[2].rstrip(b";").rpartition(b":")[2])
        process.send_signal(signal.SIGSTOP)  # all of them wait when it continues
        silent += [socket.create_connection(("127.0.0.1", port)) for _ in range(400)]
        process.send_signal(signal.SIGCONT)
        await until(lambda: _is_healthy(port), "the server to respond", 100)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        _, errors = await process.communicate()
        for sock in silent:
            sock.close()
    assert b"out of system resource" not in errors


async def _is_healthy(port: int) -> bool:
    try:
        async with httpx.AsyncClient() as http:
            return (await http.get(f"http://127.0.0.1:{port}/health")).status_code == 200
    except httpx.TransportError:
        return False
