"""Authentication: the sender of a request, and the scopes it has (X3).

There are three ways in:
- A token, `Authorization: Bearer hark_…`: from anywhere, with the scopes of the token.
- No credential, from this machine: with all scopes, unless a foreign web page or a proxy may have sent the request. A
  web page cannot choose its Host or hide its Origin and Sec-Fetch-Site, and a proxy adds headers: these get 403. A
  server that listens on more than loopback has `require_token`, and refuses all requests without a token.
- A signed link, under /a/: checked by its handler (answer_page.py), not here.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hark.doors.errors import Forbidden, Unauthenticated
from hark.doors.http.parsing import Scope
from hark.model.addresses import is_loopback
from hark.model.errors import HarkError
from hark.model.tokens import SCOPES, is_secret
from hark.model.values import Token

if TYPE_CHECKING:  # only a server needs it; the command line reads the table of routes
    from hark.app.door_access import DoorAccess

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_PROXIED: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))
_OWN_FETCH_SITES: Final = frozenset((b"same-origin", b"same-site", b"none"))


class Caller(NamedTuple):
    """The sender of a request: its name, which is recorded with an answer, its scopes, and the secret of its token."""

    name: str | None
    scopes: frozenset[str]
    secret: str | None = None


LOCAL_CALLER: Final = Caller(None, frozenset(SCOPES))
ANONYMOUS_CALLER: Final = Caller(None, frozenset())


def bearer(scope: Scope) -> str | None:
    """Return the token of a request, or None; raise Unauthenticated for any other kind of Authorization."""
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if not values:
        return None
    kind, _, token = values[0].partition(b" ")
    if len(values) > 1 or kind.lower() != b"bearer" or not token.strip().isascii():
        raise Unauthenticated(
            "This Authorization header is not supported. Send one header, `Authorization: Bearer TOKEN`."
        )
    return bytes(token.strip()).decode()


def is_local_client(scope: Scope) -> bool:
    """Return True if the connection comes from this machine."""
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


def refuse_drive_by(scope: Scope) -> None:
    """Raise Forbidden unless a program on this machine, or a page of this server, has sent the request."""
    hosts: list[bytes] = []
    origins: list[bytes] = []
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins.append(value)
        elif name == b"sec-fetch-site":
            if value not in _OWN_FETCH_SITES:
                raise Forbidden("A page of another site sent this request. Send a token, or use a page of this server.")
        elif name in _PROXIED or name.startswith(b"x-forwarded"):
            raise Forbidden("This request came through a proxy. Send a token; `hark token create` makes one.")
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None or not is_loopback(match.group(1).decode()):
        raise Forbidden(
            "Without a token this server accepts only the host names localhost and 127.0.0.1. Use one of them."
        )
    own = f"{scope['scheme']}://".encode() + hosts[0].lower()
    if any(origin.lower() != own for origin in origins):
        raise Forbidden("A page of another origin sent this request. Send a token, or use a page of this server.")


class TokenLookup:
    """Looks up tokens in the store. Requests that arrive during one lookup share the next one.

    Nothing is cached, so that a revoked token is refused from the next request on.
    """

    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._waiting: dict[str, asyncio.Future[Token | HarkError | None]] = {}
        self._task: asyncio.Task[None] | None = None

    async def caller(self, secret: str) -> Caller:
        """Return the caller that has this token; raise Unauthenticated for an unknown one."""
        if not is_secret(secret):
            raise _unknown_token()
        if secret not in self._waiting:
            self._waiting[secret] = asyncio.get_running_loop().create_future()
        result = self._waiting[secret]
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._look_up())
        found = await asyncio.shield(result)  # other requests wait for the same future
        if isinstance(found, HarkError):
            raise found
        if found is None:
            raise _unknown_token()
        return Caller(found.name or f"token {found.id}", frozenset(found.scopes), secret)

    async def _look_up(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, {}
            found: dict[str, Token] = {}
            error: HarkError | None = None
            try:
                found = await self._access.known_tokens(waiting)
            except HarkError as failure:
                error = failure
            for secret, future in waiting.items():
                future.set_result(error or found.get(secret))


def _unknown_token() -> Unauthenticated:
    return Unauthenticated("This token is unknown, has expired or was revoked. Ask for a new one.")
