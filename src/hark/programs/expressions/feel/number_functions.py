"""The functions of FEEL on numbers and truth values."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, ROUND_UP, Decimal
from functools import partial
from typing import Any

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel import numbers
from hark.programs.expressions.feel.numbers import POWER_STEPS, Exact
from hark.programs.expressions.feel.registry import ANY, feel_function, number_function, plain_function
from hark.programs.expressions.feel.temporal import DaysDuration, MonthsDuration

_NUMBER = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MAX_NUMBER = 60  # characters
_ROUNDING_STEPS = 10
_ROUNDINGS = {
    "decimal": ROUND_HALF_EVEN,
    "round up": ROUND_UP,
    "round down": ROUND_DOWN,
    "round half up": ROUND_HALF_UP,
    "round half down": ROUND_HALF_DOWN,
}

number_function("floor", numbers.floor, "number", "number", optional=1, steps=_ROUNDING_STEPS)
number_function("ceiling", numbers.ceiling, "number", "number", optional=1, steps=_ROUNDING_STEPS)
for name, rounding in _ROUNDINGS.items():
    number_function(name, partial(numbers.rounded, rounding=rounding), "number", "number", steps=_ROUNDING_STEPS)
number_function("modulo", numbers.modulo, "number", "number", steps=POWER_STEPS)
number_function("even", lambda number: numbers.modulo(number, 2) == 0, "number", steps=POWER_STEPS)
number_function("odd", lambda number: numbers.modulo(number, 2) == 1, "number", steps=POWER_STEPS)
number_function("sqrt", numbers.square_root, "number", steps=POWER_STEPS)
number_function("log", numbers.logarithm, "number", steps=POWER_STEPS)
number_function("exp", numbers.exponential, "number", steps=POWER_STEPS)
plain_function("not", lambda value: not value if isinstance(value, bool) else None, ANY)
plain_function("is defined", lambda value: value is not None, ANY)
plain_function("get or else", lambda value, other: other if value is None else value, ANY, ANY)


@feel_function("abs", ANY)
def _abs(budget: Budget, value: Any) -> Any:
    match value[0] if isinstance(value, list) and len(value) == 1 else value:
        case DaysDuration(nanos=amount):
            return DaysDuration(abs(amount))
        case MonthsDuration(months=amount):
            return MonthsDuration(abs(amount))
        case number if numbers.is_number(number):
            budget.spend(numbers.effort(number))
            return numbers.absolute(number)
    return None


@feel_function("number", "text", ANY, ANY, optional=2)
def _number(budget: Budget, text: str, grouping: Any = None, point: Any = None) -> Exact | None:
    """The number that a text consists of, without the signs that group its digits."""
    if grouping not in (None, " ", ",", ".") or point not in (None, ",", ".") or (point and point == grouping):
        return None
    if grouping:
        text = text.replace(grouping, "")
    text = text.replace(point, ".") if point else text
    return Decimal(text) if len(text) <= _MAX_NUMBER and _NUMBER.fullmatch(text) else None
