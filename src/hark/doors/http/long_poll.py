"""Notice that a request has to end: its client has closed the connection, or the server stops."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from hark.doors.http.parsing import Receive
from hark.doors.http.routes import HttpRequest


@contextlib.asynccontextmanager
async def call_over(request: HttpRequest) -> AsyncIterator[asyncio.Future[None]]:
    """Give a future that is done when the client is gone or the server stops.

    The body must have been read: what the client sends from here on is dropped.
    """
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end() -> None:
        if not gone.done():
            gone.set_result(None)

    watching = asyncio.ensure_future(_disconnect(request.receive, end))
    try:
        with request.server.feed.ending(end):
            yield gone
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching


async def _disconnect(receive: Receive, end: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    end()
