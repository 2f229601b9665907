"""The handlers that change something: start, signal, broadcast, answer, cancel, retry."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from hark.doors.http.responses import Response, as_json
from hark.doors.http.routes import HttpRequest
from hark.model.values import Instance

ENVELOPE = 1 << 16  # bytes around a payload: the other fields of a body


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


class Delivered(msgspec.Struct):
    status: Literal["woke", "stored", "duplicate"]


class Broadcasted(msgspec.Struct):
    DeliveredCount: int


class Messaged(msgspec.Struct):
    WorkflowInstanceIds: list[str]
    Delivered: bool = True


class Resolved(msgspec.Struct):
    awakeable_id: str
    payload: Any
    success: bool = True
    message: str = "Awakeable resolved successfully"


class Rejected(msgspec.Struct):
    awakeable_id: str
    error: str
    success: bool = True
    message: str = "Awakeable rejected successfully"


async def start(call: HttpRequest) -> Response:
    wish = await call.wish(StartBody, ENVELOPE)
    options = msgspec.structs.asdict(wish)
    handle = await call.app.start(options.pop("definition"), options.pop("input"), **options)
    instance: Instance = await handle.get()
    return as_json(instance, 201, [(b"location", f"{call.origin}/instances/{instance.id}".encode("latin-1"))])


async def signal(call: HttpRequest) -> Response:
    target, name = call.args
    payload = await call.body()
    delivery = await call.app.signal(target, name, payload, dedup_key=call.text(b"idempotency-key"))
    return as_json(Delivered(delivery.status), 202)


async def broadcast(call: HttpRequest) -> Response:
    wish = await call.wish(BroadcastBody, ENVELOPE)
    key = call.text(b"idempotency-key")
    return as_json(Broadcasted(await call.app.broadcast(wish.SignalName, wish.Payload, dedup_key=key)))


async def message(call: HttpRequest) -> Response:
    wish = await call.wish(MessageBody, ENVELOPE)
    receiver = await call.app.message(wish.MessageName, wish.CorrelationKey, wish.Variables)
    return as_json(Messaged([receiver.id]))


async def resolve(call: HttpRequest) -> Response:
    [id] = call.args
    payload = await call.body()
    await call.app.resolve(id, payload, by=call.caller.name, via="http")
    return as_json(Resolved(id, payload))


async def reject(call: HttpRequest) -> Response:
    [id] = call.args
    wish = await call.wish(RejectBody)
    await call.app.reject(id, wish.error, by=call.caller.name, via="http")
    return as_json(Rejected(id, wish.error))


async def cancel(call: HttpRequest) -> Response:
    [target] = call.args
    wish = await call.wish(CancelBody)
    return as_json(await call.app.cancel(target, wish.reason))


async def retry(call: HttpRequest) -> Response:
    [target] = call.args
    return as_json(await call.app.retry(target))
