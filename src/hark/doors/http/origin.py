"""The address of a mounted application, learned from the requests to it.

`hark serve` knows its address; an application that is mounted in another one, or served by another server, does not. It
learns scheme, host and prefix from its requests. A client chooses the Host header, and a false one would send people
with their links to another site. So only requests count whose sender may answer awakeables anyway: requests of this
machine that passed the checks against drive-by requests, whose host is a loopback name, and those with a token of the
scope `answer`. Configure `base_url` to rely on no header at all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hark.doors.http.auth import Caller
from hark.model.addresses import is_loopback

if TYPE_CHECKING:  # only a server needs it; the command line reads the table of routes
    from hark.app.door_access import DoorAccess

_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+(/[^\s?#]*)?")
_MAX_LENGTH: Final = 255


class OriginOfRequests:
    """Records the address once, and once more when it becomes known how other machines reach it."""

    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._known = ""
        self._is_public = False

    def notice(self, origin: str, caller: Caller) -> None:
        """Record the origin of a request, if its sender is trusted and it is better than the one that is known."""
        if self._is_public or origin == self._known or "answer" not in caller.scopes or not self._access.app.is_open:
            return
        if len(origin) > _MAX_LENGTH or not _ORIGIN.fullmatch(origin):
            return
        is_public = not is_loopback(urlsplit(origin).hostname or "")
        if self._known and not is_public:
            return
        self._known, self._is_public = origin, is_public
        self._access.record_origin(origin)
