"""The values of FEEL: those of JSON, dates, times, durations and ranges; how they are compared and written.

Comparing values of different types gives null. So does comparing with null, except that `x = null` is true or false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel.numbers import effort, exact, number_text, to_json
from hark.programs.expressions.feel.temporal import DaysDuration, FeelDate, FeelDateTime, FeelTime, MonthsDuration
from hark.programs.expressions.feel.temporal_arithmetic import comparable
from hark.programs.expressions.json_values import WrongValue

FeelKind = Literal[
    "null", "boolean", "number", "text", "list", "context", "date", "time", "date and time", "days duration",
    "months duration", "range",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class FeelRange:
    """`[low..high]`; an end that is null is open. `> 5` is `(5..null)`."""

    low: Any
    high: Any
    low_included: bool
    high_included: bool


_KINDS: dict[type, FeelKind] = {
    type(None): "null", bool: "boolean", int: "number", float: "number", Decimal: "number", str: "text", list: "list",
    tuple: "list", dict: "context", FeelDate: "date", FeelTime: "time", FeelDateTime: "date and time",
    DaysDuration: "days duration", MonthsDuration: "months duration", FeelRange: "range",
}  # fmt: skip
TEMPORAL = (FeelDate, FeelTime, FeelDateTime, DaysDuration, MonthsDuration)


def feel_kind(value: Any) -> FeelKind:
    """The type of a value. Raises WrongValue if it is not a value of JSON or FEEL."""
    if (kind := _KINDS.get(type(value))) is not None:
        return kind
    if isinstance(value, Mapping):
        return "context"
    for known, kind in _KINDS.items():
        if isinstance(value, known):
            return kind
    raise WrongValue(f"A value of the Python type {type(value).__name__} is not JSON")


def equal(left: Any, right: Any, budget: Budget) -> bool | None:
    """`left = right`. Inside lists and contexts, values of different types are not equal."""
    budget.spend()
    kind, other_kind = feel_kind(left), feel_kind(right)
    if kind != other_kind:
        return False if "null" in (kind, other_kind) else None
    if kind not in ("list", "context", "range"):
        return _equal_scalars(kind, left, right, budget)
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        budget.spend()
        kind = feel_kind(one)
        if kind != feel_kind(other):
            return False
        if kind == "list" or kind == "context":
            if len(one) != len(other):
                return False
            budget.spend(len(one))
            if kind == "list":
                pending.extend(zip(one, other, strict=True))
            elif all(key in other for key in one):
                pending.extend((value, other[key]) for key, value in one.items())
            else:
                return False
        elif kind == "range":
            if (one.low_included, one.high_included) != (other.low_included, other.high_included):
                return False
            pending += [(one.low, other.low), (one.high, other.high)]
        elif not _equal_scalars(kind, one, other, budget):
            return False
    return True


def _equal_scalars(kind: FeelKind, left: Any, right: Any, budget: Budget) -> bool | None:
    if kind == "text":
        budget.spend_text(min(len(left), len(right)))
    elif kind == "number":
        budget.spend(effort(left, right))
        return exact(left) == exact(right)
    elif (pair := _in_order(kind, left, right)) is not None:
        return bool(pair[0] == pair[1])
    return bool(left == right)


def compare(operator: str, left: Any, right: Any, budget: Budget) -> bool | None:
    """`left < right` and the like; null if the values have no order."""
    budget.spend()
    kind = feel_kind(left)
    if kind != feel_kind(right):
        return None
    if kind == "text":
        budget.spend_text(min(len(left), len(right)))
        pair: tuple[Any, Any] | None = (left, right)
    elif kind == "number":
        budget.spend(effort(left, right))
        pair = exact(left), exact(right)
    else:
        pair = _in_order(kind, left, right)
    if pair is None:
        return None
    match operator:
        case "<":
            return bool(pair[0] < pair[1])
        case "<=":
            return bool(pair[0] <= pair[1])
        case ">":
            return bool(pair[0] > pair[1])
    return bool(pair[0] >= pair[1])


def _in_order(kind: FeelKind, left: Any, right: Any) -> tuple[Any, Any] | None:
    """Two dates, times or durations of one type as numbers; None for what has no order."""
    match kind:
        case "date":
            return (left.year, left.month, left.day), (right.year, right.month, right.day)
        case "time":
            day = FeelDate(1970, 1, 1)
            return comparable(FeelDateTime(day, left), FeelDateTime(day, right))
        case "date and time":
            return comparable(left, right)
        case "days duration":
            return left.nanos, right.nanos
        case "months duration":
            return left.months, right.months
    return None


def within(value: Any, limits: FeelRange, budget: Budget) -> bool | None:
    """Return True if the value is in the range."""
    if limits.low is None and limits.high is None:
        return None
    results = []
    if limits.low is not None:
        results.append(compare(">=" if limits.low_included else ">", value, limits.low, budget))
    if limits.high is not None:
        results.append(compare("<=" if limits.high_included else "<", value, limits.high, budget))
    if None in results:
        return None
    return all(results)


def feel_text(value: Any, budget: Budget, *, inside: bool = False) -> str:
    """The text of a value, as `string()` gives it. In lists and contexts texts are quoted."""
    budget.spend()
    match feel_kind(value):
        case "null":
            text = "null"
        case "boolean":
            text = "true" if value else "false"
        case "number":
            budget.spend(effort(value))
            text = number_text(value)
        case "text":
            text = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if inside else value
        case "list":
            text = f"[{', '.join([feel_text(item, budget, inside=True) for item in value])}]"
        case "context":
            entries = [f"{key}: {feel_text(item, budget, inside=True)}" for key, item in value.items()]
            text = f"{{{', '.join(entries)}}}"
        case "range":
            low, high = (feel_text(end, budget, inside=True) for end in (value.low, value.high))
            text = f"{'[' if value.low_included else '('}{low}..{high}{']' if value.high_included else ')'}"
        case _:
            text = str(value)
    budget.spend_text(len(text))
    return text


def as_json_value(value: Any, budget: Budget) -> Any:
    """The value as JSON: dates, times, durations and ranges as their text. What is JSON already is not copied."""
    budget.spend()
    match feel_kind(value):
        case "null" | "boolean" | "text":
            return value
        case "number":
            budget.spend(effort(value))
            try:
                return to_json(Decimal(value)) if type(value) is not float and not _is_json_int(value) else value
            except OverflowError:
                raise WrongValue("The number is too large") from None
        case "list":
            items = [as_json_value(item, budget) for item in value]
            return value if all(one is other for one, other in zip(items, value, strict=True)) else items
        case "context":
            entries = {key: as_json_value(item, budget) for key, item in value.items()}
            return value if all(entries[key] is item for key, item in value.items()) else entries
    return feel_text(value, budget)


def _is_json_int(number: int | Decimal) -> bool:
    return type(number) is int and -(1 << 63) <= number < 1 << 63
