"""A request from its first byte to its answer, and the lifespan. Pure ASGI: nothing wraps a request but this.

Served alone, the lifespan opens the app and closes it. Mounted in somebody else's application no lifespan reaches
us: whoever owns the app opens it, and a request before that is a 503 that says so.
"""

from __future__ import annotations

import logging
from urllib.parse import quote

from hark.app import Hark
from hark.app.door_access import DoorAccess
from hark.doors.errors import Forbidden, Unauthenticated
from hark.doors.http import auth
from hark.doors.http.api import ROUTES
from hark.doors.http.auth import Caller
from hark.doors.http.feed import Feed
from hark.doors.http.openapi import document
from hark.doors.http.parsing import ClientDisconnected, Receive, Scope, Send
from hark.doors.http.read_routes import VERSION
from hark.doors.http.responses import Response, error_body, error_response, json_response
from hark.doors.http.routes import HttpRequest, Route, RouteTable, ServerContext
from hark.model.errors import HarkError

_log = logging.getLogger("hark.http")
_UNEXPECTED = error_body(
    "InternalError", "The server failed unexpectedly. Its log has the details; the request may be sent again."
)


class AsgiApp:
    """The ASGI application."""

    def __init__(self, app: Hark, *, require_token: bool = False, heartbeat: float = 15.0) -> None:
        self.app = app
        self.require_token = require_token
        access = DoorAccess(app)
        self.feed = Feed(access)
        self._tokens = auth.TokenLookup(access)
        self._context = ServerContext(app, access, self.feed, document(ROUTES, VERSION), heartbeat)
        self._table = RouteTable(ROUTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": "No WebSockets here."})

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        ours = not self.app.is_open
        if ours:
            try:
                await self.app.__aenter__()
            except Exception as error:
                _log.error("The app cannot be opened: %s", error)
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
        self.feed.open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.feed.close()
        if ours:
            await self.app.__aexit__(None, None, None)
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(self._context, scope, receive, send)
        try:
            answer = await self._answer(request)
        except HarkError as error:
            answer = error_response(error)
        except ClientDisconnected:
            return
        except Exception:
            # The path without its query: a link's token is in there.
            _log.exception("%s %s failed unexpectedly", scope["method"], scope["path"])
            answer = json_response(_UNEXPECTED, 500)
        if answer is not None:
            await _send(answer, scope, send)

    async def _answer(self, request: HttpRequest) -> Response | None:
        scope = request.scope
        path = _path(scope)
        # A drive-by request is refused before anything else is said, also that a path does not exist.
        # A link is a credential of its own: who follows one from a mail comes from another site, or through a proxy.
        caller = None if path.startswith(b"/a/") else await self._caller(scope)
        route, request.args = self._table.find("GET" if scope["method"] == "HEAD" else scope["method"], path)
        _check_scope(route, caller)
        request.route, request.caller = route, caller or auth.ANONYMOUS_CALLER
        return await route.handler(request)

    async def _caller(self, scope: Scope) -> Caller | None:
        """Who it is; None for nobody known. Forbidden for a drive-by request."""
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
        raise Unauthenticated("This needs a token. Send `Authorization: Bearer TOKEN`; `hark token create` makes one.")
    if route.scope not in caller.scopes:
        raise Forbidden(f"This token has no scope {route.scope!r}. Use one that has: `hark token create --scope`.")


def _path(scope: Scope) -> bytes:
    """What follows the prefix we are mounted under, still encoded. The prefix is cut off by its segments."""
    raw: bytes | None = scope.get("raw_path")
    path = raw.partition(b"?")[0] if raw else quote(scope["path"]).encode()
    root = scope.get("root_path", "").rstrip("/")
    if not root or not scope["path"].startswith(root):
        return path
    return b"/" + b"/".join(path.split(b"/")[1 + root.count("/") :])


async def _send(answer: Response, scope: Scope, send: Send) -> None:
    headers = [*answer.headers]
    if answer.status != 204:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else answer.body})
