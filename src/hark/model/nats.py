"""Nats: how an app reaches a NATS server, and what it does there; and a report on it. Without the NATS client.

Credentials are taken out of the URL at once: what is left of it can be shown in logs and errors.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from os import PathLike
from typing import Final
from urllib.parse import unquote, urlsplit

from hark.model.errors import InvalidInput
from hark.model.names import micros
from hark.model.outcomes import Duration

_PORTS: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, repr=False, init=False)
class Nats:
    """A NATS server that an app uses: `Hark(nats=Nats("nats://nats.internal:4222", token=…))`.

    Args:
        url: The address of the server, or those of a cluster, separated by commas. It may have a user and a password
            (`nats://user:password@host`) or a token (`nats://token@host`).

    Attributes:
        servers: The addresses, without credentials.
        user: The user, from here or from the URL.
        password: The password of the user.
        token: A token instead of a user.
        nkey_seed: The seed of an nkey, as text that begins with SU.
        credentials: The path of a `.creds` file.
        tls: The TLS context for servers that need more than the certificates of the system.
        bucket: The KV bucket that signals are put into. It belongs to one store.
        keep: How long a value that was read stays in the bucket, in seconds or as a `timedelta`.
        send_signals: Whether signals that this app sends are put into the bucket too, for other programs to see.
        wake_ups: Whether processes with the same store wake each other over NATS, besides what the database offers.

    Raises:
        InvalidInput: A value is malformed.

    Example:
        Hark("postgresql://localhost/shop", nats=Nats("tls://nats.internal", credentials="/run/secrets/hark.creds"))
    """

    servers: tuple[str, ...]
    user: str | None
    password: str | None
    token: str | None
    nkey_seed: str | None
    credentials: str | PathLike[str] | None
    tls: ssl.SSLContext | None
    bucket: str
    keep: Duration
    send_signals: bool
    wake_ups: bool

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        nkey_seed: str | None = None,
        credentials: str | PathLike[str] | None = None,
        tls: ssl.SSLContext | None = None,
        bucket: str = "signals",
        keep: Duration = 3600,
        send_signals: bool = True,
        wake_ups: bool = False,
    ) -> None:
        servers, found = _split(url)
        if not (isinstance(bucket, str) and _BUCKET.fullmatch(bucket)):
            raise InvalidInput(f"Nats(bucket={bucket!r}): give 1 to 64 characters of A-Z a-z 0-9 _ -")
        micros(keep, "keep of Nats", zero=True)
        if user is None and password is None and token is None:
            user, password, token = found
        values = dict(
            servers=servers, user=user, password=password, token=token, nkey_seed=nkey_seed, credentials=credentials,
            tls=tls, bucket=bucket, keep=keep, send_signals=send_signals, wake_ups=wake_ups,
        )  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"Nats({','.join(self.servers)!r}, bucket={self.bucket!r})"

    @property
    def address(self) -> str:
        """The servers as people read them, without credentials."""
        return ", ".join(self.servers)

    @property
    def keep_micros(self) -> int:
        """How long a value that was read stays in the bucket, µs."""
        return micros(self.keep, "keep of Nats", zero=True)


def at_url(options: Nats, url: str) -> Nats:
    """The same options for another server. Credentials are those of the URL, if it has some."""
    other = Nats(url)
    credentials = options if other.user is None and other.token is None else other
    return Nats(
        url,
        user=credentials.user,
        password=credentials.password,
        token=credentials.token,
        nkey_seed=options.nkey_seed,
        credentials=options.credentials,
        tls=options.tls,
        bucket=options.bucket,
        keep=options.keep,
        send_signals=options.send_signals,
        wake_ups=options.wake_ups,
    )


@dataclass
class NatsReport:
    """How NATS is. What is wrong about it is decided in doors/cli."""

    address: str
    bucket: str
    problem: str | None = None
    """Why nothing else is known."""
    server_version: str = ""
    settings: list[str] = field(default_factory=list)
    """Settings of the bucket with which signals would be lost."""
    unread: int = 0
    """Values in it that are not committed yet."""
    is_read: bool = False
    """Whether a process reads it."""
    is_stuck: bool = False
    """That process has failed to commit for a while."""
    last_error: str | None = None
    """The last error of that process."""


_Found = tuple[str | None, str | None, str | None]  # user, password, token


def _split(url: object) -> tuple[tuple[str, ...], _Found]:
    """The addresses of a URL without credentials, and the credentials of the first that has some.

    An error never shows the URL: one that is malformed may have its password anywhere.
    """
    if not isinstance(url, str) or not url.strip():
        raise InvalidInput("nats=: give the URL of a NATS server, for example nats://localhost:4222.")
    servers: list[str] = []
    found: _Found = (None, None, None)
    for one in url.split(","):
        text = one.strip() if "://" in one else f"nats://{one.strip()}"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise _malformed() from None
        if parts.scheme not in _PORTS or not host or parts.path.strip("/") or parts.query or parts.fragment:
            raise _malformed()
        if found == (None, None, None) and parts.username:
            user, password = unquote(parts.username), None if parts.password is None else unquote(parts.password)
            found = (None, None, user) if password is None else (user, password, None)
        shown = f"[{host}]" if ":" in host else host
        servers.append(f"{parts.scheme}://{shown}:{port or _PORTS[parts.scheme]}")
    return tuple(servers), found


def _malformed() -> InvalidInput:
    return InvalidInput(
        "nats=: the URL is malformed. Write nats://host:4222, or tls://, ws:// or wss://, and special characters in a "
        "password as %XX."
    )
