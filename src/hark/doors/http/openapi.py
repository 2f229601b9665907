"""Generate /openapi.json, OpenAPI 3.1, from the table of routes, their types and the docstrings of the types."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from hark.doors.http import schemas
from hark.doors.http.examples import ARGUMENTS, BODIES, ERRORS, HEADERS, RESPONSES
from hark.doors.http.responses import STATUSES, Response, json_response
from hark.doors.http.routes import HttpRequest, Route
from hark.model.names import NAME_BYTES

_TAGS = {
    "Instances": "Start, read, cancel and retry instances.",
    "Signals": "Send signals, broadcasts and messages.",
    "Schedules": "Start instances at given times.",
    "Awakeables": "Questions to the outside world: list, claim, answer and reject them.",
    "Definitions": "Deploy jobs and processes, and list what can be started.",
    "Events": "What happened, and what instances wait for.",
    "Links": "The page behind the link of an awakeable. The link is the credential.",
    "Tasks": "Task workers in other languages: fetch a task, keep it with heartbeats, report what became of it.",
    "Server": "The condition of the server and its workers.",
}
_DESCRIPTION = (
    "Durable workflows that wait for the outside world. Every error is an `Error`. Any request may also get 408, 414 "
    "or 431 when it is too slow, or when its URL or headers are too large, and 500 after a bug."
)
# YAML and XML are not in `content`: generators of clients leave out an operation that has a type they do not know.
_ANY_BODY = {
    "deployDefinition": "The job as JSON; or as YAML, with the content type application/yaml; or a BPMN file, with the "
    "content type application/xml.",
    "setVariables": "An object: the new value of each variable, by its name. The others stay as they are.",
}
_NAME = {"type": "string", "minLength": 1, "maxLength": NAME_BYTES}
_TIME = {"type": "string", "format": "date-time"}
_ERROR = {
    "type": "object",
    "required": ["error", "type"],
    "description": "An error, with the data that its type has.",
    "properties": {
        "error": {"type": "string", "description": "What went wrong and what to do, for people."},
        "type": {"type": "string", "description": "The class of the error, for programs. New ones may be added."},
        "holder": {"type": "string", "description": "Duplicate: the instance that has the id or the key."},
        "status": {"type": "string", "description": "Conflict, AlreadyClaimed, AlreadySettled: the present status."},
        "by": {
            "type": ["string", "null"],
            "description": "AlreadySettled: the name of the answerer. AlreadyClaimed: the person who has claimed it.",
        },
        "at": {"anyOf": [_TIME, {"type": "null"}], "description": "AlreadySettled: when it was settled."},
        "target": {"type": "string", "description": "NoTarget: the target or the correlation key of the request."},
        "problems": {
            "type": "array", "items": {},
            "description": "InvalidAnswer, NotAssigned, InvalidDefinition: one entry each.",
        },
        "examples": {"type": "array", "items": {}, "description": "InvalidAnswer: right answers, to copy."},
        "size": {"type": "integer", "description": "PayloadTooLarge: the bytes that were sent, or that it would be."},
        "limit": {"type": "integer", "description": "PayloadTooLarge: the bytes that a payload may have."},
        "line": {"type": ["integer", "null"], "description": "MalformedJson: the line, from 1."},
        "column": {"type": ["integer", "null"], "description": "MalformedJson: the column, from 1."},
        "allow": {"type": "string", "description": "NoMethod: the methods that the path has."},
    },
    "examples": [*ERRORS.values()],
}  # fmt: skip


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    bodies = [body for route in routes for body in route.bodies]
    responses = [shape for route in routes for shape in route.responses.values() if _is_shape(shape)]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hark", "version": version, "description": _DESCRIPTION},
        "servers": [{"url": "/", "description": "This server."}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {**schemas.components(bodies, responses), "Error": _ERROR},
            "securitySchemes": {
                "token": {
                    "type": "http", "scheme": "bearer",
                    "description": "A token of `hark token create`. The scopes that an operation names are its own.",
                }
            },
        },
    }  # fmt: skip


def _is_shape(shape: Any) -> bool:
    return shape is not None and shape is not Any and not isinstance(shape, str)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.id,
        "tags": [route.tag],
        "summary": route.summary,
        "description": "Needs no token." if route.scope is None else f"A token needs the scope `{route.scope}`.",
        # The empty requirement: requests from this machine need no token.
        "security": [] if route.scope is None else [{"token": [route.scope]}, {}],
        "parameters": [*_path_parameters(route), *schemas.parameters(route.query), *_header_parameters(route)],
        "responses": {str(code): _success(route, code, shape) for code, shape in route.responses.items()},
    }
    if route.body is not None:
        content = {"application/json": _json(route.body, BODIES.get(route.id))}
        required = any(field.required for body in route.bodies for field in msgspec.structs.fields(body))
        operation["requestBody"] = {"required": required, "description": _of_body(route), "content": content}
    for code in sorted({*route.error_codes, *_common(route)}):
        operation["responses"][str(code)] = _failure(code)
    if route.alternative is not None:
        for response in operation["responses"].values():
            response["content"][route.alternative] = {"schema": {"type": "string"}, "example": RESPONSES[route.id]}
    return operation


def _json(shape: Any, example: Any) -> dict[str, Any]:
    """A body of JSON. The schema of a shape has an example of its own."""
    return {"schema": schemas.reference(shape)} | ({} if _is_shape(shape) else {"example": example})


def _of_body(route: Route) -> str:
    if route.bodies:
        return schemas.summary(route.bodies[0])
    return _ANY_BODY.get(route.id, "The payload: any JSON. An empty body is null.")


def _common(route: Route) -> set[int]:
    """The status codes that any route of its kind may return."""
    codes = {401, 403, 503}
    if route.query.__struct_fields__ or "{" in route.path or route.bodies:
        codes.add(422)
    return codes


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.segments if part.startswith("{")]
    return [
        {"name": name, "in": "path", "required": True, "description": ARGUMENTS[name][0], "schema": {**_NAME},
         "example": ARGUMENTS[name][1]}
        for name in names
    ]  # fmt: skip


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {**_NAME},
         "example": HEADERS[name]}
        for name, text in route.headers.items()
    ]  # fmt: skip


def _success(route: Route, code: int, shape: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(code).phrase}
    if isinstance(shape, str):
        described["content"] = {shape: {"schema": {"type": "string"}, "example": RESPONSES[route.id]}}
    elif shape is not None:
        described["content"] = {"application/json": _json(shape, RESPONSES.get(route.id))}
        if _is_shape(shape):
            described["description"] += f": {schemas.summary(shape)}"
    return described


def _failure(code: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": schemas.REF.format(name="Error")}, "example": ERRORS[code]}}
    types = " or ".join(f"`{kind.__name__}`" for kind, status in STATUSES.items() if status == code)
    return {"description": f"{HTTPStatus(code).phrase}: {types}", "content": content}


async def openapi(request: HttpRequest) -> Response:
    """The document, with the addresses that its paths start with."""
    prefix = quote(request.scope.get("root_path", "").rstrip("/"))  # where it is mounted
    servers = [{"url": prefix or "/", "description": "This server."}]
    if request.access.base_url:
        servers.insert(0, {"url": request.access.base_url, "description": "This server, from outside."})
    return json_response({**request.server.document, "servers": servers})
