"""`GET /instances/{target}/stream`: the events of an instance as server-sent events, all or after `Last-Event-ID`.

Those of a job include those of its tasks. `id` is the seq of the event, for a job its cursor; `event` is the type,
`data` the event's data with instance, step and time; for events of the type `stream` (chunks from a task) the data
alone. A comment every fifteen seconds keeps the connection open. When the instance has ended and everything was sent,
`event: end` with its status is the last one and the connection is closed. A client that connects again with the id of
the last event gets 204, which tells a browser to stop.

A client that does not read is disconnected, and one whose token was revoked too (open_streams.py). Neither misses an
event: it may connect again with the id of the last one it has.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec

from hark.app.arguments import cursor_number, cursor_of
from hark.doors.http.feed import PAGE, StreamClient
from hark.doors.http.open_streams import OpenStream
from hark.doors.http.parsing import Cursor, Receive
from hark.doors.http.responses import Response, encode_json, with_security_headers
from hark.doors.http.routes import HttpRequest
from hark.model.errors import HarkError, NotFound
from hark.model.log import get_logger
from hark.model.values import Event

_log = get_logger("hark.http")
_CHUNK = 1 << 16  # bytes after which the client has to have read before it gets more
_SEND_TIMEOUT = 60.0  # seconds to read that much
_HEADERS = with_security_headers(
    [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
)


class StreamQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The position at which the stream begins.

    Attributes:
        after: Begin after the event with this id, as `Last-Event-ID` does.
    """

    after: Cursor | None = None


async def stream(request: HttpRequest) -> Response | None:
    [target] = request.args
    query: StreamQuery = request.query()
    last = request.header_text(b"last-event-id") or query.after
    instance = await request.app.get(target)
    id, is_run = instance.id, instance.kind in ("job", "bpmn")
    position = (0, 0) if last is None else _position(last, is_run)
    if last is not None:
        more, _, ended = await _follow(request, id, is_run, position, limit=1)
        if ended and not more:
            return Response(204, b"", with_security_headers([]))
    if request.scope["method"] == "HEAD":
        return Response(200, b"", _HEADERS)
    with request.server.streams.open(request.caller) as opened:
        await request.send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS]})
        disconnected = asyncio.ensure_future(_disconnect(request.receive, opened))
        try:
            try:
                await _write(request, b"retry: 1000\n\n")
                await _send_all(request, id, is_run, position, opened)
            except HarkError as error:  # too late for an error response: close; the client connects again at its seq
                _log.warning("Closed a stream of events of instance %s early: %s", id, error, extra={"instance": id})
            if not disconnected.done():
                await _write(request, b"", more=False)
        except TimeoutError:
            _log.info(
                "Closed a stream of events of instance %s early: its client does not read", id, extra={"instance": id}
            )
        finally:
            disconnected.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await disconnected
    return None


def _position(last: str, is_run: bool) -> tuple[int, int]:
    """The position of an event id: a seq, or the cursor of an event of a run."""
    return cursor_of(last) if is_run else (0, cursor_number(last))


async def _follow(
    request: HttpRequest, id: str, is_run: bool, position: tuple[int, int], limit: int
) -> tuple[list[Event], tuple[int, int], bool]:
    """Read past events after a position. Returns them, the position behind them, and True if there will be no more."""
    if is_run:
        return await request.access.follow_run(id, position, limit=limit)
    events, ended = await request.access.follow({id: position[1]}, limit=limit)
    return events, (0, events[-1].seq) if events else position, bool(ended)


async def _send_all(request: HttpRequest, id: str, is_run: bool, position: tuple[int, int], stream: OpenStream) -> None:
    """Send past events page by page, then new ones; a client that falls behind starts over with past events."""
    while not stream.over.done():
        events, position, ended = await _follow(request, id, is_run, position, PAGE)
        if events:
            await _write_events(request, events, stream, is_run)
        if len(events) == PAGE:
            continue
        if ended:
            await _write(request, await _end(request, id))
            return
        client = request.server.feed.follow(id, position, is_run=is_run)
        try:
            await _send_live(request, client, stream)
        finally:
            request.server.feed.unfollow(client)
        if client.closed or client.ended:
            return
        position = client.position


async def _send_live(request: HttpRequest, client: StreamClient, stream: OpenStream) -> None:
    while not stream.over.done() and not client.closed:
        if client.events:
            events = [*client.events]
            client.events.clear()
            await _write_events(request, events, stream, client.is_run)
        elif client.ended:
            await _write(request, await _end(request, client.id))
            return
        elif client.behind:
            return
        elif not await _ready(client, stream, request.server.heartbeat):
            await _write(request, b":\n\n")


async def _ready(client: StreamClient, stream: OpenStream, seconds: float) -> bool:
    """Wait for events, the end of the server or of the stream; return False after `seconds` without any of them."""
    client.ready.clear()
    if client.events or client.ended or client.behind or client.closed:
        return True
    ready: asyncio.Future[Any] = asyncio.ensure_future(client.ready.wait())
    try:
        done, _ = await asyncio.wait([ready, stream.over], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ready.cancel()
    return bool(done)


async def _disconnect(receive: Receive, stream: OpenStream) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.end()


async def _write_events(request: HttpRequest, events: list[Event], stream: OpenStream, is_run: bool) -> None:
    chunk = bytearray()
    for event in events:
        chunk += _lines(event, is_run)
        if len(chunk) >= _CHUNK:
            await _write(request, bytes(chunk))
            chunk.clear()
            if stream.over.done():
                return
    if chunk:
        await _write(request, bytes(chunk))


async def _write(request: HttpRequest, chunk: bytes, *, more: bool = True) -> None:
    """Send a part of the response; raise TimeoutError when the client has not read the earlier ones for too long."""
    async with asyncio.timeout(_SEND_TIMEOUT):
        await request.send({"type": "http.response.body", "body": chunk, "more_body": more})


def _lines(event: Event, is_run: bool) -> bytes:
    id = f"{event.cursor[0]}.{event.cursor[1]}" if is_run else str(event.seq)
    data = event.data
    if event.type != "stream":
        about = {"instance_id": event.instance_id, "step": event.step, "at": event.at}
        data = {**about, **data} if isinstance(data, dict) else {**about, "data": data}
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), event.type.encode(), encode_json(data))


async def _end(request: HttpRequest, id: str) -> bytes:
    try:
        status = (await request.app.get(id)).status
    except NotFound:  # retention has removed it
        status = "gone"
    return b"event: end\ndata: %s\n\n" % encode_json({"status": status})
