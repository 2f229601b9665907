"""Check timers that are written in the file, without an expression."""

from __future__ import annotations

from typing import Any

from hark.model.errors import InvalidInput
from hark.model.iso8601 import parse_moment
from hark.programs.bpmn.file.file_sources import is_computed
from hark.programs.bpmn.interpreter.timers import TimerKind, first_due
from hark.programs.expressions.sources import is_expression

_SOME_TIME = 1_700_000_000_000_000  # whether a text can be read does not depend on the time


def timer_problem(kind: TimerKind, text: Any) -> str | None:
    """The reason why a timer cannot be due; None if it can, or if its text is only known later."""
    if not isinstance(text, str) or is_expression(text):
        return None
    try:
        first_due(kind, text, _SOME_TIME)
    except InvalidInput as error:
        return str(error)
    return None


def end_problem(text: str) -> str | None:
    """The reason why a cycle cannot end then; None if it can, or if its end is only known later."""
    if is_expression(text):
        return None if is_computed(text) else f"Hark cannot compute the end date {text[:80]!r}"
    try:
        parse_moment(text)
    except InvalidInput as error:
        return f"the end date {error}".removesuffix(".")
    return None
