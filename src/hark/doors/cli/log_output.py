"""The log of `hark worker` and `hark serve`: lines for people, or JSON with HARK_LOG=json (X9).

Written to standard error. In other programs, logging is set up by the program.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from hark.model.errors import InvalidInput
from hark.model.log import FIELDS, get_logger
from hark.model.masking import without_link_tokens

_LEVELS: Final = ("debug", "info", "warning", "error")
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", *FIELDS}


def set_up_log(process: int | None = None) -> Callable[[str], None]:
    """Set up logging as HARK_LOG and HARK_LOG_LEVEL say.

    A program that has configured the root logger keeps its configuration, unless HARK_LOG=json asks for another one.

    Args:
        process: Which of several processes this is, for each line of the log; None if it is the only one.

    Returns:
        A function that tells the person at the terminal something on standard output: as text or as JSON.

    Raises:
        InvalidInput: One of the two variables has another value.
    """
    form, level = _variable("HARK_LOG", ("json", "text")), _variable("HARK_LOG_LEVEL", _LEVELS)
    root, hark = logging.getLogger(), get_logger()
    if form == "json" or not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter(process) if form == "json" else TextFormatter(process))
        root.handlers[:] = [handler]
    if level is not None:
        root.setLevel(level.upper())
        hark.setLevel(level.upper())
    elif hark.level == logging.NOTSET:
        hark.setLevel(logging.INFO)
    return _print_json if form == "json" else partial(print, flush=True)


def _variable(name: str, values: tuple[str, ...]) -> str | None:
    value = os.environ.get(name, "").strip().lower()
    if not value:
        return None
    if value not in values:
        raise InvalidInput(f"{name}={value!r}: set it to {' or '.join(values)}, or leave it out.")
    return value


def _print_json(text: str) -> None:
    record = logging.LogRecord("hark", logging.INFO, "", 0, text, (), None)
    print(JsonFormatter().format(record), flush=True)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


class _Formatter(logging.Formatter):
    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self._process = process


class JsonFormatter(_Formatter):
    """A record as one line of JSON, with what a call gave as `extra`, and the number of the process if it has one."""

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "time": _time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_link_tokens(record.getMessage()),
            **{name: getattr(record, name, None) for name in FIELDS},
        }
        if self._process is not None:
            body["process"] = self._process
        traceback = record.exc_text or (self.formatException(record.exc_info) if record.exc_info else None)
        if traceback:
            body["traceback"] = traceback
        for name, value in vars(record).items():
            if name not in _STANDARD and not name.startswith("_"):
                body.setdefault(name, value if isinstance(value, str | int | float | bool | None) else str(value))
        return json.dumps(body)  # in ASCII: a lone surrogate in a message cannot stop it


class TextFormatter(_Formatter):
    """A record for people: time, level, process, message, and the fields that the message does not have."""

    def format(self, record: logging.LogRecord) -> str:
        message = without_link_tokens(record.getMessage())
        process = "" if self._process is None else f"process {self._process}: "
        text = f"{_time(record):%Y-%m-%d %H:%M:%S} {record.levelname:<7} {process}{message}"
        instance = getattr(record, "instance", None)
        if instance is not None and str(instance) not in message:
            fields = [(name, getattr(record, name, None)) for name in FIELDS]
            text += f" [{' '.join(f'{name}={value}' for name, value in fields if value is not None)}]"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            text += f"\n{record.exc_text}"
        if not sys.stderr.isatty():
            return text
        return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
