"""Make and check the signed links behind which an awakeable is answered.

Joins the secret, the address of the server and the clock; the signature itself is made in model/links.py. A link is a
permission: it must never be in an event, a log or an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hark.model.links import LIFE, Keys, secrets_of
from hark.model.names import check_name
from hark.runtime.caller_errors import not_open
from hark.store import reads
from hark.store.protocol import Store


class AnswerLinks:
    """The links of one app.

    Args:
        secret: The app's secret, several separated by commas, newest first; None for `HARK_SECRET`, and failing
            that the secret that is kept in the store, known once the store is open.
        base_url: What links start with; None for the address of the server.
        now: The clock of the database, µs.
    """

    def __init__(self, secret: str | None, base_url: str | None, now: Callable[[], int]) -> None:
        self._base_url = "" if base_url is None else check_name(base_url, "base_url").rstrip("/")
        given = os.environ.get("HARK_SECRET") or None if secret is None else secret
        self._keys = None if given is None else Keys(secrets_of(given))
        self._now = now
        self.origin = ""
        """The address of the HTTP server, once there is one: links start with it if there is no `base_url`."""

    async def read_secrets(self, store: Store) -> None:
        """Use the secrets of the store, unless the app was given its own."""
        if self._keys is None:
            self._keys = Keys(secret for (secret,) in await store.read(reads.secrets))

    @property
    def keys(self) -> Keys:
        """The keys that sign and verify. Raises `NotOpen` before the store's secret is known."""
        if self._keys is None:
            raise not_open()
        return self._keys

    def url(self, awakeable_id: str, nonce: str, timeout_at: int | None, asked_at: int | None = None) -> str:
        """The link to an awakeable; `asked_at` is None while the function that asks is still running."""
        now = self._now()
        if timeout_at is None and asked_at is not None and now > asked_at + LIFE // 2:
            timeout_at = now + LIFE  # an old question that is read again gets a link that works
        token = self.keys.sign(awakeable_id, nonce, timeout_at)
        return f"{self._base_url or self.origin}/a/{awakeable_id}?t={token}"
