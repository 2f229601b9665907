"""The numbers of FEEL: decimal, with 34 digits, so that `0.1 + 0.2 = 0.3`.

A number is an int, a Decimal or, as JSON has it, a float, which counts as the decimal number it is written as. A whole
number stays an int as long as it has at most 34 digits. What cannot be calculated is null.

A number can be as large as 10**6144, and one of JSON has up to 4,300 digits. No calculation here writes all the digits
of the first, and `effort` counts those of the second.
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
_BEYOND = 10**40  # larger than any place, count or part of a date
_BEYOND_DIGITS = 40
_BITS_PER_STEP = 8  # of an int with more than 34 digits: what a conversion to decimal takes
POWER_STEPS: Final = 150
"""The steps of a power, root, logarithm and exponential, which take about 40 µs."""


def is_number(value: Any) -> bool:
    kind = type(value)
    return kind is int or kind is Decimal or kind is float


def exact(number: Number) -> Exact:
    """The number without a float: 0.1 is one tenth."""
    return Decimal(repr(number)) if type(number) is float else number  # type: ignore[return-value]


def as_decimal(number: Number) -> Decimal:
    """The number with at most 34 digits."""
    return CONTEXT.create_decimal(exact(number))


def whole(number: Number) -> int:
    """The number without its fraction. Of a very large one only the sign: its digits would be written for nothing."""
    kind = type(number)
    if kind is int:
        return number  # type: ignore[return-value]
    size = number.adjusted() if kind is Decimal else 0  # type: ignore[union-attr]
    if size >= _BEYOND_DIGITS:
        return -_BEYOND if number < 0 else _BEYOND
    return 0 if size < 0 else int(number)


def effort(*values: Any) -> int:
    """The steps to count for a calculation with these values, beside the one for each: those of very long numbers."""
    steps = 0
    for value in values:
        if type(value) is int and not -_LARGEST_INT < value < _LARGEST_INT:
            steps += value.bit_length() // _BITS_PER_STEP
    return steps


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
        return _OPERATIONS[operator](CONTEXT.create_decimal(one), CONTEXT.create_decimal(other))
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
    value = exact(number)
    return -value if type(value) is int else Decimal(value).copy_negate()  # `-` would round to 28 digits


def absolute(number: Number) -> Exact:
    value = exact(number)
    return abs(value) if type(value) is int else Decimal(value).copy_abs()


def rounded(number: Number, scale: Number, rounding: str) -> Exact | None:
    """The number with this many digits after the point, or zeros before it if `scale` is negative."""
    digits = whole(scale)
    if digits not in _SCALES:
        return None
    value = exact(number)
    try:
        of = Decimal(value)
        if of and of.adjusted() + digits >= _WIDE.prec:
            return None
        if -_exponent(of) <= digits:
            return CONTEXT.plus(of)  # it has no more digits than that
        if of.adjusted() < -digits - 2:
            of = Decimal(1).scaleb(-digits - 2).copy_sign(of) if of else of  # as small as needed, and no smaller
        return CONTEXT.plus(of.quantize(Decimal(1).scaleb(-digits), rounding=rounding, context=_WIDE))
    except DecimalException:
        return None


def _exponent(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent


def floor(number: Number, scale: Number = 0) -> Exact | None:
    return rounded(number, scale, ROUND_FLOOR)


def ceiling(number: Number, scale: Number = 0) -> Exact | None:
    return rounded(number, scale, ROUND_CEILING)


def square_root(number: Number) -> Exact | None:
    return _calculated(CONTEXT.sqrt, number) if number >= 0 else None


def logarithm(number: Number) -> Exact | None:
    return _calculated(CONTEXT.ln, number) if number > 0 else None


def exponential(number: Number) -> Exact | None:
    return _calculated(CONTEXT.exp, number)


def _calculated(run: Callable[[Decimal], Decimal], number: Number) -> Exact | None:
    try:
        return run(as_decimal(number))
    except DecimalException:
        return None


def deviation(values: list[Any], mean: Number) -> Exact | None:
    """The standard deviation of a sample, whose mean is known; None if it cannot be calculated."""
    try:
        middle, total = as_decimal(mean), Decimal(0)
        for value in values:
            difference = CONTEXT.subtract(as_decimal(value), middle)
            total = CONTEXT.add(total, CONTEXT.multiply(difference, difference))
        return CONTEXT.sqrt(CONTEXT.divide(total, Decimal(len(values) - 1)))
    except DecimalException:
        return None


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
