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

from hark.doors.http.bodies import Receive
from hark.doors.http.feed import PAGE, Stream
from hark.doors.http.read_routes import number
from hark.doors.http.responses import Response, encode, safe
from hark.doors.http.routes import HttpRequest
from hark.model.errors import HarkError, NotFound
from hark.model.values import Event

_log = logging.getLogger("hark.http")
_HEADERS = safe([(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")])


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    after: str | None = None


async def stream(call: HttpRequest) -> Response | None:
    [target] = call.args
    wish: StreamQuery = call.query()
    last = call.text(b"last-event-id") or wish.after
    seq = 0 if last is None else number(last)
    id = (await call.app.get(target)).id
    if last is not None:
        more, over = await call.access.follow({id: seq}, limit=1)
        if over and not more:
            return Response(204, b"", safe([]))
    if call.scope["method"] == "HEAD":
        return Response(200, b"", _HEADERS)
    await call.send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS]})
    gone = asyncio.ensure_future(_gone(call.receive))
    try:
        await _write(call, b"retry: 1000\n\n")
        await _send_all(call, id, seq, gone)
        if not gone.done():
            await call.send({"type": "http.response.body", "body": b""})
    except HarkError as error:  # it has begun, so all that is left is to end it: the client comes back with its place
        _log.warning("A stream of %s ends early: %s", id, error)
        await call.send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await gone
    return None


async def _send_all(call: HttpRequest, id: str, seq: int, gone: asyncio.Future[Any]) -> None:
    """The past page by page, then what happens; who falls behind reads the past again."""
    while not gone.done():
        events, over = await call.access.follow({id: seq}, limit=PAGE)
        if events:
            await _write(call, b"".join(map(_lines, events)))
            seq = events[-1].seq
        if len(events) == PAGE:
            continue
        if over:
            await _write(call, await _end(call, id))
            return
        following = call.house.feed.follow(id, seq)
        try:
            await _send_live(call, following, gone)
        finally:
            call.house.feed.leave(following)
        if following.closed or following.over:
            return
        seq = following.seq


async def _send_live(call: HttpRequest, following: Stream, gone: asyncio.Future[Any]) -> None:
    while not gone.done() and not following.closed:
        if following.events:
            chunk = b"".join(map(_lines, following.events))
            following.events.clear()
            await _write(call, chunk)
        elif following.over:
            await _write(call, await _end(call, following.id))
            return
        elif following.behind:
            return
        elif not await _ready(following, gone, call.house.heartbeat):
            await _write(call, b":\n\n")


async def _ready(following: Stream, gone: asyncio.Future[Any], seconds: float) -> bool:
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


async def _write(call: HttpRequest, chunk: bytes) -> None:
    await call.send({"type": "http.response.body", "body": chunk, "more_body": True})


def _lines(event: Event) -> bytes:
    data = event.data
    if event.type != "stream":
        about = {"instance_id": event.instance_id, "step": event.step, "at": event.at}
        data = {**about, **data} if isinstance(data, dict) else {**about, "data": data}
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.type.encode(), encode(data))


async def _end(call: HttpRequest, id: str) -> bytes:
    try:
        status = (await call.app.get(id)).status
    except NotFound:  # retention took it meanwhile
        status = "gone"
    return b"event: end\ndata: %s\n\n" % encode({"status": status})
