"""Mask the credentials in a URL before it is shown: in errors, failures, logs, and the output of commands.

The only code that decides which parts of a URL are secret. A URL that is malformed may have its password in the wrong
place, so it is masked by its text and not parsed: when in doubt, more is hidden.
"""

from __future__ import annotations

import re
from typing import Final

_MASK: Final = "***"
_PORTS: Final = re.compile(r"\d*(?:,[^:,]*(?::\d*)?)*")  # of one host, or of several: `5432,other:5433`
_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]*://")
# `password=…` in a query, or in the `host=… password=…` of libpq, where a value may be quoted. A quote that is never
# closed hides the rest.
_SECRET: Final = re.compile(
    r"""(?ix) ([\w.-]* (?: pass(?:word|wd|phrase)? | pwd | secret | token ) \s*(?:=|%3d)\s*)
        (?: '(?:\\.|[^'\\])*(?:'|$) | "(?:\\.|[^"\\])*(?:"|$) | [^&;\s]* )"""
)


# The link to an answer page, `/a/ID?t=TOKEN`, as model/links.py makes it. The bounds keep the search linear, whatever
# the text is: it may come from outside.
_LINK: Final = re.compile(r"(/a/[^\s?#/]{1,200}\?(?:[^\s#]{0,100}&)?t=)[^\s#&'\"<>)\]]+")


def without_link_tokens(text: str) -> str:
    """Return the text with `***` in place of the tokens of answer links: anyone who has such a token can answer."""
    return _LINK.sub(rf"\1{_MASK}", text) if "t=" in text else text


def masked(url: object) -> str:
    """Return the URL of a database or server with `***` in place of its password.

    Args:
        url: The URL as the user gave it; it may be malformed, or not be text at all.

    Example:
        masked("postgresql://hark:hunter2@db/shop") == "postgresql://hark:***@db/shop"
    """
    text = url if isinstance(url, str) else repr(url)
    scheme = match[0] if (match := _SCHEME.match(text)) else ""
    return scheme + _mask_authority(_SECRET.sub(rf"\1{_MASK}", text[len(scheme) :]), has_scheme=bool(scheme))


def _mask_authority(rest: str, *, has_scheme: bool) -> str:
    """Mask `user:password@`. `rest` is what follows the scheme."""
    credentials, at, location = rest.rpartition("@")
    if not at:
        host, colon, port = re.split(r"[/?#]", rest, maxsplit=1)[0].partition(":")
        if has_scheme and colon and not host.startswith("[") and not _PORTS.fullmatch(port):
            return f"{host}:{_MASK}"
        return rest
    if re.search(r"[/?#@]", credentials):  # not escaped in the password, so the parts are unclear
        return f"{_MASK}@{location}"
    user, *password = re.split(r":|%3a", credentials, maxsplit=1, flags=re.IGNORECASE)
    return f"{user}:{_MASK}@{location}" if password else rest
