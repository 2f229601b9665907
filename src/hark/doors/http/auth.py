"""Who is it, and may it (X3).

Three ways in:
- A token, `Authorization: Bearer hark_…`: from anywhere, for what its scopes allow.
- No credential, over loopback: everything, unless the request may be somebody else's doing. A web page cannot
  choose its Host, hide its Origin or its Sec-Fetch-Site, and a proxy shows itself: such a request is 403.
  A server that is reached in any other way (`require_token`) has no such door.
- A signed link, under /a/: checked where it is served, not here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from functools import lru_cache
from typing import Final

from hark.app.door_access import DoorAccess
from hark.doors.errors import Forbidden, Unauthenticated
from hark.doors.http.parsing import Scope
from hark.model.errors import HarkError
from hark.model.tokens import SCOPES, is_secret
from hark.model.values import Token

_HOST: Final = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::[0-9]{1,5})?")
_PROXIED: Final = frozenset((b"forwarded", b"via", b"x-real-ip"))
_OWN_FETCH_SITES: Final = frozenset((b"same-origin", b"same-site", b"none"))


class Caller:
    """Who asks: a name for the record, if it has one, and what it may do."""

    __slots__ = ("name", "scopes")

    def __init__(self, name: str | None, scopes: frozenset[str]) -> None:
        self.name = name
        self.scopes = scopes


LOCAL_CALLER: Final = Caller(None, frozenset(SCOPES))
ANONYMOUS_CALLER: Final = Caller(None, frozenset())


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """A loopback address, or the one name that always means one. `*.localhost` may be resolved by anybody."""
    name = host.removeprefix("[").removesuffix("]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def bearer(scope: Scope) -> str | None:
    """The token a request carries; Unauthenticated when its Authorization is something else."""
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    if not given:
        return None
    kind, _, token = given[0].partition(b" ")
    if len(given) > 1 or kind.lower() != b"bearer" or not token.strip().isascii():
        raise Unauthenticated("This Authorization is not understood. Send `Authorization: Bearer TOKEN`, once.")
    return bytes(token.strip()).decode()


def is_local_client(scope: Scope) -> bool:
    """Is the other end of the connection this machine?"""
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


def refuse_drive_by(scope: Scope) -> None:
    """Forbidden unless the request is what a program or a page of ours on this machine sends."""
    hosts: list[bytes] = []
    origins: list[bytes] = []
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name == b"origin":
            origins.append(value)
        elif name == b"sec-fetch-site":
            if value not in _OWN_FETCH_SITES:
                raise Forbidden("A page of another site asked for this. Without a token only pages of this server may.")
        elif name in _PROXIED or name.startswith(b"x-forwarded"):
            raise Forbidden("This came through a proxy. Give who is behind it a token: `hark token create`.")
    match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None or not is_loopback(match.group(1).decode()):
        raise Forbidden("Without a token this server answers to localhost and 127.0.0.1 only. Use that name.")
    own = f"{scope['scheme']}://".encode() + hosts[0].lower()
    if any(origin.lower() != own for origin in origins):
        raise Forbidden("A page of another origin asked for this. Without a token only pages of this server may.")


class TokenLookup:
    """Looks tokens up: all that come while a look is under way share the next one.

    Nothing is kept, so a token that was revoked opens nothing from the next request on.
    """

    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._asked: dict[str, asyncio.Future[Token | HarkError | None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def caller(self, secret: str) -> Caller:
        """Who has this token; Unauthenticated when nobody has."""
        if not is_secret(secret):
            raise _unknown()
        if secret not in self._asked:
            self._asked[secret] = asyncio.get_running_loop().create_future()
        asked = self._asked[secret]
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
        found = await asyncio.shield(asked)  # others wait for it too
        if isinstance(found, HarkError):
            raise found
        if found is None:
            raise _unknown()
        return Caller(found.name or f"token {found.id}", frozenset(found.scopes))

    async def _look(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            found: dict[str, Token] = {}
            error: HarkError | None = None
            try:
                found = await self._access.known_tokens(asked)
            except HarkError as failure:
                error = failure
            for secret, future in asked.items():
                future.set_result(error or found.get(secret))


def _unknown() -> Unauthenticated:
    return Unauthenticated("This token is not known, is over, or was revoked. Ask for another one.")
