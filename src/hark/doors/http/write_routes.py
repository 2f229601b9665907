"""The handlers that write: start, signal, broadcast, message, resolve, reject, claim, unclaim, cancel, retry."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Literal, assert_never

import msgspec

from hark.doors.http import parsing
from hark.doors.http.parsing import Id, Name
from hark.doors.http.read_routes import view_awakeable
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest, answer_with
from hark.model.errors import HarkError, InvalidInput, MalformedJson
from hark.model.schema import example_answers, like_an_answer
from hark.model.values import Instance

# The limits are for /openapi.json only, as those of a name are.
Priority = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": -(2**31), "maximum": 2**31 - 1})]
Version = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 2**31 - 1})]
Delay = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0})]


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """The instance to start, with its options.

    Attributes:
        definition: The name of the definition.
        input: Its input: the state of a machine, the arguments of a function.
        id: The id of the instance; by default a new one is made.
        correlation_key: Its business name, unique among live instances.
        correlation_scope: Whether the key is free again when the instance has ended ("live"), or never ("forever").
        step: The step of a machine to begin with; by default its first.
        queue: The queue to run in; by default that of the definition.
        priority: A lower number runs first.
        delay: Seconds to wait before the first step.
        at: When to run the first step, instead of a delay.
        concurrency_key: At most so many instances with this key run at a time.
        rate_limit: The name of a rate limit, or the name and a partition of it.
        weight: How many tokens of the rate limit it takes.
        version: The version of the definition; by default the newest that a worker has.
        tags: Names and values to find it by.
    """

    definition: Name
    input: Any = None
    id: Id | None = None
    correlation_key: Name | None = None
    correlation_scope: Literal["live", "forever"] = "live"
    step: Name | None = None
    queue: Name | None = None
    priority: Priority = 0
    delay: Delay | None = None
    at: datetime | None = None
    concurrency_key: Name | None = None
    rate_limit: Name | tuple[Name, Name] | None = None
    weight: float = 1
    version: Version | None = None
    tags: dict[str, str] | None = None


class BroadcastBody(msgspec.Struct, forbid_unknown_fields=True):
    """A broadcast.

    Attributes:
        SignalName: The name that instances wait for.
        Payload: The JSON value that it carries.
    """

    SignalName: Name
    Payload: Any = None


class BroadcastCamelBody(msgspec.Struct, forbid_unknown_fields=True):
    """A broadcast, in camel case.

    Attributes:
        signalName: The name that instances wait for.
        payload: The JSON value that it carries.
    """

    signalName: Name
    payload: Any = None


class MessageBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to one instance.

    Attributes:
        MessageName: The name that the instance waits for.
        CorrelationKey: The correlation key of the wait.
        Variables: The JSON value that it carries.
        ttl: Seconds for which it is kept if there is no receiver; 0: it is not kept.
    """

    MessageName: Name
    CorrelationKey: Name
    Variables: Any = None
    ttl: Delay = 0


class MessageCamelBody(msgspec.Struct, forbid_unknown_fields=True):
    """A message to one instance, in camel case.

    Attributes:
        messageName: The name that the instance waits for.
        correlationKey: The correlation key of the wait.
        variables: The JSON value that it carries.
        ttl: Seconds for which it is kept if there is no receiver; 0: it is not kept.
    """

    messageName: Name
    correlationKey: Name
    variables: Any = None
    ttl: Delay = 0


class RejectBody(msgspec.Struct, forbid_unknown_fields=True):
    """The rejection of an awakeable.

    Attributes:
        error: The reason, for the code that waits for the answer.
    """

    error: str = "rejected"


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """The claim of an awakeable.

    Attributes:
        by: The name of the person; by default that of the token.
    """

    by: Name | None = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """The options of a cancel.

    Attributes:
        reason: The reason, for people.
        force: Whether to skip the undo of the instance.
    """

    reason: str | None = None
    force: bool = False


class Delivered(msgspec.Struct):
    """The effect of a signal.

    Attributes:
        status: "woke" (the instance waited for it), "stored" (it is kept for later) or "duplicate" (its key was already
            used, and nothing was stored).
    """

    status: Literal["woke", "stored", "duplicate"]


class Broadcasted(msgspec.Struct):
    """The result of a broadcast.

    Attributes:
        DeliveredCount: The number of instances that it reached, and of those that it started.
    """

    DeliveredCount: int


class Messaged(msgspec.Struct):
    """The instance that received a message, or was started by it.

    Attributes:
        WorkflowInstanceIds: The id of the instance; empty while the message is kept.
        Delivered: False while the message is kept for a receiver. Without `ttl`, no receiver is a 404.
    """

    WorkflowInstanceIds: list[str]
    Delivered: bool = True


class Resolved(msgspec.Struct):
    """The awakeable is resolved.

    Attributes:
        awakeable_id: The id of the awakeable.
        payload: The answer.
        success: Always true.
        message: A sentence for people.
    """

    awakeable_id: str
    payload: Any
    success: bool = True
    message: str = "Awakeable resolved successfully"


class Rejected(msgspec.Struct):
    """The awakeable is rejected.

    Attributes:
        awakeable_id: The id of the awakeable.
        error: The reason.
        success: Always true.
        message: A sentence for people.
    """

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
    match await request.body_as_either(BroadcastBody, BroadcastCamelBody, parsing.ENVELOPE):
        case BroadcastBody(SignalName=name, Payload=payload) | BroadcastCamelBody(signalName=name, payload=payload):
            key = request.header_text(b"idempotency-key")
            return json_response(Broadcasted(await request.app.broadcast(name, payload, dedup_key=key)))
        case _ as never:
            assert_never(never)


async def message(request: HttpRequest) -> Response:
    match await request.body_as_either(MessageBody, MessageCamelBody, parsing.ENVELOPE):
        case (
            MessageBody(MessageName=name, CorrelationKey=key, Variables=variables, ttl=ttl)
            | MessageCamelBody(messageName=name, correlationKey=key, variables=variables, ttl=ttl)
        ):
            once = request.header_text(b"idempotency-key")
            receiver = await request.app.message(name, key, variables, ttl=ttl, dedup_key=once)
        case _ as never:
            assert_never(never)
    return json_response(Messaged([], Delivered=False) if receiver is None else Messaged([receiver.id]))


async def resolve(request: HttpRequest) -> Response:
    [id] = request.args
    payload = await answer_body(request, id)
    await request.app.resolve(id, payload, by=request.caller.name, via="http")
    return json_response(Resolved(id, payload))


async def answer_body(request: HttpRequest, id: str) -> Any:
    """Parse the body as the answer of an awakeable. If it is not JSON, such as the plain text `approved`, the error
    shows what a right answer looks like."""
    try:
        return await request.json_body()
    except MalformedJson as error:
        like = ""
        with suppress(HarkError):
            schema = (await request.app.awakeable(id)).schema
            like = "" if schema is None else f".{like_an_answer(example_answers(schema))}"
        raise MalformedJson(f"{error}{like}", line=error.line, column=error.column) from None


async def reject(request: HttpRequest) -> Response:
    [id] = request.args
    body = await request.body_as(RejectBody)
    await request.app.reject(id, body.error, by=request.caller.name, via="http")
    return json_response(Rejected(id, body.error))


async def claim(request: HttpRequest) -> Response:
    [id] = request.args
    body = await request.body_as(ClaimBody)
    by = body.by or request.caller.name
    if by is None:
        raise InvalidInput("`by` is missing: send the name of the person who claims it.")
    return json_response(view_awakeable(request, await request.app.claim(id, by, via="http")))


async def unclaim(request: HttpRequest) -> Response:
    [id] = request.args
    return json_response(view_awakeable(request, await request.app.unclaim(id, via="http")))


async def cancel(request: HttpRequest) -> Response:
    [target] = request.args
    body = await request.body_as(CancelBody)
    return json_response(await request.app.cancel(target, body.reason, force=body.force))


retry = answer_with(lambda request, target: request.app.retry(target))
