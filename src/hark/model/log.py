"""The loggers of Hark: every record has the attributes `instance`, `definition`, `step` and `attempt` (X9).

They are None where a record is not about an instance. Handlers and formats belong to the program; `hark worker` and
`hark serve` set them up in doors/cli/log_output.py.
"""

from __future__ import annotations

import logging
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
