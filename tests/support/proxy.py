"""A TCP proxy in front of PostgreSQL that understands just enough of the protocol to cut at a COMMIT, or at a message
with a certain text.

>>> async with Proxy(url) as proxy:
...     app = Hark(proxy.url)
...     proxy.at_commit(cut_after)  # the next COMMIT happens, and its reply is lost
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

_STARTUP = 196608  # protocol 3.0; requests for TLS and for cancelling have other codes


class Line:
    """One client's connection."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.answered = asyncio.Event()  # the server has answered since it was last cleared
        self.mute = False  # the server's replies do not reach the client
        self.ends_at_reply = False  # it is cut instead of passing on the server's next reply
        self.held: Held | None = None  # keeps what the client sends
        self.flowing = asyncio.Event()  # cleared: no data passes, and the connection stays open
        self.flowing.set()

    def cut(self) -> None:
        """Close both ends, as if the cable had been pulled and plugged in again."""
        for end in (self.client, self.server):
            end.transport.abort()


Accident = Callable[[Line, bytes], Awaitable[None]]


async def cut_before(line: Line, commit: bytes) -> None:
    """The COMMIT never reaches the server."""
    line.cut()


async def cut_after(line: Line, commit: bytes) -> None:
    """The server commits; its reply never reaches the client."""
    line.mute = True
    line.answered.clear()
    line.server.write(commit)
    await line.answered.wait()
    line.cut()


async def cut_reply(line: Line, message: bytes) -> None:
    """The server carries out a statement that takes several messages; its reply never reaches the client."""
    line.ends_at_reply = True
    line.server.write(message)


class Delayed:
    """The client is disconnected immediately; the COMMIT is delayed and arrives when the test says so."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def __call__(self, line: Line, commit: bytes) -> None:
        line.mute = True
        line.answered.clear()
        line.client.transport.abort()
        await self.let_go.wait()
        line.server.write(commit)
        await line.answered.wait()
        line.cut()


class Held:
    """A statement of several messages is complete, but late: the client is disconnected, and the server, which still
    has its connection, gets the statement when the test says so."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.arrived = asyncio.Event()
        self._messages: list[bytes] = []

    async def __call__(self, line: Line, message: bytes) -> None:
        line.held = self
        line.mute = True
        await self.take(line, message)

    async def take(self, line: Line, message: bytes) -> None:
        self._messages.append(message)
        if message[:1] == b"S":  # Sync: the last one
            line.client.transport.abort()
            await self.let_go.wait()
            line.server.write(b"".join(self._messages))
            with contextlib.suppress(OSError):
                await line.server.drain()
            self.arrived.set()


class Proxy:
    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._lines: set[Line] = set()
        self._accident: Accident | None = None
        self._text = b""
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()
        self._silent = False
        self.accidents = 0
        self.up = asyncio.Event()  # cleared: new connections are refused
        self.up.set()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return urlunsplit(self._target._replace(netloc=f"{self._target.username}@127.0.0.1:{port}"))

    def at_commit(self, accident: Accident) -> None:
        """Arm: the next COMMIT, and only that one, gets this fault."""
        self.at(b"COMMIT", accident)

    def at(self, text: bytes, accident: Accident) -> None:
        """Arm: the next message of a client that contains this text, and only that one, gets this fault. A statement
        that is prepared already is sent without its own text, but with its parameters."""
        self._text, self._accident = text, accident

    def cut(self) -> None:
        """Cut every connection now."""
        for line in list(self._lines):
            line.cut()

    def go_silent(self, *, new_ones: bool = False) -> None:
        """Every present connection stays open but passes no data; new ones work, or do the same."""
        self._silent = new_ones
        for line in self._lines:
            line.flowing.clear()

    def go_away(self) -> None:
        """As if the server were down: all connections are cut and new ones refused, until `up.set()`."""
        self.up.clear()
        self.cut()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        busy = list(self._busy)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        if not self.up.is_set():
            writer.transport.abort()
            return
        try:
            theirs, ours = await asyncio.open_connection(self._target.hostname, self._target.port)
        except OSError:  # the server is down, so the proxy is too
            writer.transport.abort()
            return
        line = Line(writer, ours)
        if self._silent:
            line.flowing.clear()
        self._lines.add(line)
        back = asyncio.create_task(self._backwards(theirs, line))
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._forwards(reader, line)
        back.cancel()
        await asyncio.gather(back, return_exceptions=True)
        self._lines.discard(line)
        line.cut()

    async def _forwards(self, reader: asyncio.StreamReader, line: Line) -> None:
        code = 0
        while code != _STARTUP:  # these have a length and no type
            head = await reader.readexactly(8)
            code = int.from_bytes(head[4:])
            line.server.write(head + await reader.readexactly(int.from_bytes(head[:4]) - 8))
        while True:
            head = await reader.readexactly(5)
            message = head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
            await line.flowing.wait()
            if line.held is not None:
                await line.held.take(line, message)
            elif self._accident is not None and self._text in message:
                accident, self._accident = self._accident, None
                self.accidents += 1
                await accident(line, message)
            else:
                line.server.write(message)
                await line.server.drain()

    async def _backwards(self, reader: asyncio.StreamReader, line: Line) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await line.flowing.wait()
                line.answered.set()
                if line.ends_at_reply:
                    line.cut()
                    return
                if not line.mute:
                    line.client.write(data)
                    await line.client.drain()
        line.answered.set()
        if line.held is None:
            line.client.transport.abort()
