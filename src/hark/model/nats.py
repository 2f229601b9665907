"""Nats: the options of a NATS server that an app uses; NatsReport: its state. Neither needs the NATS client.

Credentials are taken out of the URL at once: the rest of it can be shown in logs and errors.
"""

from __future__ import annotations

import base64
import binascii
import re
import ssl
from dataclasses import dataclass, field, fields
from os import PathLike, fspath
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from hark.model.errors import InvalidInput
from hark.model.names import micros
from hark.model.outcomes import Duration

WITHOUT_NATS: Final = "Hark works without it; signals that NATS has stored are read when it is back"
"""The consequence if NATS cannot be used, for the log and `hark doctor`."""
_PORTS: Final = {"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}
_BUCKET: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SEED_BYTES: Final = 36  # of a decoded nkey seed: its kind, 32 bytes, a checksum


@dataclass(frozen=True, repr=False, init=False)
class Nats:
    """A NATS server that an app uses: `Hark(nats=Nats("nats://nats.internal:4222", token=…))`.

    Args:
        url: The address of the server, or those of a cluster, separated by commas. It may have a user and a password
            (`nats://user:password@host`) or a token (`nats://token@host`). With `tls://`, nothing is sent to a server
            that does not offer TLS.

    Attributes:
        servers: The addresses, without credentials.
        user: The user, from here or from the URL.
        password: The password of the user.
        token: A token instead of a user.
        nkey_seed: The seed of an nkey, as text that begins with SU.
        credentials: The path of a `.creds` file.
        tls: The TLS context for servers that need more than the certificates of the system. Also with `nats://`,
            nothing is sent then to a server that does not offer TLS.
        bucket: The KV bucket that signals are put into. It belongs to one store.
        keep: How long a value that was read stays in the bucket, in seconds or as a `timedelta`.
        send_signals: Whether signals that this app sends are put into the bucket too, for other programs to see.
        wake_ups: Whether processes with the same store wake each other over NATS, besides what the database offers.

    Raises:
        InvalidInput: A value is malformed, credentials are incomplete or of two kinds, or there is no such `.creds`
            file.

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
        given = _Login(user, password, token).combined_with(found)
        _check_one_kind(given, nkey_seed, credentials)
        _check_seed(nkey_seed)
        _check_file(credentials)
        if tls is not None and any(server.startswith("ws://") for server in servers):
            raise InvalidInput("Nats(tls=…): ws:// has no TLS. Write wss://, or leave out tls=.")
        values = dict(
            servers=servers, user=given.user, password=given.password, token=given.token, nkey_seed=nkey_seed,
            credentials=credentials, tls=tls, bucket=bucket, keep=keep, send_signals=send_signals, wake_ups=wake_ups,
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
        """The time that a value which was read stays in the bucket, µs."""
        return micros(self.keep, "keep of Nats", zero=True)


def at_url(options: Nats, url: str) -> Nats:
    """Copy the options for another server. Credentials are those of the URL, if it has some."""
    values = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "servers"}
    if _split(url)[1] != _Login():
        values |= dict.fromkeys(("user", "password", "token", "nkey_seed", "credentials"))
    return Nats(url, **values)


@dataclass
class NatsReport:
    """The state of NATS. doors/cli decides which parts of it are problems."""

    address: str
    bucket: str
    problem: str | None = None
    """The reason why nothing else is known."""
    server_version: str = ""
    settings: list[str] = field(default_factory=list)
    """Settings of the bucket with which signals would be lost."""
    unread: int = 0
    """Values in the bucket that are not committed yet."""
    is_read: bool = False
    """True if a process reads the bucket."""
    reader: str = ""
    """That process, for example "process 4711 on host-a"."""
    is_silent: bool = False
    """The process does not answer."""
    is_stuck: bool = False
    """The process has failed to commit for a while."""
    last_error: str | None = None
    """The last error of the process, until it works again."""
    error_age: float | None = None
    """The seconds since that error."""


class _Login(NamedTuple):
    """Credentials that are text. A name alone, in a URL, is a token, or the user of a password that is an option."""

    user: str | None = None
    password: str | None = None
    token: str | None = None

    def combined_with(self, url: _Login) -> _Login:
        """Complete these options with the credentials of the URL. Nothing that was given is dropped.

        Raises:
            InvalidInput: Both have the same part, with different values, or one part is missing.
        """
        for name, value in self._asdict().items():
            if not isinstance(value, str | None):
                raise InvalidInput(f"Nats({name}=…): give text, not {type(value).__name__}.")
        if url.token is not None and (self.user is not None or self.password is not None):
            url = _Login(user=url.token)
        parts: list[str | None] = []
        for name, mine, other in zip(self._fields, self, url, strict=True):
            if mine is not None and other is not None and mine != other:
                raise InvalidInput(f"Nats(…): the {name} in the URL is not that of {name}=. Give one of them.")
            parts.append(other if mine is None else mine)
        found = _Login(*parts)
        if found.user is not None and found.password is None:
            raise InvalidInput("Nats(…): the user has no password. Give both: nats://user:password@host, or password=.")
        if not found.user and found.password is not None:
            raise InvalidInput("Nats(…): the password has no user. Give both: nats://user:password@host, or user=.")
        return found


def _check_one_kind(login: _Login, nkey_seed: object, credentials: object) -> None:
    """Refuse credentials of several kinds: the client would use one kind, and drop the others silently."""
    kinds = {"user": login.user, "token": login.token, "nkey_seed": nkey_seed, "credentials": credentials}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"Nats(…): there are credentials of several kinds, {' and '.join(given)}. Give one kind.")


def _check_seed(seed: object) -> None:
    """Check a seed: 36 bytes in base32, its kind, the seed, and a checksum of both. An error does not show it."""
    if seed is None:
        return
    try:
        raw = base64.b32decode(f"{seed}======"[: 8 * -(-len(str(seed)) // 8)])
    except (binascii.Error, ValueError):
        raw = b""
    is_sound = len(raw) == _SEED_BYTES and binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")
    if not (isinstance(seed, str) and seed.startswith("SU") and is_sound):
        raise InvalidInput(
            "Nats(nkey_seed=…): this is not the seed of a user. Give the whole seed as text, 58 characters that begin "
            "with SU, for example from `nsc generate nkey --user`."
        )


def _check_file(path: object) -> None:
    if path is None:
        return
    if not isinstance(path, str | PathLike):
        raise InvalidInput("Nats(credentials=…): give the path of a .creds file.")
    file = fspath(path)
    if not Path(str(file)).is_file():
        what = "is a directory" if Path(str(file)).is_dir() else "does not exist"
        raise InvalidInput(f"Nats(credentials={str(file)!r}): the file {what}. Give the path of a .creds file.")


def _split(url: object) -> tuple[tuple[str, ...], _Login]:
    """The addresses of a URL without credentials, and the credentials that it has.

    An error never shows the URL: one that is malformed may have its password anywhere.
    """
    if not isinstance(url, str) or not url.strip():
        raise _malformed("it is empty" if isinstance(url, str) else "it is not text")
    servers: list[str] = []
    found = _Login()
    for item in url.split(","):
        text = item.strip() if "://" in item else f"nats://{item.strip()}"
        if not item.strip():
            raise _malformed("an item of the list is empty; remove the comma")
        host, port, parts = _host_and_port(text)
        login = _login(parts)
        if login != _Login() != found != login:
            raise InvalidInput("Nats(…): the servers have different credentials. Hark uses one user for all of them.")
        found = found if login == _Login() else login
        servers.append(f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}")
    return tuple(servers), found


def _host_and_port(text: str) -> tuple[str, int, SplitResult]:
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        raise _malformed("the host is not a name or an address") from None
    if parts.scheme not in _PORTS:
        raise _malformed("the scheme is not nats, tls, ws or wss")
    if not host:
        raise _malformed("there is no host")
    if any(char.isspace() or not char.isprintable() for char in host):
        raise _malformed("the host has a space or a control character in it")
    try:
        port = _PORTS[parts.scheme] if parts.port is None else parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise _malformed("the port is not a number from 1 to 65535")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise _malformed("there is something behind the host and the port")
    return host, port, parts


def _login(parts: SplitResult) -> _Login:
    user = unquote(parts.username or "")
    if parts.password is None:
        return _Login(token=user or None)
    return _Login(user=user, password=unquote(parts.password))


def _malformed(what: str) -> InvalidInput:
    return InvalidInput(
        f"The NATS URL is malformed: {what}. Write nats://host:4222, or tls://, ws:// or wss://, and special "
        "characters in a password as %XX."
    )
