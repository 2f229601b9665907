"""Evaluate the sources and conditions of processes: find the syntax of a text of a BPMN file, and its value.

A source is JSON whose texts may be expressions: `=total > 3` is FEEL, a text with `${…}` or `#{…}` in it is JUEL, and
any other text is itself. A condition is one expression of either kind. Each text is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hark.programs.expressions.budget import Meter
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.feel import parser as feel_parser
from hark.programs.expressions.feel.evaluator import FeelEvaluation
from hark.programs.expressions.feel.shortcuts import NoShortcut, Shortcut, shortcut
from hark.programs.expressions.templates import (
    MAX_EXPRESSION,
    CompiledCondition,
    Template,
    compile_condition,
    compile_template,
)
from hark.programs.expressions.tree import Node

_KEPT = 8192  # compiled texts
_SHORT = 4096  # characters of a text that is kept
_JUEL = re.compile(r"[$#]\{")


@dataclass(frozen=True, slots=True)
class _Feel:
    text: str
    tree: Node
    shortcut: Shortcut | None

    def value(self, variables: Mapping[str, Any], now: int | None, meter: Meter | None) -> Any:
        if self.shortcut is not None:
            try:
                return self.shortcut(variables)
            except NoShortcut:
                pass  # not `suppress`, which takes as long as the expression
        evaluation = FeelEvaluation(self.text, variables, now)
        try:
            return evaluation.result(self.tree)
        finally:
            if meter is not None:
                meter.count(evaluation.budget)


def evaluate(source: Any, variables: Mapping[str, Any], now: int | None = None, meter: Meter | None = None) -> Any:
    """The value of a source, as JSON: dates, times and durations of FEEL become texts.

    Args:
        source: JSON; each text in it may be an expression. Keys of objects may have `${…}` in them.
        variables: What expressions see.
        now: The time for `now()` and `today()` of FEEL, in µs since 1970; without it they are an error.
        meter: Counts the work.

    Raises:
        ExpressionError: A text cannot be compiled or evaluated. In FEEL an unknown name is null, in JUEL an error.
    """
    if isinstance(source, str):
        compiled = _source(source)
        if compiled is None:
            return source
        if isinstance(compiled, _Feel):
            return compiled.value(variables, now, meter)
        return compiled.render(variables, meter)
    if isinstance(source, dict):
        return {
            _key(key, variables, now, meter): evaluate(value, variables, now, meter) for key, value in source.items()
        }
    if isinstance(source, list | tuple):
        return [evaluate(value, variables, now, meter) for value in source]
    return source


def _key(key: str, variables: Mapping[str, Any], now: int | None, meter: Meter | None) -> str:
    if "{" not in key or key.lstrip().startswith("="):
        return key
    value = evaluate(key, variables, now, meter)
    if not isinstance(value, str):
        raise ExpressionError("The key of an object has to be a text", key, 0)
    return value


def holds(condition: str, variables: Mapping[str, Any], now: int | None = None, meter: Meter | None = None) -> bool:
    """Return True if a condition is true; null counts as false. Arguments as for `evaluate`.

    Raises:
        ExpressionError: It cannot be compiled or evaluated, or is neither true, false nor null.
    """
    compiled = _condition(condition)
    if isinstance(compiled, CompiledCondition):
        return compiled.holds(variables, meter)
    value = compiled.value(variables, now, meter)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ExpressionError(f"A condition needs true, false or null, not {_kind(value)}", compiled.text, 0)


def check_source(source: Any) -> None:
    """Raise ExpressionError if a text of a source cannot be compiled."""
    pending = [source]
    while pending:
        match pending.pop():
            case str() as text:
                _source(text)
            case dict() as entries:
                pending.extend(key for key in entries if not key.lstrip().startswith("="))
                pending.extend(entries.values())
            case list() | tuple() as items:
                pending.extend(items)


def check_condition(text: str) -> None:
    """Raise ExpressionError if a condition cannot be compiled."""
    _condition(text)


def is_expression(text: str) -> bool:
    """Return True if a text of a source is an expression, or has one in it."""
    return text.lstrip().startswith("=") or _JUEL.search(text) is not None


def _compile_source(text: str) -> _Feel | Template | None:
    """The compiled text; None if it is plain."""
    if text.lstrip().startswith("="):
        return _feel(text)
    if _JUEL.search(text) is None:
        return None
    return compile_template(text, "juel")


def _compile_condition(text: str) -> _Feel | CompiledCondition:
    if text.lstrip().startswith("="):
        return _feel(text)
    if _JUEL.search(text) is None:
        raise ExpressionError("A condition is written as =… (FEEL) or ${…} (JUEL)", text, 0)
    return compile_condition(text.strip(), "juel")


def _feel(text: str) -> _Feel:
    if len(text) > MAX_EXPRESSION:
        raise ExpressionError(f"The expression has over {MAX_EXPRESSION:,} characters", text, 0)
    tree = feel_parser.parse(text, text.index("=") + 1)
    return _Feel(text, tree, shortcut(tree))


_kept_source = lru_cache(maxsize=_KEPT)(_compile_source)
_kept_condition = lru_cache(maxsize=_KEPT)(_compile_condition)


def _source(text: str) -> _Feel | Template | None:
    return _kept_source(text) if len(text) <= _SHORT else _compile_source(text)


def _condition(text: str) -> _Feel | CompiledCondition:
    return _kept_condition(text) if len(text) <= _SHORT else _compile_condition(text)


def _kind(value: Any) -> str:
    match value:
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
    return f"the number {value}"
