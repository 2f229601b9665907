"""The loggers of Hark: every record has the attributes `instance`, `definition`, `step` and `attempt` (X9).

They are None where a record is not about an instance. Handlers and formats belong to the program; `hark worker` and
`hark serve` set them up in doors/cli/log_output.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from hark.model.activation import Claim

FIELDS: Final = ("instance", "definition", "step", "attempt")

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


def get_logger(name: str = "hark") -> logging.Logger:
    """Get the logger `hark` or one below it. A filter does not apply to the loggers below: each gets its own."""
    logger = logging.getLogger(name)
    logger.addFilter(_add_fields)
    return logger


class RepeatedWarning:
    """Logs a warning that comes again and again: when its text changes, and once in a while if it does not."""

    def __init__(self, logger: logging.Logger, text: str, seconds: float) -> None:
        """`text` has one `%s`, for the reason; `seconds` are those between two lines with the same reason."""
        self._logger, self._text, self._seconds = logger, text, seconds
        self._last, self._at = "", 0.0

    def log(self, reason: str) -> None:
        now = time.monotonic()
        if reason != self._last or now - self._at > self._seconds:
            self._last, self._at = reason, now
            self._logger.warning(self._text, reason)


def _add_fields(record: logging.LogRecord) -> bool:
    for name in FIELDS:
        if not hasattr(record, name):
            setattr(record, name, None)
    return True


_OF_INSTANCES = get_logger("hark.workflow")


def fields_of(claim: Claim) -> dict[str, Any]:
    """The fields of a record about a claimed instance, as `extra`."""
    return {"instance": claim.id, "definition": claim.definition, "step": claim.step, "attempt": claim.attempt}


class InstanceLog(_Adapter):
    """`ctx.log`: the logger `hark.workflow`, with the fields of an instance. What a call gives as `extra` is kept."""

    def __init__(self, claim: Claim, is_silent: Callable[[], bool] | None = None) -> None:
        super().__init__(_OF_INSTANCES, None)
        self._claim = claim
        self._is_silent = is_silent

    def isEnabledFor(self, level: int) -> bool:
        return not (self._is_silent is not None and self._is_silent()) and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **fields_of(self._claim)}
        return msg, kwargs
