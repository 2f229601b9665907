"""The numbers of FEEL: decimal, with 34 digits, so that `0.1 + 0.2 = 0.3`.

A number is an int, a Decimal or, as JSON has it, a float, which counts as the decimal number it is written as. A whole
number stays an int as long as it has at most 34 digits. What cannot be calculated is null.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    InvalidOperation,
    Overflow,
)
from typing import Any, Final, TypeAlias

Number: TypeAlias = int | Decimal | float
Exact: TypeAlias = int | Decimal

_DIGITS = 34
_LARGEST_INT = 10**_DIGITS
_MAX_JSON_INT = 1 << 63
_SCALES = range(-6111, 6177)
CONTEXT = Context(
    prec=_DIGITS, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, traps=[InvalidOperation, DivisionByZero, Overflow]
)
_WIDE = Context(prec=6200, Emin=-9999, Emax=9999, traps=[InvalidOperation, Overflow])


def is_number(value: Any) -> bool:
    kind = type(value)
    return kind is int or kind is Decimal or kind is float


def exact(number: Number) -> Exact:
    """The number without a float: 0.1 is one tenth."""
    return Decimal(repr(number)) if type(number) is float else number  # type: ignore[return-value]


def whole(number: Number) -> int:
    """The number without its fraction."""
    return int(number)


def to_json(number: Decimal) -> int | float:
    """The number as JSON has it: without a fraction if it has none. Raises OverflowError if no float is so large."""
    if number == number.to_integral_value() and abs(number) < _MAX_JSON_INT:
        return int(number)
    value = float(number)
    if value in (float("inf"), float("-inf")):
        raise OverflowError
    return value


def calculate(operator: str, left: Number, right: Number) -> Exact | None:
    """The result of `left operator right`; None if there is none: a division by zero, a number that is too large."""
    one, other = exact(left), exact(right)
    if type(one) is int and type(other) is int and (quick := _whole_result(operator, one, other)) is not None:
        return quick
    try:
        return _OPERATIONS[operator](Decimal(one), Decimal(other))
    except DecimalException:
        return None


def _whole_result(operator: str, one: int, other: int) -> int | None:
    match operator:
        case "+":
            result = one + other
        case "-":
            result = one - other
        case "*":
            result = one * other
        case "/" if other and one % other == 0:
            result = one // other
        case _:
            return None
    return result if -_LARGEST_INT < result < _LARGEST_INT else None


def _power(one: Decimal, other: Decimal) -> Exact:
    if not other:
        return 1
    return CONTEXT.power(one, other)


_OPERATIONS: Final[dict[str, Callable[[Decimal, Decimal], Exact]]] = {
    "+": CONTEXT.add,
    "-": CONTEXT.subtract,
    "*": CONTEXT.multiply,
    "/": CONTEXT.divide,
    "**": _power,
}


def negative(number: Number) -> Exact:
    return -exact(number)


def rounded(number: Number, scale: Number, rounding: str) -> Exact | None:
    """The number with this many digits after the point, or zeros before it if `scale` is negative."""
    digits = whole(scale)
    if digits not in _SCALES:
        return None
    try:
        result = Decimal(exact(number)).quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_WIDE)
        return CONTEXT.plus(result)
    except DecimalException:
        return None


def floor(number: Number, scale: Number = 0) -> Exact | None:
    return rounded(number, scale, ROUND_FLOOR)


def ceiling(number: Number, scale: Number = 0) -> Exact | None:
    return rounded(number, scale, ROUND_CEILING)


def modulo(dividend: Number, divisor: Number) -> Exact | None:
    """The remainder, which has the sign of the divisor: modulo(-12, 5) is 3."""
    one, other = exact(dividend), exact(divisor)
    if not other:
        return None
    if type(one) is int and type(other) is int:
        return one % other
    try:
        remainder = _WIDE.remainder(Decimal(one), Decimal(other))
        if remainder and (remainder < 0) != (other < 0):
            remainder = _WIDE.add(remainder, Decimal(other))
        return CONTEXT.plus(remainder)
    except DecimalException:
        return None


def number_text(number: Number) -> str:
    """The number as text, without an exponent and without zeros at the end of its fraction."""
    text = format(Decimal(exact(number)), "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
