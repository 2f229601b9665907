"""The handlers that write: start, signal, broadcast, message, resolve, reject, cancel, retry."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from hark.doors.http import parsing
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest
from hark.model.values import Instance


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    definition: str
    input: Any = None
    id: str | None = None
    correlation_key: str | None = None
    correlation_scope: Literal["live", "forever"] = "live"
    step: str | None = None
    queue: str | None = None
    priority: int = 0
    delay: float | None = None
    at: datetime | None = None
    concurrency_key: str | None = None
    rate_limit: str | tuple[str, str] | None = None
    weight: float = 1
    version: int | None = None
    tags: dict[str, str] | None = None


class BroadcastBody(msgspec.Struct, forbid_unknown_fields=True):
    SignalName: str
    Payload: Any = None


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    MessageName: str
    CorrelationKey: str
    Variables: Any = None


class RejectBody(msgspec.Struct, forbid_unknown_fields=True):
    error: str = "rejected"


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    reason: str | None = None
    force: bool = False


class Delivered(msgspec.Struct):
    """What the signal did: woke the instance, was stored for later, or was a duplicate."""

    status: Literal["woke", "stored", "duplicate"]


class Broadcasted(msgspec.Struct):
    """How many subscribers received the broadcast."""

    DeliveredCount: int


class Messaged(msgspec.Struct):
    """The instance that received the message."""

    WorkflowInstanceIds: list[str]
    Delivered: bool = True


class Resolved(msgspec.Struct):
    """The awakeable is resolved."""

    awakeable_id: str
    payload: Any
    success: bool = True
    message: str = "Awakeable resolved successfully"


class Rejected(msgspec.Struct):
    """The awakeable is rejected."""

    awakeable_id: str
    error: str
    success: bool = True
    message: str = "Awakeable rejected successfully"


async def start(request: HttpRequest) -> Response:
    body = await request.body_as(StartBody, parsing.ENVELOPE)
    options = msgspec.structs.asdict(body)
    handle = await request.app.start(options.pop("definition"), options.pop("input"), **options)
    instance: Instance = await handle.get()
    return json_response(instance, 201, [(b"location", f"{request.origin}/instances/{instance.id}".encode("latin-1"))])


async def signal(request: HttpRequest) -> Response:
    target, name = request.args
    payload = await request.json_body()
    delivery = await request.app.signal(target, name, payload, dedup_key=request.header_text(b"idempotency-key"))
    return json_response(Delivered(delivery.status), 202)


async def broadcast(request: HttpRequest) -> Response:
    body = await request.body_as(BroadcastBody, parsing.ENVELOPE)
    key = request.header_text(b"idempotency-key")
    return json_response(Broadcasted(await request.app.broadcast(body.SignalName, body.Payload, dedup_key=key)))


async def message(request: HttpRequest) -> Response:
    body = await request.body_as(MessageBody, parsing.ENVELOPE)
    receiver = await request.app.message(body.MessageName, body.CorrelationKey, body.Variables)
    return json_response(Messaged([receiver.id]))


async def resolve(request: HttpRequest) -> Response:
    [id] = request.args
    payload = await request.json_body()
    await request.access.resolve(id, payload, by=request.caller.name, via="http")
    return json_response(Resolved(id, payload))


async def reject(request: HttpRequest) -> Response:
    [id] = request.args
    body = await request.body_as(RejectBody)
    await request.app.reject(id, body.error, by=request.caller.name, via="http")
    return json_response(Rejected(id, body.error))


async def cancel(request: HttpRequest) -> Response:
    [target] = request.args
    body = await request.body_as(CancelBody)
    return json_response(await request.app.cancel(target, body.reason, force=body.force))


async def retry(request: HttpRequest) -> Response:
    [target] = request.args
    return json_response(await request.app.retry(target))
