"""Write and read keys of the bucket and subjects of streams, with the names of runs, signals and tasks in them.

A key is `{run}.{name}`. NATS allows `-/_=.A-Za-z0-9` in a key; every other byte of the UTF-8 text is written `=XX`, in
hexadecimal, and so is `=` itself. A dot in a run is written `=2E`, so the first dot of a key ends the run. A dot in a
name or a task stays a dot, except where NATS would see an empty part: at the beginning, at the end, and beside another.
No I/O.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

_ALLOWED: Final = frozenset(b"-/_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_PLAIN: Final = re.compile(r"[-/_A-Za-z0-9]+")
_KEY: Final = re.compile(r"[-/_=.A-Za-z0-9]+")
_ESCAPED: Final = re.compile(rb"=([0-9A-Fa-f]{2})")


class BadKey(ValueError):
    """A key that is not `{run}.{name}`; the text says why."""


def signal_key(run: str, name: str) -> str:
    """The key of a signal in the bucket."""
    return f"{_part(run)}.{_parts(name)}"


def stream_subject(run: str, task: str) -> str:
    """The subject that the stream of a task is published on."""
    return f"stream.{_part(run)}.{_parts(task)}"


def parse_signal_key(key: str) -> tuple[str, str]:
    """The run and the name of a key.

    Raises:
        BadKey: The key has another form.
    """
    if not _KEY.fullmatch(key):
        raise BadKey("it has characters other than -/_=.A-Za-z0-9")
    run, dot, name = key.partition(".")
    if not run or not dot or not name:
        raise BadKey("it is not of the form {run}.{name}")
    return _text(run), _text(name)


def _part(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text
    return "".join(chr(byte) if byte in _ALLOWED else f"={byte:02X}" for byte in text.encode())


def _parts(text: str) -> str:
    parts = [_part(part) for part in text.split(".")]
    joined = parts[0]
    for before, part in pairwise(parts):
        joined += ("." if before and part else "=2E") + part
    return joined


def _text(part: str) -> str:
    data = part.encode()
    if data.count(b"=") != len(_ESCAPED.findall(data)):
        raise BadKey("an = is not followed by two hexadecimal digits")
    try:
        return _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), data).decode()
    except UnicodeDecodeError:
        raise BadKey("its =XX are not UTF-8") from None
