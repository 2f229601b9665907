"""Log failed attempts and failed instances, once they are committed (X9).

One record per failure: WARNING while the instance goes on, ERROR when it has failed. An outcome that was fenced is not
logged: the worker that holds the instance now logs its own. Payloads are never logged.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterable
from typing import assert_never

from hark.kernel.result import Failed
from hark.model.errors import EXIT_ADVICE
from hark.model.failures import attempt_text
from hark.model.log import get_logger
from hark.model.names import SECOND

_log = get_logger()


def report(failures: Iterable[Failed], now: int) -> None:
    """Log these. Called by the clerk, whose turn has committed: a filter or handler that raises must not stop it."""
    for failed in failures:
        try:
            _report(failed, now)
        except Exception:
            if logging.raiseExceptions and sys.stderr is not None:  # as `logging.Handler.handleError` does
                traceback.print_exc()


def _report(failed: Failed, now: int) -> None:
    level = logging.ERROR if failed.type in ("held", "stop", "failed") else logging.WARNING
    if not _log.isEnabledFor(level):
        return
    fields = {
        "instance": failed.instance, "definition": failed.definition, "step": failed.step, "attempt": failed.attempt,
    }  # fmt: skip
    text = f"{failed.definition} {failed.instance} {_what(failed, now)}"
    record = _log.makeRecord(_log.name, level, __file__, 0, text, (), None, extra=fields)
    if failed.failure.traceback and failed.type != "thrown":  # a BPMN error is an outcome that the model knows
        record.exc_text = failed.failure.traceback.rstrip()
    _log.handle(record)


def _what(failed: Failed, now: int) -> str:
    match failed.type:
        case "retry":
            wait = 0.0 if failed.until is None else (failed.until - now) / SECOND
            return f"at {failed.step}: {attempt_text(failed.attempt, failed.retries, failed.failure, wait)}"
        case "error":
            text = attempt_text(failed.attempt, failed.retries, failed.failure, None)
            return f"at {failed.step}: {text}; it is not retried; the code decides how it goes on"
        case "thrown":
            return f"at {failed.step}: it threw {failed.failure.brief}; its process decides how it goes on"
        case "undoing":
            return f"failed at {failed.step}, and its undo runs now: {failed.failure.brief}"
        case "undo_failed":
            return f"at {failed.step}: a part of its undo failed: {failed.failure.brief}"
        case "held":
            return f"is held at {failed.step}: {failed.failure.message}"
        case "crashed":
            return f"at {failed.step}: it ended with {failed.failure.brief}, which counts as a crash. {EXIT_ADVICE}"
        case "stop" | "failed":
            return f"failed at {failed.step}: {failed.failure.brief}"
        case _ as never:
            assert_never(never)
