"""Responses: JSON, the headers that every response has, and the table from errors to status codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hark.doors.errors import (
    Forbidden,
    HeadersTooLarge,
    MalformedRequest,
    NoMethod,
    NoRoute,
    RequestTooSlow,
    TooManyConnections,
    TooManyStreams,
    Unauthenticated,
    UrlTooLong,
)
from hark.model.error_codec import data_of
from hark.model.errors import (
    AlreadyClaimed,
    AlreadySettled,
    Conflict,
    Duplicate,
    HarkError,
    InvalidDefinition,
    InvalidInput,
    InvalidMigration,
    MalformedJson,
    NoTarget,
    NotAssigned,
    NotFound,
    NotOpen,
    PayloadTooLarge,
    StoreTooNew,
    StoreUnavailable,
)

Headers = Sequence[tuple[bytes, bytes]]


STATUSES: Final[dict[type[HarkError], int]] = {
    MalformedJson: 400,
    MalformedRequest: 400,
    InvalidDefinition: 400,
    InvalidMigration: 422,
    Unauthenticated: 401,
    Forbidden: 403,
    NotAssigned: 403,
    NotFound: 404,
    NoTarget: 404,
    NoRoute: 404,
    NoMethod: 405,
    RequestTooSlow: 408,
    Duplicate: 409,
    Conflict: 409,
    AlreadyClaimed: 409,
    AlreadySettled: 409,
    PayloadTooLarge: 413,
    UrlTooLong: 414,
    InvalidInput: 422,
    HeadersTooLarge: 431,
    StoreUnavailable: 503,
    StoreTooNew: 503,
    NotOpen: 503,
    TooManyConnections: 503,
    TooManyStreams: 503,
}

# Headers about frames, referrers and openers matter to pages only; JSON goes without them, because each header costs
# a microsecond per response. A page may have its own Content-Security-Policy.
_DATA_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_PAGE_HEADERS: Final = (
    *_DATA_HEADERS,
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_JSON_HEADERS: Final = ((b"content-type", b"application/json"), *_DATA_HEADERS)
encode_json: Final = msgspec.json.Encoder().encode


class Response(NamedTuple):
    """A complete response."""

    status: int
    body: bytes
    headers: Headers


def json_response(value: Any, status: int = 200, headers: Headers = ()) -> Response:
    return Response(status, encode_json(value), (*_JSON_HEADERS, *headers) if headers else _JSON_HEADERS)


def text_response(text: str, kind: str, headers: Headers = ()) -> Response:
    return Response(200, text.encode(), with_security_headers([(b"content-type", kind.encode()), *headers]))


def with_security_headers(headers: Headers) -> Headers:
    """Add the headers that every page has, except those that are given."""
    own = {name.lower() for name, _ in headers}
    return [*headers, *(header for header in _PAGE_HEADERS if header[0] not in own)]


def status_of(error: HarkError) -> int:
    """The status code of an error: that of its class, or of the nearest base class in the table."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)


def error_response(error: HarkError) -> Response:
    """The error as JSON: its message, its class and its data.

    `error` and `type` are the message and the class also of an error with attributes of these names (InstanceFailed,
    CallFailed and RunFailed, which no route raises).
    """
    body = error_body(type(error).__name__, str(error))
    body |= {name: value for name, value in data_of(error).items() if name not in body}
    headers: list[tuple[bytes, bytes]] = []
    match error:
        case Unauthenticated():
            headers.append((b"www-authenticate", b'Bearer realm="hark"'))
        case NoMethod():
            headers.append((b"allow", error.allow.encode()))
        case StoreUnavailable():
            headers.append((b"retry-after", b"1"))
        case TooManyConnections() | TooManyStreams():
            headers.append((b"retry-after", b"5"))
    return json_response(body, status_of(error), headers)


def error_body(type: str, message: str) -> dict[str, Any]:
    return {"error": message, "type": type}
