"""The functions of FEEL on numbers and truth values."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal, DecimalException
from typing import Any

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel import numbers
from hark.programs.expressions.feel.numbers import CONTEXT, Exact, Number, exact
from hark.programs.expressions.feel.registry import ANY, feel_function
from hark.programs.expressions.feel.temporal import DaysDuration, MonthsDuration

_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MAX_NUMBER = 60  # characters


@feel_function("abs", ANY)
def _abs(budget: Budget, value: Any) -> Any:
    match value[0] if isinstance(value, list) and len(value) == 1 else value:
        case DaysDuration(nanos=amount):
            return DaysDuration(abs(amount))
        case MonthsDuration(months=amount):
            return MonthsDuration(abs(amount))
        case number if numbers.is_number(number):
            return abs(exact(number))
    return None


@feel_function("floor", "number", "number", optional=1)
def _floor(budget: Budget, number: Number, scale: Number = 0) -> Exact | None:
    return numbers.floor(number, scale)


@feel_function("ceiling", "number", "number", optional=1)
def _ceiling(budget: Budget, number: Number, scale: Number = 0) -> Exact | None:
    return numbers.ceiling(number, scale)


@feel_function("decimal", "number", "number")
def _decimal(budget: Budget, number: Number, scale: Number) -> Exact | None:
    return numbers.rounded(number, scale, ROUND_HALF_EVEN)


@feel_function("round up", "number", "number")
def _round_up(budget: Budget, number: Number, scale: Number) -> Exact | None:
    return numbers.rounded(number, scale, ROUND_UP)


@feel_function("round down", "number", "number")
def _round_down(budget: Budget, number: Number, scale: Number) -> Exact | None:
    return numbers.rounded(number, scale, ROUND_DOWN)


@feel_function("round half up", "number", "number")
def _round_half_up(budget: Budget, number: Number, scale: Number) -> Exact | None:
    return numbers.rounded(number, scale, ROUND_HALF_UP)


@feel_function("round half down", "number", "number")
def _round_half_down(budget: Budget, number: Number, scale: Number) -> Exact | None:
    return numbers.rounded(number, scale, ROUND_HALF_DOWN)


@feel_function("modulo", "number", "number")
def _modulo(budget: Budget, dividend: Number, divisor: Number) -> Exact | None:
    return numbers.modulo(dividend, divisor)


@feel_function("even", "number")
def _even(budget: Budget, number: Number) -> bool:
    return numbers.modulo(number, 2) == 0


@feel_function("odd", "number")
def _odd(budget: Budget, number: Number) -> bool:
    return numbers.modulo(number, 2) == 1


@feel_function("sqrt", "number")
def _sqrt(budget: Budget, number: Number) -> Exact | None:
    return CONTEXT.sqrt(Decimal(exact(number))) if number >= 0 else None


@feel_function("exp", "number")
def _exp(budget: Budget, number: Number) -> Exact | None:
    try:
        return CONTEXT.exp(Decimal(exact(number)))
    except DecimalException:
        return None


@feel_function("log", "number")
def _log(budget: Budget, number: Number) -> Exact | None:
    return CONTEXT.ln(Decimal(exact(number))) if number > 0 else None


@feel_function("number", "text", ANY, ANY, optional=2)
def _number(budget: Budget, text: str, grouping: Any = None, point: Any = None) -> Exact | None:
    """The number that a text consists of, without the signs that group its digits."""
    if grouping not in (None, " ", ",", ".") or point not in (None, ",", ".") or (point and point == grouping):
        return None
    if grouping:
        text = text.replace(grouping, "")
    text = text.replace(point, ".") if point else text
    return Decimal(text) if len(text) <= _MAX_NUMBER and _NUMBER.fullmatch(text) else None


@feel_function("not", ANY)
def _not(budget: Budget, value: Any) -> bool | None:
    return not value if isinstance(value, bool) else None


@feel_function("is defined", ANY)
def _is_defined(budget: Budget, value: Any) -> bool:
    return value is not None


@feel_function("get or else", ANY, ANY)
def _get_or_else(budget: Budget, value: Any, other: Any) -> Any:
    return other if value is None else value
