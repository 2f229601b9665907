"""The limits of a connection: bytes, headers and time of a request, and how many connections there may be (X4).

uvicorn limits none of these. One object, `Connections`, counts time in ticks of the server, about a second each: a
server that was stalled must not blame its clients for the time. Nothing here is needed for the limit of a body, which
also holds in another server: see parsing.py.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from hark.doors.errors import HeadersTooLarge, MalformedRequest, RequestTooSlow, TooManyConnections, UrlTooLong
from hark.doors.http.responses import error_response
from hark.model.errors import HarkError
from hark.model.log import get_logger

_log = get_logger("hark.http")
_NEVER: Final = 1 << 60  # a tick that does not come
_LINGER: Final = 2  # ticks that a refused client gets to read the refusal
_SPARE: Final = 16  # connections above the limit that get an error; further ones are only closed
_LOG_INTERVAL: Final = 60  # ticks between two warnings about refused connections
_MOST_CONNECTIONS: Final = 10_000
_OTHER_DESCRIPTORS: Final = 100  # for the database, files, pipes of child processes and the connections to spare


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a client: sizes, numbers, and times in seconds."""

    connections: int
    per_client: int
    """Connections from one address; IPv6 addresses count as one if they share their first 64 bits."""
    head_bytes: int = 64 << 10
    """Bytes of the request line and the headers together."""
    headers: int = 100
    url_bytes: int = 8 << 10
    pipelined: int = 32
    """Requests that a client may send before the first is answered."""
    head_time: int = 10
    """From the first byte, or the connect, to the end of the headers."""
    stall_time: int = 30
    """How long a body, or a response that the client does not read, may go on with less than `rate`."""
    rate: int = 1 << 10
    """Bytes per second, averaged over `stall_time`."""
    idle_time: int = 75
    """Between two requests. Longer than the 60 after which common proxies and clients drop an idle connection: if the
    server closed it first (uvicorn's default is 5), a request that is just being sent on it would fail with "Server
    disconnected"."""


def default_connections() -> int:
    """The number of connections that leaves enough descriptors for everything else that the process opens."""
    try:
        import resource
    except ImportError:  # Windows
        return _MOST_CONNECTIONS
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, max(descriptors - _OTHER_DESCRIPTORS, descriptors // 2))


@lru_cache(1024)
def _client_of(address: str) -> str:
    """The client that a connection counts for: its IPv4 address, also on an IPv6 socket, or its IPv6 network."""
    if ":" not in address:
        return address
    ip = ipaddress.IPv6Address(address.partition("%")[0])
    return str(ip.ipv4_mapped or ipaddress.IPv6Network((ip, 64), strict=False))


class Connections:
    """All connections of one server."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.ticks = 0
        self._open: set[LimitedProtocol] = set()
        self._clients: Counter[str] = Counter()
        self._refused = 0
        self._logged_at = -_LOG_INTERVAL

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: LimitedProtocol) -> None:
        """Count a new connection. A connection above a limit gets an error and is closed."""
        limits, client = self.limits, _client_of(connection.client[0] if connection.client else "")
        self._open.add(connection)
        self._clients[client] += 1
        if len(self._open) > limits.connections + _SPARE or self._clients[client] > limits.per_client + _SPARE:
            self._refused += 1
            connection.transport.abort()
        elif len(self._open) > limits.connections or self._clients[client] > limits.per_client:
            self._refused += 1
            connection.refuse(TooManyConnections("This server has as many connections as it can. Try again later."))

    def remove(self, connection: LimitedProtocol) -> None:
        if connection in self._open:
            self._open.discard(connection)
            client = _client_of(connection.client[0] if connection.client else "")
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def tick(self) -> None:
        """Close connections that have taken too long. The server calls this about every second."""
        self.ticks += 1
        for connection in [one for one in self._open if one.next_check <= self.ticks or one.transport.is_closing()]:
            connection.check()
        if self._refused and self.ticks - self._logged_at >= _LOG_INTERVAL:
            _log.warning(
                "Refused %d connections: the limit is %d in total and %d from one address. Raise them with "
                "--max-connections and --max-connections-per-client, and the limit of open files with `ulimit -n`.",
                self._refused, self.limits.connections, self.limits.per_client,
            )  # fmt: skip
            self._refused, self._logged_at = 0, self.ticks


class LimitedProtocol(HttpToolsProtocol):
    """A connection of uvicorn, with limits.

    Between requests and in the head of one, `_in_head` is true. The deadline of the current part of the request, and
    that of a response that the client does not read, are ticks; `next_check` is the earlier one.
    """

    def __init__(self, guard: Connections, **options: Any) -> None:
        super().__init__(**options)
        self._guard = guard
        self._limits = guard.limits
        self._in_head = True
        self._head_bytes = 0
        self._received = 0  # bytes of the body as it was sent, with its chunk sizes and trailers
        self._body_bytes = 0
        self._checked_bytes = 0  # `_received` at the last check
        self._unsent = 0  # bytes of the response that were not sent at the last check
        self._deadline = _NEVER
        self._write_deadline = _NEVER
        self._refusal: HarkError | None = None
        self._refused = False
        self._earlier: list[RequestResponseCycle] = []  # requests before the last one, of a client that does not wait
        self.next_check = _NEVER

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_deadline(self._limits.head_time)
        self._guard.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._guard.remove(self)
        super().connection_lost(exc)
        for cycle in self._earlier:  # uvicorn notifies only the request that was received last
            cycle.disconnected = True
            cycle.message_event.set()

    # -- receiving ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return  # the client is still sending; it will see the refusal when it reads
        if not self._in_head:
            self._body_received(data)
            return
        is_first = not self._head_bytes
        self._head_bytes += len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._head_bytes:
            self._head_is_incomplete(is_first)

    def _head_is_incomplete(self, is_first: bool) -> None:
        if self._refused:
            return
        if is_first:
            self._set_deadline(self._limits.head_time)
        if self._head_bytes > self._limits.head_bytes:
            self.refuse(self._head_too_large())

    def _body_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        # Chunks have a few bytes more than the body in them. Trailers, which follow it, could go on without end.
        around = self._received - self._body_bytes
        too_large = around > self._limits.head_bytes + 8 * self._body_bytes or len(self.headers) > self._limits.headers
        if too_large and not self._in_head:
            self.refuse(self._head_too_large())

    def on_headers_complete(self) -> None:
        limits = self._limits
        if len(self.url) > limits.url_bytes:
            self._refusal = UrlTooLong(f"The URL has more than {limits.url_bytes} bytes. Send a shorter one.")
            raise self._refusal  # stops the parser; it calls `send_400_response`
        if len(self.headers) > limits.headers or self._head_bytes > limits.head_bytes < self._size_of_head():
            self._refusal = self._head_too_large()
            raise self._refusal
        if self.cycle is not None and not self.cycle.response_complete:
            if len(self.pipeline) >= limits.pipelined:
                self._refusal = MalformedRequest("Too many requests came before the first was answered. Send fewer.")
                raise self._refusal
            self._earlier = [cycle for cycle in (*self._earlier, self.cycle) if not cycle.response_complete]
        HttpToolsProtocol.on_headers_complete(self)
        self._in_head = False
        self._head_bytes = self._received = self._body_bytes = self._checked_bytes = 0
        self._set_deadline(limits.stall_time)

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        self._in_head = True
        if self.cycle.response_complete:  # before its request (413)
            self._set_deadline(self._limits.idle_time)
        else:
            self._deadline, self.next_check = _NEVER, self._write_deadline
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """Begin the idle time, unless the next request is here already. Instead of a timer for every response."""
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        if self._in_head and not self._head_bytes:
            self._set_deadline(self._limits.idle_time)

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser does not accept."""
        self.refuse(self._refusal or MalformedRequest(f"{msg} Send a request of HTTP/1.1."))

    def _size_of_head(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_too_large(self) -> HeadersTooLarge:
        limits = self._limits
        return HeadersTooLarge(
            f"The headers have more than {limits.head_bytes} bytes, or there are more than {limits.headers}. Send less."
        )

    # -- sending ------------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_writing()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._write_deadline = _NEVER

    def _watch_writing(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._write_deadline = self._guard.ticks + self._limits.stall_time
        self.next_check = min(self.next_check, self._write_deadline)

    def refuse(self, error: HarkError) -> None:
        """Send this error and close the connection; only close it when another response is due or under way."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self._in_head or cycle.response_started or not all(one.response_complete for one in self._earlier):
                self.transport.abort()
                return
            cycle.disconnected = True  # its handler waits for the rest of the body
            cycle.message_event.set()
        response = error_response(error)
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}".encode()]
        lines += [name + b": " + value for name, value in (*self.server_state.default_headers, *response.headers)]
        lines += [b"content-length: %d" % len(response.body), b"connection: close", b"", response.body]
        self.transport.write(b"\r\n".join(lines))
        # Only this side is closed, and what still comes is dropped: closing a socket with unread data resets the
        # connection, and the client would see that instead of the response.
        self.transport.write_eof()
        self.flow.resume_reading()
        self._set_deadline(_LINGER)

    # -- time ---------------------------------------------------------------------------------------

    def _set_deadline(self, ticks: int) -> None:
        self._deadline = deadline = self._guard.ticks + ticks + 1  # one more: the first tick may come at once
        self.next_check = deadline if deadline < self._write_deadline else self._write_deadline

    def check(self) -> None:
        """Close this connection if it has taken too long."""
        now = self._guard.ticks
        if self.transport.is_closing():
            if self._write_deadline == _NEVER:  # closed, with the last bytes not yet sent
                self._watch_writing()
            self._deadline = _NEVER
        if self._deadline <= now:
            self._expire()
        if self._write_deadline <= now:
            sent = self._unsent - self.transport.get_write_buffer_size()
            if sent < self._limits.rate * self._limits.stall_time:
                self.transport.abort()
            else:
                self._watch_writing()
        self.next_check = min(self._deadline, self._write_deadline)

    def _expire(self) -> None:
        limits = self._limits
        running = self.cycle is not None and not self.cycle.response_complete
        if self._refused:
            self.transport.abort()
        elif self._in_head and running:  # a part of the next request came during a response
            self._set_deadline(limits.head_time)
        elif self._in_head and self._head_bytes:
            self.refuse(RequestTooSlow(f"The headers took more than {limits.head_time} s. Send the request again."))
        elif not running:
            self.transport.close()
        elif self.flow.read_paused or self.cycle.waiting_for_100_continue or self._has_kept_the_rate():
            self._checked_bytes = self._received
            self._set_deadline(limits.stall_time)
        else:
            self.refuse(
                RequestTooSlow(f"Fewer than {limits.rate} bytes of the body came per second. Send the request again.")
            )

    def _has_kept_the_rate(self) -> bool:
        return self._received - self._checked_bytes >= self._limits.rate * self._limits.stall_time
