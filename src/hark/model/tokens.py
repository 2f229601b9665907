"""API tokens: their format, their scopes, and the digest that is stored."""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

from hark.model.errors import InvalidInput

SCOPES: Final = {
    "read": "read everything",
    "signal": "send signals, broadcasts and messages",
    "answer": "resolve and reject awakeables, and see their links",
    "operate": "start, cancel and retry",
    "work": "fetch tasks and report what became of them, as a worker does",
    "deploy": "deploy definitions, which means to run commands on workers",
}
_PREFIX: Final = "hark_"
_LENGTH: Final = len(_PREFIX) + 43  # 32 bytes as unpadded base64url


def new_secret() -> str:
    """Make a secret of 256 random bits, with a prefix by which people and scanners for leaked secrets recognise it."""
    return _PREFIX + secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Return True if a text has the form of a secret; otherwise no read of the store is needed."""
    return text.startswith(_PREFIX) and len(text) == _LENGTH


def digest(secret: str) -> str:
    """The digest that the store keeps: plain SHA-256, since a slow hash gains nothing for 256 random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_scopes(scopes: Any) -> list[str]:
    """The scopes in the order of SCOPES, without repetitions; raises InvalidInput for unknown ones."""
    given = [scopes] if isinstance(scopes, str) else scopes
    known = f"Give one or more of: {', '.join(SCOPES)}."
    if not isinstance(given, list | tuple | set | frozenset) or not given:
        raise InvalidInput(f"A token needs scopes, not {scopes!r}. {known}")
    for scope in given:
        if not isinstance(scope, str) or scope not in SCOPES:
            raise InvalidInput(f"There is no scope {scope!r}. {known}")
    return [scope for scope in SCOPES if scope in given]
