"""Explain why NATS cannot be used, and what to do. Without credentials.

The texts of the operating system and of the client differ by event loop and by version, and name no next step.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from typing import Final, NamedTuple

import nats.errors

from hark.model.nats import Nats
from hark.model.reasons import reason

CLOSED: Final = "the server closed the connection"
_REFUSED: Final = "connection refused. Start nats-server there, or correct the URL"
_REFUSED_TEXT: Final = f"Errno {errno.ECONNREFUSED}"  # in an error about several addresses
_UNREACHABLE: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH)
_ENDS: Final = (
    nats.errors.UnexpectedEOF, nats.errors.ConnectionClosedError, ConnectionResetError, BrokenPipeError,
    ConnectionAbortedError, asyncio.CancelledError,
)  # fmt: skip
_DENIED: Final = re.compile(r'permissions violation for (publish|subscription)\b[^"]*"([^"]+)"', re.IGNORECASE)


class Denial(NamedTuple):
    """The permission that the user lacks, as the server says it."""

    verb: str  # "publish" or "subscribe"
    subject: str

    def __str__(self) -> str:
        return f'the user may not {self.verb} to "{self.subject}". Give the user the permissions in docs/nats.md'

    @property
    def kind(self) -> str:
        """The kind of the problem: one for all subjects of a permission, whatever the run, the consumer or the
        inbox."""
        match self.subject.split("."):
            case ["$JS", "API", *words]:
                words = [word for word in words if not word.startswith("hark-")]
                return f"{self.verb} {'.'.join(words)}"
            case ["hark", *_]:
                return f"{self.verb} {self.subject}"
            case [first, *_]:
                return f"{self.verb} {first}"
        return self.verb


def read_denial(text: str) -> Denial | None:
    """The permission that an error of the server is about; None if it is about something else."""
    found = _DENIED.search(text)
    if found is None:
        return None
    return Denial("publish" if found[1].lower() == "publish" else "subscribe", found[2])


def explain(error: BaseException, options: Nats, limit: float) -> str:
    """Explain why a connection failed, and what to do. `limit` is the time that was waited, in seconds."""
    text = reason(error).removeprefix("nats: ")
    if "authorization" in text.lower() or "authentication" in text.lower():
        return f"the server refuses these credentials. {_what_to_check(options)}"
    if isinstance(error, nats.errors.StaleConnectionError) and not isinstance(error, _ENDS):
        return "the server does not answer any more"
    if isinstance(error, _ENDS):
        return CLOSED
    if isinstance(error, TimeoutError):  # also that of the client
        return f"no answer within {limit:g} s"
    if "expecting INFO" in text:
        return "the program that listens there is not a NATS server. Correct the URL"
    if options.credentials is not None and _is_about_file(error):
        return f"{options.credentials} is not a .creds file with a user and its seed. Create it again"
    return _explain_os_error(error, text, options) if isinstance(error, OSError) else text


def _is_about_file(error: BaseException) -> bool:
    """Return True if the error is about a malformed .creds file, for which the client raises errors of any type."""
    return isinstance(error, nats.errors.InvalidUserCredentialsError) or not isinstance(
        error, OSError | nats.errors.Error
    )


def _what_to_check(options: Nats) -> str:
    if options.user is not None:
        return "Check the user and the password"
    if options.token is not None:
        return "Check the token"
    if options.nkey_seed is not None:
        return "Check that the user of this nkey exists there"
    if options.credentials is not None:
        return "Check the .creds file"
    return "Give a user and a password, or a token, see docs/nats.md"


def _explain_os_error(error: OSError, text: str, options: Nats) -> str:
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved. Correct the URL, or check the DNS"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed, {error.verify_message}. Give the certificate of its CA with Nats(tls=…)"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed, {text}"
    # asyncio reports several addresses of a host in one error without a number.
    if isinstance(error, ConnectionRefusedError) or ("Multiple exceptions" in text and _REFUSED_TEXT in text):
        return _REFUSED
    if error.errno in _UNREACHABLE:
        return "the host cannot be reached. Correct the URL, or check the network"
    if options.credentials is not None and error.filename is not None:
        return f"{options.credentials} cannot be read: {error.strerror}"
    return text
