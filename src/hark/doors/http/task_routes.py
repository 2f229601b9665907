"""The handlers for task workers in other languages: fetch, heartbeat, complete, continue, fail, error, escalate (J11).

A fetch waits until there is a task. If the client closes the connection meanwhile, or the server stops, it gets none:
its claims are handed back at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from hark.doors.http import parsing
from hark.doors.http.long_poll import call_over
from hark.doors.http.parsing import Name, Seconds
from hark.doors.http.responses import Response, json_response
from hark.doors.http.routes import HttpRequest

# The limits are for /openapi.json only: the app checks them, with better messages.
Most = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": 100})]
Lease = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": 3600})]
Delay = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0})]
Handlers = Annotated[list[Name], msgspec.Meta(extra_json_schema={"minItems": 1, "maxItems": 100})]


class FetchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The tasks that a worker takes.

    Attributes:
        worker: A name for people: where the worker runs.
        handlers: The handlers whose tasks it takes.
        max: How many tasks at most.
        lease: Seconds until another worker gets a task that has no heartbeat.
        wait: Seconds to wait for the first task.
    """

    worker: Name
    handlers: Handlers
    max: Most = 1
    lease: Lease = 60.0
    wait: Seconds = 30.0


class HeartbeatBody(msgspec.Struct, forbid_unknown_fields=True):
    """A sign of life of a worker, and what it reports.

    Attributes:
        token: The token of the task.
        checkpoint: A JSON value that the next attempt gets.
        stream: A JSON value for those who follow the job live.
        details: A JSON value that is shown as the progress of the task.
    """

    token: str
    checkpoint: Any | UnsetType = UNSET
    stream: Any | UnsetType = UNSET
    details: Any | UnsetType = UNSET


class CompleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """The output of a task, or of one iteration of a loop.

    Attributes:
        token: The token of the task.
        output: Its output.
    """

    token: str
    output: Any = None


class FailBody(msgspec.Struct, forbid_unknown_fields=True):
    """The failure of an attempt.

    Attributes:
        token: The token of the task.
        error: The reason, for people.
        retry: Whether the retry policy of the task applies; false: no other attempt would help.
        delay: Seconds until the next attempt; without it, what the retry policy says.
    """

    token: str
    error: str
    retry: bool = True
    delay: Delay | None = None


class ErrorBody(msgspec.Struct, forbid_unknown_fields=True):
    """An error that a process may catch by its code. In a job the task fails, without another attempt.

    Attributes:
        token: The token of the task.
        code: The code of the error.
        variables: Variables for the process that catches it; in a job, they are in the history of the task.
        message: A text for people.
    """

    token: str
    code: Name
    variables: dict[str, Any] | None = None
    message: str = ""


class EscalateBody(msgspec.Struct, forbid_unknown_fields=True):
    """An escalation that a process may catch by its code. The task goes on.

    Attributes:
        token: The token of the task.
        code: The code of the escalation.
        variables: Variables for the process that catches it.
    """

    token: str
    code: Name
    variables: dict[str, Any] | None = None


class TaskReported(msgspec.Struct):
    """The report about the task is stored.

    Attributes:
        success: Always true.
    """

    success: bool = True


async def fetch(request: HttpRequest) -> Response:
    body = await request.body_as(FetchBody)
    async with call_over(request) as gone:
        found = await request.access.fetch_tasks(
            body.worker, body.handlers, most=body.max, lease=body.lease, wait=body.wait, gone=gone
        )
    return json_response(found)


async def heartbeat(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(HeartbeatBody, parsing.ENVELOPE)
    tasks = request.access.outside_tasks
    return json_response(
        await tasks.heartbeat(task, body.token, checkpoint=body.checkpoint, stream=body.stream, details=body.details)
    )


async def complete(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(CompleteBody, parsing.ENVELOPE)
    await request.access.outside_tasks.complete(task, body.token, body.output)
    return json_response(TaskReported())


async def continue_(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(CompleteBody, parsing.ENVELOPE)
    await request.access.outside_tasks.continue_(task, body.token, body.output)
    return json_response(TaskReported())


async def fail(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(FailBody, parsing.ENVELOPE)
    await request.access.outside_tasks.fail(task, body.token, body.error, retry=body.retry, delay=body.delay)
    return json_response(TaskReported())


async def error(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(ErrorBody, parsing.ENVELOPE)
    await request.access.outside_tasks.throw(task, body.token, body.code, body.message, body.variables)
    return json_response(TaskReported())


async def escalate(request: HttpRequest) -> Response:
    [task] = request.args
    body = await request.body_as(EscalateBody, parsing.ENVELOPE)
    await request.access.outside_tasks.escalate(task, body.token, body.code, body.variables)
    return json_response(TaskReported())
