"""The errors that only a door raises. They are not in the public tree (model/errors.py), but travel as its errors do.

They are not in http/, because the command line rebuilds them when a server sends one. Only the command line raises
`StillSuspended`.
"""

from __future__ import annotations

from hark.model.errors import HarkError


class Unauthenticated(HarkError):
    """The request has no credential, or one that is not valid, has expired or was revoked."""


class Forbidden(HarkError):
    """The caller is known but lacks the scope; or a web page elsewhere may have caused the request."""


class NoRoute(HarkError):
    """No route has this path."""


class NoMethod(HarkError):
    """The path has a route, but not for this method; `allow` lists the methods it has."""

    def __init__(self, message: str, *, allow: str) -> None:
        super().__init__(message)
        self.allow = allow


class MalformedRequest(HarkError):
    """The client sent something that is not HTTP."""


class RequestTooSlow(HarkError):
    """The headers, or the body, took too long."""


class UrlTooLong(HarkError):
    """The URL has more bytes than the server accepts."""


class HeadersTooLarge(HarkError):
    """There are more headers, or more bytes of them, than the server accepts."""


class TooManyConnections(HarkError):
    """The server has as many connections as it may have, or as one client may have."""


class TooManyStreams(HarkError):
    """The server has as many open event streams as it may have, or as one token may have."""


class StillSuspended(HarkError):
    """The command waits for something that has not happened yet: exit 75, run it again later."""
