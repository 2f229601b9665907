"""Parse bodies and queries to typed values. A body has a size limit, and model/json.py parses all JSON."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec

from hark.model import json
from hark.model.errors import InvalidInput, PayloadTooLarge
from hark.model.names import NAME_BYTES

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U", bound=msgspec.Struct)
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
# The limits of these are for /openapi.json only: the app checks them, with better messages.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1, "maxLength": NAME_BYTES})]
Id = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": "^[A-Za-z0-9_.-]{1,128}$"})]
Cursor = Name
Seconds = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 60})]
"""The seconds that a request waits."""
ENVELOPE: Final = 1 << 16  # bytes that a body may have beside the payload: its other fields


class ClientDisconnected(Exception):
    """The client closed the connection before it had sent the whole body."""


async def read_body(receive: Receive, length: bytes | None, limit: int, envelope: int = 0) -> bytes:
    """Read the whole body.

    Args:
        receive: the ASGI callable that returns the parts of the body.
        length: the Content-Length header, if there is one.
        limit: the bytes that a payload may have.
        envelope: the bytes that the body may have in addition, for the fields around the payload.

    Raises:
        PayloadTooLarge: as soon as the body is known to be larger; the rest of it is not read.
        ClientDisconnected: the client closed the connection before it had sent everything.
    """
    most = limit + envelope
    if length is not None and length.isdigit() and int(length[:20]) > most:
        raise _too_large(int(length[:20]), limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and message["type"] == "http.request" and len(body) <= most:
        return body
    chunks, size = [body], len(body)
    while True:
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        if size > most:
            raise _too_large(size, limit)
        if not message.get("more_body", False):
            return b"".join(chunks)
        message = await receive()
        chunk = message.get("body", b"")
        chunks.append(chunk)
        size += len(chunk)


def _too_large(size: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"The body has {size} bytes or more, but it may have {limit}. Send less, or a reference to the data.",
        size=size,
        limit=limit,
    )


def parse_body(body: bytes, absent: Any = None) -> Any:
    """Parse a body as JSON; an empty one is `absent`."""
    return json.parse(body) if body else absent


def convert_body(value: Any, shape: type[T]) -> T:
    """Convert parsed JSON to this type, or raise InvalidInput that says what does not match."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"The body has the wrong shape: {error}. See /openapi.json.") from error


def parse_query(raw: bytes, shape: type[T]) -> T:
    """Parse a query string to this type; unknown, repeated and malformed parameters raise InvalidInput."""
    values: dict[str, str] = {}
    for part in filter(None, raw.split(b"&")):
        name, _, value = part.replace(b"+", b" ").partition(b"=")
        key = percent_decoded(name)
        if key in values:
            raise InvalidInput(f"The query has {key!r} more than once. Give it once.")
        values[key] = percent_decoded(value)
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"The query has the wrong shape: {error}. See /openapi.json.") from error


def percent_decoded(raw: bytes) -> str:
    return utf8(unquote_to_bytes(raw) if b"%" in raw else raw)


def utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "The path, the query or a header is not UTF-8. Encode it as UTF-8, and percent-encode it in a URL."
        ) from error
