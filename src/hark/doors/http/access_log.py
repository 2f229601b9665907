"""Keep the tokens of links out of access logs.

A server writes the whole address of a request into its log, and that of a link has its token (`/a/ID?t=TOKEN`). The
application cannot change the line, but it runs in the same process: it adds a filter to the loggers of the servers. An
application in front of it, mounted or as a proxy in this process, logs through the same loggers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import MutableMapping
from typing import Any, Final

_ACCESS_LOGS: Final = ("uvicorn.access", "hypercorn.access", "gunicorn.access", "daphne.access", "granian.access")
_TOKEN: Final = re.compile(r"([?&]t=)[^&#\s\"']*")
_LONG_TOKEN: Final = re.compile(r"([?&]t=)[^&#\s\"']{24,}")  # of a link with a broken path; not `t=5` of another page
_API_TOKEN: Final = re.compile(r"(hark_)[A-Za-z0-9_-]{20,}")  # sent in a query by mistake


def hide_link_tokens() -> None:
    """Hide the tokens in the access logs of this process. Calling it again changes nothing."""
    for name in _ACCESS_LOGS:
        logging.getLogger(name).addFilter(_hide)


def _hide(record: logging.LogRecord) -> bool:
    record.msg = _hidden(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(map(_hidden, record.args))
    elif isinstance(record.args, MutableMapping):  # hypercorn, granian
        for key, value in list(record.args.items()):
            record.args[key] = _hidden(value)
    return True


def _hidden(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = (_TOKEN if "/a/" in value else _LONG_TOKEN).sub(r"\1[hidden]", value)
    return _API_TOKEN.sub(r"\1[hidden]", value)
