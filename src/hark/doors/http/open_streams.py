"""The open event streams of a process: limited in number, and each open only while its token is valid (X3).

A request is authenticated when it comes; a stream may last for days after that. One read every few seconds checks the
tokens of all streams again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hark.doors.errors import TooManyStreams
from hark.doors.http.auth import Caller
from hark.model.errors import HarkError

if TYPE_CHECKING:  # only a server needs it; the command line reads the table of routes
    from hark.app.door_access import DoorAccess

_MAX_STREAMS = 1000
_MAX_PER_TOKEN = _MAX_STREAMS // 2
_CHECK_INTERVAL = 5.0  # seconds


class OpenStream:
    """An open stream. `over` is done when it has to end: the client is gone, or its token is not valid any more."""

    def __init__(self, caller: Caller) -> None:
        self.secret = caller.secret
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class OpenStreams:
    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._open: set[OpenStream] = set()
        self._checking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def open(self, caller: Caller) -> Iterator[OpenStream]:
        """Count a stream of this caller; raise TooManyStreams if there is no room for it."""
        if len(self._open) >= _MAX_STREAMS:
            raise TooManyStreams(f"This server has {_MAX_STREAMS} open streams, its limit. Try again later.")
        of_token = sum(stream.secret == caller.secret for stream in self._open)
        if caller.secret is not None and of_token >= _MAX_PER_TOKEN:
            raise TooManyStreams(f"This token has {_MAX_PER_TOKEN} open streams, its limit. Close some of them.")
        stream = OpenStream(caller)
        self._open.add(stream)
        if caller.secret is not None and (self._checking is None or self._checking.done()):
            self._checking = asyncio.ensure_future(self._check_tokens())
        try:
            yield stream
        finally:
            self._open.discard(stream)

    async def _check_tokens(self) -> None:
        while any(stream.secret for stream in self._open):
            await asyncio.sleep(_CHECK_INTERVAL)
            secrets = {stream.secret for stream in self._open if stream.secret is not None}
            try:
                known = await self._access.known_tokens(secrets)
            except HarkError:
                continue  # the store does not respond, and so there are no events to send either
            valid = {secret for secret, token in known.items() if "read" in token.scopes}
            for stream in self._open:
                if stream.secret in secrets and stream.secret not in valid:
                    stream.end()
