"""The ASGI application: one request from its first byte to its response, and the lifespan. There is no middleware.

Served alone, the lifespan opens and closes the app. Mounted in another application it receives no lifespan: the owner
of the app opens it, and a request before that gets a 503 that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from hark.app import Hark
from hark.app.door_access import DoorAccess
from hark.doors.errors import Forbidden, Unauthenticated
from hark.doors.http import auth
from hark.doors.http.access_log import hide_link_tokens
from hark.doors.http.api import ROUTES
from hark.doors.http.auth import Caller
from hark.doors.http.feed import Feed
from hark.doors.http.open_streams import OpenStreams
from hark.doors.http.openapi import document
from hark.doors.http.origin import OriginOfRequests
from hark.doors.http.parsing import ClientDisconnected, Receive, Scope, Send
from hark.doors.http.read_routes import VERSION
from hark.doors.http.responses import Response, error_body, error_response, json_response
from hark.doors.http.routes import HttpRequest, Route, RouteTable, ServerContext
from hark.model.errors import HarkError
from hark.model.log import get_logger

_log = get_logger("hark.http")
_UNEXPECTED = error_body(
    "InternalError", "The server failed unexpectedly. Its log has the details; the request may be sent again."
)


class AsgiApp:
    """The ASGI application."""

    def __init__(
        self,
        app: Hark,
        *,
        require_token: bool = False,
        heartbeat: float = 15.0,
        routes: Sequence[Route] = ROUTES,
        origin_is_known: bool = False,
    ) -> None:
        self.app = app
        self.require_token = require_token
        access = DoorAccess(app)
        self.feed = Feed(access)
        self._tokens = auth.TokenLookup(access)
        self._context = ServerContext(app, access, self.feed, OpenStreams(access), document(routes, VERSION), heartbeat)
        self._table = RouteTable(routes)
        self._origin: OriginOfRequests | None = None if origin_is_known else OriginOfRequests(access)
        hide_link_tokens()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._run_lifespan(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "WebSockets are not supported."})

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        opened_here = not self.app.is_open
        if opened_here:
            try:
                await self.app.__aenter__()
            except Exception as error:
                _log.error("The app cannot be opened, so the server does not start: %s", error)
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
        self.feed.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.feed.close()
        if opened_here:
            await self.app.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(self._context, scope, receive, send)
        try:
            response = await self._dispatch(request)
        except HarkError as error:
            response = error_response(error)
        except ClientDisconnected:
            return
        except Exception:
            # The path without its query, which may have the token of a link.
            _log.exception("%s %s failed unexpectedly", scope["method"], scope["path"])
            response = json_response(_UNEXPECTED, 500)
        if response is not None:
            await _send(response, scope, send)

    async def _dispatch(self, request: HttpRequest) -> Response | None:
        scope = request.scope
        path = _path(scope)
        # Before the route is looked up: a drive-by request must not even find out which paths exist.
        # A link is a credential of its own: a person who opens it from an email comes from another site or a proxy.
        caller = None if path.startswith(b"/a/") else await self._authenticate(scope)
        route, request.args = self._table.find("GET" if scope["method"] == "HEAD" else scope["method"], path)
        _check_scope(route, caller)
        if self._origin is not None and caller is not None:
            self._origin.notice(request.origin, caller)
        request.route, request.caller = route, caller or auth.ANONYMOUS_CALLER
        if caller is None:  # a stranger does not choose which traces are recorded
            return await route.handler(request)
        with request.access.tracing(request.header(b"traceparent")):
            return await route.handler(request)

    async def _authenticate(self, scope: Scope) -> Caller | None:
        """Return the caller, or None without a valid way in; raise Forbidden for a drive-by request."""
        token = auth.bearer(scope)
        if token is not None:
            return await self._tokens.caller(token)
        if self.require_token or not auth.is_local_client(scope):
            return None
        auth.refuse_drive_by(scope)
        return auth.LOCAL_CALLER


def _check_scope(route: Route, caller: Caller | None) -> None:
    if route.scope is None:
        return
    if caller is None:
        raise Unauthenticated(
            "This request needs a token. Send `Authorization: Bearer TOKEN`; `hark token create` makes one."
        )
    if route.scope not in caller.scopes:
        raise Forbidden(
            f"This token lacks the scope {route.scope!r}. Make one with `hark token create --scope {route.scope}`."
        )


def _path(scope: Scope) -> bytes:
    """The path after the prefix that the application is mounted under, still encoded. The prefix is whole segments."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.partition(b"?")[0] if raw else quote(scope["path"]).encode()
    root = scope.get("root_path", "").rstrip("/")
    if not root or not scope["path"].startswith(root):
        return path
    return b"/" + b"/".join(path.split(b"/")[1 + root.count("/") :])


async def _send(response: Response, scope: Scope, send: Send) -> None:
    headers = [*response.headers]
    if response.status != 204:
        headers.append((b"content-length", b"%d" % len(response.body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})
