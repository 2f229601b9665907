"""/openapi.json: OpenAPI 3.1, generated from the table of routes. Nothing in it is written by hand but descriptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from hark.doors.http.responses import STATUSES, Response, json_response
from hark.doors.http.routes import HttpRequest, Route

_REF = "#/components/schemas/{name}"
_ARGS = {
    "target": "The id or the correlation key of an instance, percent-encoded (a `/` in it is %2F).",
    "id": "The id of an awakeable.",
    "name": "The name of a signal, percent-encoded.",
    "awakeable_id": "The id of an awakeable.",
    "file": "The name of a file.",
}
_TIME = {"type": "string", "format": "date-time"}
_ERROR = {
    "type": "object",
    "required": ["error", "type"],
    "description": "An error, with the data that its type has.",
    "properties": {
        "error": {"type": "string", "description": "What went wrong and what to do, for people."},
        "type": {"type": "string", "description": "The class of the error, for programs. New ones may be added."},
        "holder": {"type": "string", "description": "Duplicate: the instance that has the id or the key."},
        "status": {"type": "string", "description": "Conflict, AlreadySettled: the present status."},
        "by": {"type": ["string", "null"], "description": "AlreadySettled: the name of the answerer."},
        "at": {"anyOf": [_TIME, {"type": "null"}], "description": "AlreadySettled: when it was settled."},
        "target": {"type": "string", "description": "NoTarget: the target or the correlation key of the request."},
        "problems": {"type": "array", "description": "InvalidAnswer, NotAssigned, InvalidDefinition: one entry each."},
        "size": {"type": "integer", "description": "PayloadTooLarge: the bytes that were sent, or that it would be."},
        "limit": {"type": "integer", "description": "PayloadTooLarge: the bytes that a payload may have."},
        "line": {"type": ["integer", "null"], "description": "MalformedJson: the line, from 1."},
        "column": {"type": ["integer", "null"], "description": "MalformedJson: the column, from 1."},
        "allow": {"type": "string", "description": "NoMethod: the methods that the path has."},
    },
}


def document(routes: Sequence[Route], version: str) -> dict[str, Any]:
    shapes = [shape for route in routes for shape in (route.body, *route.responses.values()) if _is_shape(shape)]
    _, components = msgspec.json.schema_components(shapes, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    names = Counter(route.handler.__name__ for route in routes)
    for route in routes:
        name = route.handler.__name__
        if names[name] > 1:
            name = f"{route.handler.__module__.rpartition('.')[2]}_{name}"
        paths.setdefault(route.path, {})[route.method.lower()] = {"operationId": name, **_operation(route)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hark",
            "version": version,
            "description": "Durable workflows that wait for the outside world.",
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        # Requests from this machine need no token.
        "security": [{"token": []}, {}],
    }


def _is_shape(shape: Any) -> bool:
    return shape is not None and shape is not Any and not isinstance(shape, str)


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "description": "Needs no token." if route.scope is None else f"A token needs the scope `{route.scope}`.",
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {str(code): _success(code, shape) for code, shape in route.responses.items()},
    }
    if route.body is not None:
        schema = {} if route.body is Any else msgspec.json.schema(route.body, ref_template=_REF)
        schema.pop("$defs", None)
        required = _is_shape(route.body) and any(field.required for field in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": schema}}}
    for code in sorted({*route.error_codes, *_common(route)}):
        operation["responses"][str(code)] = _failure(code)
    if route.alternative is not None:
        for response in operation["responses"].values():
            response["content"][route.alternative] = {"schema": {"type": "string"}}
    return operation


def _common(route: Route) -> set[int]:
    """The status codes that any route of its kind may return."""
    codes = {401, 403, 503}
    if route.query.__struct_fields__ or "{" in route.path or _is_shape(route.body):
        codes.add(422)
    return codes


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = [part[1:-1] for part in route.segments if part.startswith("{")]
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    return [
        {"name": name, "in": "path", "required": True, "description": _ARGS[name], "schema": schema} for name in names
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for field in msgspec.structs.fields(route.query):
        schema = msgspec.json.schema(field.type)
        # An absent parameter of a query is left out, never null.
        kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
        found.append({"name": field.name, "in": "query", "required": field.required, "schema": kinds[0]})
    return found


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    schema = {"type": "string", "minLength": 1, "maxLength": 255}
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
        for name, text in route.headers.items()
    ]


def _success(code: int, shape: Any) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(code).phrase}
    if isinstance(shape, str):
        described["content"] = {shape: {"schema": {"type": "string"}}}
    elif shape is not None:
        schema = {} if shape is Any else msgspec.json.schema(shape, ref_template=_REF)
        schema.pop("$defs", None)
        described["content"] = {"application/json": {"schema": schema}}
    return described


def _failure(code: int) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    types = " or ".join(f"`{kind.__name__}`" for kind, status in STATUSES.items() if status == code)
    return {"description": f"{HTTPStatus(code).phrase}: {types}", "content": content}


async def openapi(request: HttpRequest) -> Response:
    return json_response(request.server.document)
