"""Declare routes and find the one of a request; and the request as a handler sees it.

A path is matched by its raw segments and each argument is decoded alone, so that `%2F` in a key stays in its segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from hark.app import Hark
from hark.doors.errors import NoMethod, NoRoute
from hark.doors.http import parsing
from hark.doors.http.auth import Caller
from hark.doors.http.feed import Feed
from hark.doors.http.open_streams import OpenStreams
from hark.doors.http.parsing import Receive, Scope, Send
from hark.doors.http.responses import Response, json_response

if TYPE_CHECKING:  # only a server needs it; the command line reads the table of routes
    from hark.app.door_access import DoorAccess


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(slots=True)
class ServerContext:
    """The values that all requests share."""

    app: Hark
    access: DoorAccess
    feed: Feed
    streams: OpenStreams
    document: dict[str, Any]
    """The content of /openapi.json."""
    heartbeat: float
    """Seconds between two comments of a stream without events."""


class HttpRequest:
    """A request, as a handler sees it."""

    __slots__ = ("access", "app", "args", "caller", "receive", "route", "scope", "send", "server")

    def __init__(self, server: ServerContext, scope: Scope, receive: Receive, send: Send) -> None:
        self.server = server
        self.app = server.app
        self.access = server.access
        self.scope = scope
        self.receive = receive
        self.send = send
        self.args: Sequence[str] = ()
        self.caller: Caller
        self.route: Route

    @property
    def is_read(self) -> bool:
        return self.scope["method"] in ("GET", "HEAD")

    def header(self, name: bytes) -> bytes | None:
        for key, value in self.scope["headers"]:
            if key == name:
                found: bytes = value
                return found
        return None

    def header_text(self, name: bytes) -> str | None:
        """Return a header as text: UTF-8, as curl sends it."""
        raw = self.header(name)
        return None if raw is None else parsing.utf8(raw)

    async def json_body(self, envelope: int = 0, absent: Any = None) -> Any:
        """Parse the body as JSON.

        Args:
            envelope: bytes that the body may have beyond `max_payload`, for the fields around the payload.
            absent: what to return for an empty body.
        """
        raw = await parsing.read_body(self.receive, self.header(b"content-length"), self.access.max_payload, envelope)
        return parsing.parse_body(raw, absent)

    async def body_as(self, shape: type[parsing.T], envelope: int = 0) -> parsing.T:
        """Parse the body and convert it to this type. An empty body is an empty object; `null` is not."""
        return parsing.convert_body(await self.json_body(envelope, absent={}), shape)

    async def body_as_either(
        self, shape: type[parsing.T], other: type[parsing.U], envelope: int = 0
    ) -> parsing.T | parsing.U:
        """Parse the body and convert it to the type whose first field it has; to `shape` if it has neither."""
        body = await self.json_body(envelope, absent={})
        if isinstance(body, dict) and other.__struct_fields__[0] in body:
            return parsing.convert_body(body, other)
        return parsing.convert_body(body, shape)

    def query(self) -> Any:
        """Parse the query string to the type that the route declares."""
        return parsing.parse_query(self.scope["query_string"], self.route.query)

    @property
    def origin(self) -> str:
        """The address of this server as the client wrote it, with the prefix it is mounted under; may be empty."""
        host = (self.header(b"host") or b"").decode("latin-1")
        return f"{self.scope['scheme']}://{host}{self.scope.get('root_path', '').rstrip('/')}" if host else ""


Handler = Callable[[HttpRequest], Awaitable[Response | None]]


def answer_with(verb: Callable[[HttpRequest, str], Awaitable[Any]]) -> Handler:
    """Make a handler that answers with the result of a verb, called with the one argument of the path."""

    async def handle(request: HttpRequest) -> Response:
        [argument] = request.args
        return json_response(await verb(request, argument))

    return handle


@dataclass(frozen=True, slots=True)
class Route:
    """A row of the table of routes."""

    method: str
    path: str
    handler: Handler
    scope: str | None
    """The scope that a token needs; None: no credential is needed."""
    summary: str
    responses: dict[int, Any]
    """Each status code of a success, with the type of its JSON or a media type."""
    error_codes: tuple[int, ...] = ()
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    """The type of the JSON body, or a union of the types that it may have; None: no body is read."""
    alternative: str | None = None
    """A media type that every response may have instead of JSON: HTML, for browsers."""
    headers: dict[str, str] = field(default_factory=dict)
    """Request headers that the handler reads, with a sentence each."""
    id: str = field(kw_only=True)
    """The name of the operation in /openapi.json: a generated client has a function of this name. It never changes."""
    tag: str = field(kw_only=True)
    """The group of the operation in /openapi.json."""

    @property
    def bodies(self) -> tuple[type[msgspec.Struct], ...]:
        """The types that the JSON body may have; none if there is no body, or any JSON."""
        if self.body is None or self.body is Any:
            return ()
        return get_args(self.body) or (self.body,)

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]


@dataclass(frozen=True, slots=True)
class _Path:
    """The routes of one path: its fixed segments after the first, the positions of its arguments, its methods."""

    fixed: list[tuple[int, bytes]]
    arguments: list[int]
    methods: dict[str, Route]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        # By the number of segments and the first of them, which is never an argument.
        self._paths: dict[tuple[int, bytes], list[_Path]] = {}
        for route in routes:
            segments = route.segments
            fixed = [(n, part.encode()) for n, part in enumerate(segments) if n and not part.startswith("{")]
            arguments = [n for n, part in enumerate(segments) if part.startswith("{")]
            similar = self._paths.setdefault((len(segments), segments[0].encode()), [])
            path = next((known for known in similar if known.fixed == fixed), None)
            if path is None:
                path = _Path(fixed, arguments, {})
                similar.append(path)
                # More fixed segments first: /a/static/x is a file, not the page of the awakeable "static".
                similar.sort(key=lambda path: -len(path.fixed))
            path.methods[route.method] = route

    def find(self, method: str, path: bytes) -> tuple[Route, list[str]]:
        """Find the route of a request.

        Returns:
            The route and the decoded arguments of its path.

        Raises:
            NoRoute: no route has this path.
            NoMethod: a route has this path, but not for this method.
        """
        parts = path.split(b"/")[1:]
        for candidate in self._paths.get((len(parts), parts[0]) if parts else (0, b""), ()):
            for n, segment in candidate.fixed:
                if parts[n] != segment:
                    break
            else:
                if not all(parts[n] for n in candidate.arguments):
                    continue  # an argument is not empty
                route = candidate.methods.get(method)
                if route is None:
                    raise _no_method(method, candidate)
                return route, [parsing.percent_decoded(parts[n]) for n in candidate.arguments]
        raise NoRoute("No route has this path. See /openapi.json for all routes.")


def _no_method(method: str, path: _Path) -> NoMethod:
    allow = ", ".join(sorted({*path.methods, *(["HEAD"] if "GET" in path.methods else [])}))
    return NoMethod(f"This path does not support {method}. Use {allow}; see /openapi.json.", allow=allow)
