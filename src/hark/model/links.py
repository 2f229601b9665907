"""Signed links: a permission to answer one awakeable, which its holder can neither change nor make last longer.

    /a/prom_1…?t=KEY.ACTION.EXPIRY.MAC

MAC is HMAC-SHA256 over the key's id, the awakeable's id and nonce, the action and the expiry, each with its length
before it, so that no two different links have the same bytes. The newest key signs, all of them verify: that is
how keys are changed without breaking the links that are on their way. A link that is not genuine says nothing
about why, and takes as long as one that is.

Pure: no clock, no store. Who may see a link, and what a door shows behind it, is decided elsewhere.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from hark.model.errors import InvalidInput
from hark.model.names import SECOND

ANSWER: Final = "a"  # the one action there is: to resolve or reject, once
LIFE: Final = 30 * 86_400 * SECOND  # of a link to a question without a time-out, from when it was asked
_NEVER: Final = 0  # in the token of such a link: when it ends is known from the question


class Keys:
    """Secrets as keys: the first signs, every one verifies."""

    __slots__ = ("_keys", "_signer", "_stranger")

    def __init__(self, secrets: Iterable[str]) -> None:
        keys = [sha256(b"hark link\0" + secret.encode(errors="surrogatepass")).digest() for secret in secrets]
        if not keys:
            raise InvalidInput("The secret is empty. Give some random text, `openssl rand -hex 32` for one.")
        self._keys = {_text(sha256(b"hark key id\0" + key).digest()[:6]): _key(key) for key in keys}
        self._signer = next(iter(self._keys))
        self._stranger = _key(os.urandom(32))  # for a key nobody knows: the same work, and never the same MAC

    def sign(self, awakeable: str, nonce: str, expiry: int | None) -> str:
        """The token of a link to this awakeable; without an expiry it lives as long as `LIFE` says."""
        return self._token(self._signer, awakeable, nonce, ANSWER, _NEVER if expiry is None else expiry)

    def verify(self, token: str, awakeable: str, nonce: str, asked_at: int) -> int | None:
        """When this link ends, µs; None when it is not one of ours for this awakeable."""
        key, action, expiry = _parts(token)
        ours = self._token(key, awakeable, nonce, action, expiry)
        # The whole text is compared, not what it decodes to: base64 has several spellings of the same bytes.
        genuine = hmac.compare_digest(ours.encode(), token.encode(errors="replace"))
        if not genuine or action != ANSWER:
            return None
        return asked_at + LIFE if expiry == _NEVER else expiry

    def seal(self, *fields: str) -> str:
        """A MAC over some texts of ours, for what is not a link: a form that was given out with a page."""
        return _mac(self._keys[self._signer], "seal", *fields)

    def is_sealed(self, seal: str, *fields: str) -> bool:
        """Was this seal put on these texts by us?"""
        found = [hmac.compare_digest(_mac(key, "seal", *fields), seal) for key in self._keys.values() if seal.isascii()]
        return any(found)

    def _token(self, key: str, awakeable: str, nonce: str, action: str, expiry: int) -> str:
        secret = self._keys.get(key, self._stranger)
        return f"{key}.{action}.{expiry}.{_mac(secret, 'link', key, awakeable, nonce, action, str(expiry))}"

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._keys)})"


def secrets_of(given: str) -> list[str]:
    """`new,old` as a list: what HARK_SECRET and `Hark(secret=…)` say."""
    if not isinstance(given, str):
        raise InvalidInput("The secret must be text, as HARK_SECRET is; several are separated by commas, newest first.")
    return [part.strip() for part in given.split(",") if part.strip()]


def _parts(token: str) -> tuple[str, str, int]:
    """What a token claims to be; nothing of it is believed."""
    key, _, rest = token.partition(".")
    action, _, rest = rest.partition(".")
    digits = rest.partition(".")[0]
    return key, action, int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else _NEVER


def _key(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod="sha256")


def _mac(key: hmac.HMAC, *fields: str) -> str:
    # Not hmac.digest(): it lets the interpreter go for those two microseconds, and may wait long to get it back.
    mac = key.copy()
    mac.update(b"".join([len(raw).to_bytes(4, "big") + raw for raw in (f.encode(errors="replace") for f in fields)]))
    return _text(mac.digest())


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
