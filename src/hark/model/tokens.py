"""API tokens: what they look like, what they may be for, and what is kept of them."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

from hark.model.errors import InvalidInput

SCOPES: Final = {
    "read": "look at everything",
    "signal": "send signals, broadcasts and messages",
    "answer": "resolve and reject awakeables, and see their links",
    "operate": "start, cancel and retry",
    "deploy": "deploy definitions, which means to run commands on workers",
}
_PREFIX: Final = "hark_"
_LENGTH: Final = len(_PREFIX) + 43  # 32 bytes as unpadded base64url


def new_secret() -> str:
    """256 random bits, with a prefix by which people and scanners of leaked secrets know it."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Does it look like one? What does not needs no looking up."""
    return text.startswith(_PREFIX) and len(text) == _LENGTH


def digest(secret: str) -> str:
    """What the store keeps. Plain SHA-256: there is nothing to guess in 256 random bits, so nothing to slow down."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_scopes(scopes: Any) -> list[str]:
    """The scopes in the order above, each once."""
    given = [scopes] if isinstance(scopes, str) else scopes
    known = f"Give one or more of: {', '.join(SCOPES)}."
    if not isinstance(given, list | tuple | set | frozenset) or not given:
        raise InvalidInput(f"A token needs scopes, not {scopes!r}. {known}")
    for scope in given:
        if not isinstance(scope, str) or scope not in SCOPES:
            raise InvalidInput(f"There is no scope {scope!r}. {known}")
    return [scope for scope in SCOPES if scope in given]
