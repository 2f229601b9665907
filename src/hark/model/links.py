"""Sign and verify links: permissions to answer one awakeable, which their holders can neither change nor extend.

    /a/prom_1…?t=KEY.ACTION.EXPIRY.MAC

MAC is HMAC-SHA256 over the key's id, the awakeable's id and nonce, the action and the expiry, each preceded by its
length, so that no two different links have the same bytes. The newest key signs and all keys verify: keys can be
rotated without breaking links that were already sent. Verifying a forged link gives no reason and takes as long as
verifying a genuine one.

This file has no clock and no store. doors/ decides which requests get a link, and the content of its page.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Final, Self

from hark.model.errors import InvalidInput
from hark.model.names import SECOND

ANSWER: Final = "a"  # the only action: to resolve or reject, once
LIFE: Final = 30 * 86_400 * SECOND  # of a link to an awakeable without a timeout, from its creation
_NEVER: Final = 0  # the expiry in the token of such a link: its end follows from the awakeable


class Keys:
    """The signing keys, made from secrets: the first signs, all verify."""

    __slots__ = ("_keys", "_signer", "_unknown")

    def __init__(self, secrets: Iterable[str]) -> None:
        keys = [sha256(b"hark link\0" + secret.encode(errors="surrogatepass")).digest() for secret in secrets]
        if not keys:
            raise InvalidInput("The secret is empty. Give random text, for example from `openssl rand -hex 32`.")
        self._keys = {_text(sha256(b"hark key id\0" + key).digest()[:6]): _key(key) for key in keys}
        self._signer = next(iter(self._keys))
        self._unknown = _key(os.urandom(32))  # for an unknown key id: the same work, and never a valid MAC

    def sign(self, awakeable: str, nonce: str, expiry: int | None) -> str:
        """The token of a link to this awakeable; without an expiry it is valid for `LIFE`."""
        return self._token(self._signer, awakeable, nonce, ANSWER, _NEVER if expiry is None else expiry)

    def verify(self, token: str, awakeable: str, nonce: str, asked_at: int) -> int | None:
        """The time at which this link expires, in µs; None if it is not a genuine link to this awakeable."""
        key, action, expiry = _parts(token)
        ours = self._token(key, awakeable, nonce, action, expiry)
        # The whole text is compared, not what it decodes to: base64 can write the same bytes in several ways.
        genuine = hmac.compare_digest(ours.encode(errors="replace"), token.encode(errors="replace"))
        if not genuine or action != ANSWER:
            return None
        return asked_at + LIFE if expiry == _NEVER else expiry

    def __len__(self) -> int:
        return len(self._keys)

    def has(self, key: str) -> bool:
        return key in self._keys

    def sign_texts(self, *fields: str) -> str:
        """A signature of texts, for something that is not a link: the form in a page."""
        return _mac(self._keys[self._signer], "seal", *fields)

    def verify_texts(self, signature: str, *fields: str) -> bool:
        """Return True if `sign_texts` made this signature for these texts."""
        if not signature.isascii():
            return False
        return any([hmac.compare_digest(_mac(key, "seal", *fields), signature) for key in self._keys.values()])

    def _token(self, key: str, awakeable: str, nonce: str, action: str, expiry: int) -> str:
        secret = self._keys.get(key, self._unknown)
        return f"{key}.{action}.{expiry}.{_mac(secret, 'link', key, awakeable, nonce, action, str(expiry))}"

    def __repr__(self) -> str:
        return f"Keys({', '.join(self._keys)})"


class LinkWithoutAddress(str):
    """A link that is only a path. `on_read` is called when a user reads it, not when the library makes it."""

    __slots__ = ("on_read",)

    on_read: Callable[[], None]

    def __new__(cls, path: str, on_read: Callable[[], None]) -> Self:
        link = super().__new__(cls, path)
        link.on_read = on_read
        return link


def read_link(link: str) -> str:
    """The link as plain text, for a user who reads it."""
    if isinstance(link, LinkWithoutAddress):
        link.on_read()
    return str(link)


def secrets_of(given: str) -> list[str]:
    """The secrets in `new,old`, the format of HARK_SECRET and `Hark(secret=…)`."""
    if not isinstance(given, str):
        raise InvalidInput("The secret must be text; separate several with commas, newest first.")
    return [part.strip() for part in given.split(",") if part.strip()]


def key_of(token: str) -> str:
    """The id of the key that a token names, not verified."""
    return token.partition(".")[0]


def _parts(token: str) -> tuple[str, str, int]:
    key, _, rest = token.partition(".")
    action, _, rest = rest.partition(".")
    digits = rest.partition(".")[0]
    return key, action, int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else _NEVER


def _key(secret: bytes) -> hmac.HMAC:
    return hmac.new(secret, digestmod="sha256")


def _mac(key: hmac.HMAC, *fields: str) -> str:
    # Not hmac.digest(): it releases the GIL for these two microseconds, and may wait long to get it back.
    mac = key.copy()
    mac.update(b"".join([len(raw).to_bytes(4, "big") + raw for raw in (f.encode(errors="replace") for f in fields)]))
    return _text(mac.digest())


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
