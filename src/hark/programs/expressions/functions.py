"""The functions of expressions, which are also their filters: `length(x)` and `x | length` are the same.

A function gets evaluated arguments and the budget, checks the types it was given, and returns a new value. `default`
and `raw` are known to the evaluator and to templates: the first argument of `default` may be missing, and `raw` says
how a value is put into a shell command.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

from hark.model.errors import InvalidInput
from hark.model.json import parse as parse_json
from hark.programs.expressions.budget import Budget
from hark.programs.expressions.json_values import Kind, WrongValue, as_json, as_text, is_same, kind_of

MAX_INTEGER = 1 << 63
_MAX_NUMBER = 40  # characters of a number in a text
_EXACT = 1 << 53  # from here on a float has no fraction
_MOST_DIGITS = 15


@dataclass(frozen=True)
class ExpressionFunction:
    """A function: how it is called, and with how many arguments."""

    usage: str
    least: int
    most: int
    run: Callable[..., Any]


FUNCTIONS: Final[dict[str, ExpressionFunction]] = {}


def _function(usage: str, least: int, most: int | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under the name that its usage begins with. It is run as (budget, *arguments)."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS[usage.partition("(")[0]] = ExpressionFunction(usage, least, least if most is None else most, run)
        return run

    return register


def check_number(number: int | float) -> int | float:
    """The result of arithmetic, if JSON can carry it."""
    if isinstance(number, int):
        if not -MAX_INTEGER <= number < MAX_INTEGER:
            raise WrongValue("The result is too large: it needs more than 64 bits")
    elif not math.isfinite(number):
        raise WrongValue("The result is not a finite number")
    return number


def _need(value: Any, what: str, *kinds: Kind) -> Any:
    if (kind := kind_of(value)) not in kinds:
        raise WrongValue(
            f"{what} needs {' or '.join(_with_article(each) for each in kinds)}, not {_with_article(kind)}"
        )
    return value


def _with_article(kind: Kind) -> str:
    if kind in ("null", "true or false"):
        return kind
    return f"an {kind}" if kind == "object" else f"a {kind}"


@_function("length(text, list or object)", 1)
def _length(budget: Budget, value: Any) -> int:
    return len(_need(value, "length", "text", "list", "object"))


@_function("empty(value)", 1)
def _empty(budget: Budget, value: Any) -> bool:
    """Return True for null and for a text, list or object without content."""
    return kind_of(value) in ("null", "text", "list", "object") and not value


def _reading(usage: str, kind: Kind, run: Callable[[Any], Any]) -> None:
    """Register a function that reads a text, a list or an object once."""
    name = usage.partition("(")[0]

    @_function(usage, 1)
    def spend_and_run(budget: Budget, value: Any) -> Any:
        size = len(_need(value, name, kind))
        if kind == "text":
            budget.spend_text(size)
        else:
            budget.spend(size)
        return run(value)


_reading("upper(text)", "text", str.upper)
_reading("lower(text)", "text", str.lower)
_reading("trim(text)", "text", str.strip)
_reading("keys(object)", "object", list)
_reading("values(object)", "object", lambda value: list(value.values()))
_reading("reverse(list)", "list", lambda items: list(reversed(items)))


@_function("replace(text, old, new)", 3)
def _replace(budget: Budget, text: Any, old: Any, new: Any) -> str:
    for argument in (text, old, new):
        _need(argument, "replace", "text")
    if not old:
        raise WrongValue("replace needs a text to look for that is not empty")
    budget.spend_text(len(text))
    budget.spend_text(len(text) + text.count(old) * max(0, len(new) - len(old)))
    return str(text.replace(old, new))


@_function("split(text, separator)", 2)
def _split(budget: Budget, text: Any, separator: Any) -> list[str]:
    _need(text, "split", "text")
    if not _need(separator, "split", "text"):
        raise WrongValue("split needs a separator that is not empty")
    budget.spend_text(len(text))
    budget.spend(text.count(separator) + 1)
    return list(text.split(separator))


@_function("join(list, separator)", 1, 2)
def _join(budget: Budget, items: Any, separator: Any = "") -> str:
    _need(items, "join", "list")
    _need(separator, "join", "text")
    budget.spend(len(items))
    texts = [as_text(item, budget) for item in items]
    budget.spend_text(sum(map(len, texts)) + len(separator) * max(0, len(texts) - 1))
    return str(separator.join(texts))


@_function("contains(text or list, part)", 2)
def contains(budget: Budget, whole: Any, part: Any) -> bool:
    """Return True if a text has this part, a list this item, or an object this key."""
    match _need(whole, "contains", "text", "list", "object"):
        case str():
            if not isinstance(part, str):
                raise WrongValue(f"A text can contain a text, not {_with_article(kind_of(part))}")
            budget.spend_text(len(whole))
            return part in whole
        case list() | tuple():
            return any(is_same(item, part, budget) for item in whole)
    if not isinstance(part, str):
        raise WrongValue(f"The keys of an object are texts; {_with_article(kind_of(part))} is not")
    return part in whole


@_function("starts_with(text, start)", 2)
def _starts_with(budget: Budget, text: Any, start: Any) -> bool:
    budget.spend_text(len(_need(start, "starts_with", "text")))
    return bool(_need(text, "starts_with", "text").startswith(start))


@_function("ends_with(text, end)", 2)
def _ends_with(budget: Budget, text: Any, end: Any) -> bool:
    budget.spend_text(len(_need(end, "ends_with", "text")))
    return bool(_need(text, "ends_with", "text").endswith(end))


_function("first(list)", 1)(lambda budget, items: items[0] if _need(items, "first", "list") else None)
_function("last(list)", 1)(lambda budget, items: items[-1] if _need(items, "last", "list") else None)
_function("min(list), or min(a, b, …)", 1, 50)(lambda budget, *values: min(_several(budget, values, "min")))
_function("max(list), or max(a, b, …)", 1, 50)(lambda budget, *values: max(_several(budget, values, "max")))
_function("text(value)", 1)(lambda budget, value: as_text(value, budget))
_function("json(value)", 1)(lambda budget, value: as_json(value, budget))
_function("floor(number)", 1)(lambda budget, number: _whole(math.floor, number, "floor"))
_function("ceil(number)", 1)(lambda budget, number: _whole(math.ceil, number, "ceil"))


def _whole(to_whole: Callable[[int | float], int], number: Any, what: str) -> int | float:
    return check_number(to_whole(check_number(_need(number, what, "number"))))


@_function("sort(list)", 1)
def _sort(budget: Budget, items: Any) -> list[Any]:
    _check_ordered(budget, items, "sort")
    # Sorting compares each item about log2(n) times.
    budget.spend(len(items) * max(1, len(items).bit_length()))
    return sorted(items)


@_function("sum(list)", 1)
def _sum(budget: Budget, items: Any) -> int | float:
    _need(items, "sum", "list")
    budget.spend(len(items))
    for item in items:
        _need(item, "Each item for sum", "number")
    try:
        return check_number(sum(items))
    except OverflowError:
        raise WrongValue("The result is too large") from None


@_function("abs(number)", 1)
def _abs(budget: Budget, number: Any) -> int | float:
    return check_number(abs(_need(number, "abs", "number")))


@_function("round(number, digits)", 1, 2)
def _round(budget: Budget, number: Any, digits: Any = 0) -> int | float:
    """Rounded to the nearest; half is rounded away from zero. Without digits the result has no fraction."""
    check_number(_need(number, "round", "number"))
    if isinstance(digits, bool) or not isinstance(digits, int) or not 0 <= digits <= _MOST_DIGITS:
        raise WrongValue(f"round needs a number of digits from 0 to {_MOST_DIGITS}")
    if isinstance(number, int) or abs(number) >= _EXACT or not math.isfinite(number):
        return check_number(int(number) if math.isfinite(number) and not digits else number)
    with localcontext() as context:
        context.prec = 60
        exact = Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)
    return float(exact) if digits else int(exact)


@_function("from_json(text)", 1)
def _from_json(budget: Budget, text: Any) -> Any:
    budget.spend_text(len(_need(text, "from_json", "text")))
    budget.spend(len(text) // 16)  # a character of JSON makes at most half a value
    try:
        return parse_json(text, what="text")
    except InvalidInput as cause:
        raise WrongValue(f"from_json: {cause}") from cause


@_function("number(text)", 1)
def _number(budget: Budget, value: Any) -> int | float:
    """The number that a text consists of, such as the output of a shell command; a number as it is."""
    if kind_of(value) == "number":
        return value  # type: ignore[no-any-return]
    budget.spend_text(len(_need(value, "number", "text", "number")))
    text = value.strip()
    if len(text) > _MAX_NUMBER:
        raise WrongValue("The text is not a number: it is too long")
    number = as_number(text)
    if number is None:
        raise WrongValue(f"{text!r} is not a number")
    return number


def as_number(text: str) -> int | float | None:
    """The number that a text consists of; None if it is something else."""
    text = text.strip()
    try:
        number = parse_json(text.removeprefix("+"), what="text") if len(text) <= _MAX_NUMBER else None
    except InvalidInput:
        return None
    return None if isinstance(number, bool) or not isinstance(number, int | float) else number


@_function("default(value, other)", 2)
def _default(budget: Budget, value: Any, other: Any) -> Any:
    """The second value if the first is null or missing. The evaluator evaluates the first one with care."""
    return other if value is None else value


@_function("raw(value)", 1)
def _raw(budget: Budget, value: Any) -> Any:
    """The value itself. In a shell command, templates do not quote it."""
    return value


def _several(budget: Budget, values: tuple[Any, ...], what: str) -> Any:
    items: Any = _need(values[0], what, "list") if len(values) == 1 else values
    if not items:
        raise WrongValue(f"{what} of an empty list does not exist")
    return _check_ordered(budget, items, what)


def _check_ordered(budget: Budget, items: Any, what: str) -> Any:
    """The items, if all of them are numbers or all of them texts."""
    _need(items, what, "list")
    budget.spend(len(items))
    kinds = {kind_of(item) for item in items}
    if kinds - {"number"} and kinds - {"text"}:
        raise WrongValue(f"{what} needs numbers only, or texts only")
    if kinds == {"text"}:
        budget.spend_text(sum(map(len, items)))
    return items
