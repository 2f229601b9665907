"""Make and check the signed links behind which an awakeable is answered.

Joins the secret, the address of the server and the clock; the signature itself is made in model/links.py. A link is a
permission: it must never be in an event, a log or an error.

Two things come from the store unless the app was given its own: the secrets, and the address at which a server on the
same store is reached. Both are read when the app opens and every minute after that. They are read at once for a token
that names an unknown secret, because another process may just have rotated it; when a server has recorded its address,
which a hint says; and, while no address is known, whenever awakeables are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from hark.engine.turns.caller_errors import not_open
from hark.model.addresses import is_loopback
from hark.model.errors import InvalidInput
from hark.model.links import LIFE, Keys, LinkWithoutAddress, key_of, secrets_of
from hark.model.log import get_logger
from hark.model.names import check_name
from hark.store import reads
from hark.store.protocol import Store, StoreFault

_log = get_logger()
_REFRESH = 60.0  # seconds between two reads
_BETWEEN_LOOKUPS = 1.0  # seconds between two reads for unknown secrets: anyone can invent those


class AnswerLinks:
    """The links of one app.

    Args:
        secret: The app's secret, several separated by commas, newest first; None for `HARK_SECRET`, and failing
            that the secrets that are kept in the store, known once the store is open.
        base_url: What links start with; None for `HARK_BASE_URL`, and failing that the address of a server.
        now: The clock of the database, µs.

    Raises:
        InvalidInput: The secret is empty, or `base_url` is not the address of a web server.
    """

    def __init__(self, secret: str | None, base_url: str | None, now: Callable[[], int]) -> None:
        self.base_url = _checked(os.environ.get("HARK_BASE_URL") or None if base_url is None else base_url)
        given = os.environ.get("HARK_SECRET") or None if secret is None else secret
        self.uses_stored_secret = given is None
        self._keys = None if given is None else Keys(secrets_of(given))
        self._now = now
        self.origin = ""
        """The address of the HTTP server of this process, once there is one."""
        self._recorded = ""  # the address of the server of another process
        self._next_lookup = 0.0
        self._soon = asyncio.Event()
        self.warn = True
        """Whether to warn when a link is read that is only a path; False after the first time."""

    # -- what the store knows -----------------------------------------------------------------------

    async def read(self, store: Store) -> None:
        """Read the secrets and the address of a server, unless the app was given its own."""
        if self.uses_stored_secret:
            self._keys = Keys(secret for (secret,) in await store.read(reads.secrets))
        if not self.base_url:
            self._recorded = _reachable([url for (url,) in await store.read(reads.origins)])

    async def follow(self, store: Callable[[], Store]) -> None:
        """Read them again and again, for as long as the app is open."""
        self._soon = asyncio.Event()  # of this loop: the app may have been open on another one
        while self.uses_stored_secret or not self.base_url:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_REFRESH):
                    await self._soon.wait()
            self._soon.clear()
            try:
                await self.read(store())
            except StoreFault:
                continue  # the poll of the clerk reports that the store does not answer
            except Exception:
                _log.exception("The secrets and the address of links cannot be read; the next attempt is in a minute.")

    def read_soon(self) -> None:
        """Read them again soon: a server has recorded its address. Called on the clerk's loop."""
        self._soon.set()

    async def find_address(self, store: Store) -> None:
        """Read the address of a server if none is known: it may have started a moment ago."""
        if not self._start:
            await self.read(store)

    async def look_up(self, token: str, store: Store) -> None:
        """Read the secrets if this token names one that is not known yet."""
        if self.uses_stored_secret and not self.keys.has(key_of(token)) and time.monotonic() >= self._next_lookup:
            self._next_lookup = time.monotonic() + _BETWEEN_LOOKUPS
            await self.read(store)

    # -- links --------------------------------------------------------------------------------------

    @property
    def keys(self) -> Keys:
        """The keys that sign and verify. Raises `NotOpen` before the store's secret is known."""
        if self._keys is None:
            raise not_open()
        return self._keys

    @property
    def _start(self) -> str:
        return self.base_url or self.origin or self._recorded

    def url(self, awakeable_id: str, nonce: str, timeout_at: int | None, asked_at: int | None = None) -> str:
        """The link to an awakeable; `asked_at` is None while the function that asks is still running."""
        now = self._now()
        if timeout_at is None and asked_at is not None and now > asked_at + LIFE // 2:
            timeout_at = now + LIFE  # an old question that is read again gets a link that works
        token = self.keys.sign(awakeable_id, nonce, timeout_at)
        link = f"{self._start}/a/{awakeable_id}?t={token}"
        return link if self._start else LinkWithoutAddress(link, self._warn)

    def _warn(self) -> None:
        if self.warn:
            self.warn = False
            _log.warning(
                "The links to awakeables have no address, only a path: no server on this store is known. Set "
                "HARK_BASE_URL, or Hark(base_url=…), to the address at which people reach it; or start `hark serve`."
            )


def _checked(base_url: str | None) -> str:
    if base_url is None:
        return ""
    url = check_name(base_url, "base_url").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(f"base_url={base_url!r}: give the address of the server, for example https://ask.example.")
    return url


def _reachable(urls: list[str]) -> str:
    """The newest address that other machines can reach, else the newest one."""
    return next((url for url in urls if not is_loopback(urlsplit(url).hostname or "")), urls[0] if urls else "")
