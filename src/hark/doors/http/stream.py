"""`GET /instances/{target}/stream`: its events as server-sent events, from the start or after `Last-Event-ID`.

`id` is the seq, `event` the type, `data` the event's own data with its instance, step and time beside it; for
`stream` (what a task put there) the data alone. A comment every fifteen seconds keeps the line open. When the
instance has ended and everything was sent, `event: end` with its status is the last, and the connection is closed;
who comes back then with the id of the last event gets 204, which tells a browser to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import msgspec

from hark.doors.http.feed import PAGE, StreamClient
from hark.doors.http.parsing import Receive
from hark.doors.http.read_routes import cursor_number
from hark.doors.http.responses import Response, encode_json, with_security_headers
from hark.doors.http.routes import HttpRequest
from hark.model.errors import HarkError, NotFound
from hark.model.values import Event

_log = logging.getLogger("hark.http")
_HEADERS = with_security_headers(
    [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
)


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    after: str | None = None


async def stream(request: HttpRequest) -> Response | None:
    [target] = request.args
    wish: StreamQuery = request.query()
    last = request.header_text(b"last-event-id") or wish.after
    seq = 0 if last is None else cursor_number(last)
    id = (await request.app.get(target)).id
    if last is not None:
        more, over = await request.access.follow({id: seq}, limit=1)
        if over and not more:
            return Response(204, b"", with_security_headers([]))
    if request.scope["method"] == "HEAD":
        return Response(200, b"", _HEADERS)
    await request.send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS]})
    gone = asyncio.ensure_future(_gone(request.receive))
    try:
        await _write(request, b"retry: 1000\n\n")
        await _send_all(request, id, seq, gone)
        if not gone.done():
            await request.send({"type": "http.response.body", "body": b""})
    except HarkError as error:  # it has begun, so all that is left is to end it: the client comes back with its place
        _log.warning("A stream of %s ends early: %s", id, error)
        await request.send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
    return None


async def _send_all(request: HttpRequest, id: str, seq: int, gone: asyncio.Future[Any]) -> None:
    """The past page by page, then what happens; who falls behind reads the past again."""
    while not gone.done():
        events, over = await request.access.follow({id: seq}, limit=PAGE)
        if events:
            await _write(request, b"".join(map(_lines, events)))
            seq = events[-1].seq
        if len(events) == PAGE:
            continue
        if over:
            await _write(request, await _end(request, id))
            return
        following = request.server.feed.follow(id, seq)
        try:
            await _send_live(request, following, gone)
        finally:
            request.server.feed.unfollow(following)
        if following.closed or following.over:
            return
        seq = following.seq


async def _send_live(request: HttpRequest, following: StreamClient, gone: asyncio.Future[Any]) -> None:
    while not gone.done() and not following.closed:
        if following.events:
            chunk = b"".join(map(_lines, following.events))
            following.events.clear()
            await _write(request, chunk)
        elif following.over:
            await _write(request, await _end(request, following.id))
            return
        elif following.behind:
            return
        elif not await _ready(following, gone, request.server.heartbeat):
            await _write(request, b":\n\n")


async def _ready(following: StreamClient, gone: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for something to send, or for the client to hang up; False when it is time for a sign of life."""
    following.ready.clear()
    if following.events or following.over or following.behind or following.closed:
        return True
    ready: asyncio.Future[Any] = asyncio.ensure_future(following.ready.wait())
    try:
        done, _ = await asyncio.wait([ready, gone], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    return bool(done)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(request: HttpRequest, chunk: bytes) -> None:
    await request.send({"type": "http.response.body", "body": chunk, "more_body": True})


def _lines(event: Event) -> bytes:
    data = event.data
    if event.type != "stream":
        about = {"instance_id": event.instance_id, "step": event.step, "at": event.at}
        data = {**about, **data} if isinstance(data, dict) else {**about, "data": data}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), encode_json(data))


async def _end(request: HttpRequest, id: str) -> bytes:
    try:
        status = (await request.app.get(id)).status
    except NotFound:  # retention took it meanwhile
        status = "gone"
    return b"event: end\ndata: %s\n\n" % encode_json({"status": status})
