"""The table of routes: what serves a request, and what openapi.py describes.

A path is matched by its raw segments and each is decoded alone, so `%2F` in a key stays inside its segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hark.app import Hark
from hark.app.door_access import DoorAccess
from hark.doors.errors import NoMethod, NoRoute
from hark.doors.http import parsing
from hark.doors.http.auth import Caller
from hark.doors.http.feed import Feed
from hark.doors.http.parsing import Receive, Scope, Send
from hark.doors.http.responses import Response


class NoQuery(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters."""


@dataclass(slots=True)
class ServerContext:
    """What all requests share."""

    app: Hark
    access: DoorAccess
    feed: Feed
    document: dict[str, Any]
    heartbeat: float


class HttpRequest:
    """One request, as a handler sees it."""

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

    def header(self, name: bytes) -> bytes | None:
        """The first header of this name."""
        for key, value in self.scope["headers"]:
            if key == name:
                found: bytes = value
                return found
        return None

    def header_text(self, name: bytes) -> str | None:
        """A header as text: UTF-8, as curl sends it."""
        raw = self.header(name)
        return None if raw is None else parsing.utf8(raw)

    async def json_body(self, envelope: int = 0, absent: Any = None) -> Any:
        """Parse the body as JSON; return `absent` when it is empty. `envelope`: bytes for fields around the payload."""
        raw = await parsing.read_body(self.receive, self.header(b"content-length"), self.access.max_payload, envelope)
        return parsing.parse_body(raw, absent)

    async def body_as(self, shape: type[parsing.T], envelope: int = 0) -> parsing.T:
        """Parse the body and convert it to this type. An empty body is an empty object; `null` is not."""
        return parsing.convert_body(await self.json_body(envelope, absent={}), shape)

    def query(self) -> Any:
        return parsing.parse_query(self.scope["query_string"], self.route.query)

    @property
    def origin(self) -> str:
        """How the caller reached us, with the prefix we are mounted under."""
        host = (self.header(b"host") or b"").decode("latin-1")
        return f"{self.scope['scheme']}://{host}{self.scope.get('root_path', '').rstrip('/')}" if host else ""


_Words = list[tuple[int, bytes]]
Handler = Callable[[HttpRequest], Awaitable[Response | None]]


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the table. `answers` maps each code of a success to the type of its JSON, or a media type."""

    method: str
    path: str
    handler: Handler
    scope: str | None
    """The scope a token needs for it; None: open to everybody who reaches us."""
    summary: str
    responses: dict[int, Any]
    error_codes: tuple[int, ...] = ()
    query: type[msgspec.Struct] = NoQuery
    body: Any = None
    """The type of the JSON body; None: no body is read."""
    alternative: str | None = None
    """A media type that any of its answers may have instead: a page, for who asks for one."""
    headers: dict[str, str] = field(default_factory=dict)
    """Request headers that mean something here, with a sentence each."""

    @property
    def segments(self) -> list[str]:
        return self.path.split("/")[1:]


class RouteTable:
    """Finds the route of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        # By number of segments and the first of them, which is never an argument; then the other words of the path.
        self._paths: dict[tuple[int, bytes], list[tuple[_Words, list[int], dict[str, Route]]]] = {}
        for route in routes:
            parts = route.segments
            words = [(n, part.encode()) for n, part in enumerate(parts) if n and not part.startswith("{")]
            args = [n for n, part in enumerate(parts) if part.startswith("{")]
            same = self._paths.setdefault((len(parts), parts[0].encode()), [])
            methods = next((methods for known, _, methods in same if known == words), None)
            if methods is None:
                methods = {}
                # More words first: /a/static/x is a file before it is an awakeable's page.
                same.append((words, args, methods))
                same.sort(key=lambda path: -len(path[0]))
            methods[route.method] = route

    def find(self, method: str, path: bytes) -> tuple[Route, list[str]]:
        """The route and the decoded arguments; NoRoute, or NoMethod with those there are."""
        parts = path.split(b"/")[1:]
        for words, args, methods in self._paths.get((len(parts), parts[0]) if parts else (0, b""), ()):
            for n, word in words:
                if parts[n] != word:
                    break
            else:
                if not all(parts[n] for n in args):
                    continue  # an argument is not empty
                route = methods.get(method)
                if route is None:
                    allow = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
                    raise NoMethod(f"{method} is not served here. Use {allow}; see /openapi.json.", allow=allow)
                return route, [parsing.percent_decoded(parts[n]) for n in args]
        raise NoRoute("Nothing is served under this path. See /openapi.json for what is.")
