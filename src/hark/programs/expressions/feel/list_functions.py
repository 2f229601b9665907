"""The functions of FEEL on lists and contexts. Items are counted from 1, and from the end if the number is negative."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel import temporal_arithmetic
from hark.programs.expressions.feel.numbers import (
    Number,
    as_decimal,
    calculate,
    deviation,
    effort,
    exact,
    is_number,
    whole,
)
from hark.programs.expressions.feel.registry import ANY, feel_function, plain_function
from hark.programs.expressions.feel.temporal import DaysDuration, MonthsDuration
from hark.programs.expressions.feel.values import compare, equal, feel_kind

plain_function("count", len, "list")
plain_function("is empty", lambda items: not items, "list")
plain_function("get value", lambda context, key: context.get(key), "context", "text")


@feel_function("list contains", "list", ANY)
def _list_contains(budget: Budget, items: list[Any], item: Any) -> bool:
    return any(equal(one, item, budget) for one in items)


def _several(budget: Budget, values: tuple[Any, ...]) -> list[Any]:
    """The items of one list, or the arguments themselves."""
    items = list(values[0] if len(values) == 1 and isinstance(values[0], list | tuple) else values)
    budget.spend(len(items) + effort(*items))
    return items


def _extreme(operator: str, budget: Budget, *values: Any) -> Any:
    best = None
    for item in _several(budget, values):
        if best is None:
            best = item
        comparison = compare(operator, item, best, budget)
        if comparison is None and equal(item, best, budget) is not True:
            return None
        if item is None:
            return None
        best = item if comparison else best
    return best


feel_function("min", ANY, repeated=True)(partial(_extreme, "<"))
feel_function("max", ANY, repeated=True)(partial(_extreme, ">"))


def _total(budget: Budget, values: tuple[Any, ...]) -> tuple[Any, int]:
    """The sum of numbers, or of durations, and how many there are."""
    items = _several(budget, values)
    total: Any = None
    for item in items:
        if not is_number(item) and not isinstance(item, DaysDuration | MonthsDuration):
            return None, 0
        if total is None:
            total = exact(item) if is_number(item) else item
        elif is_number(item) and is_number(total):
            total = calculate("+", total, item)
        else:
            total = temporal_arithmetic.combine("+", total, item)
        if total is None:
            return None, 0
    return total, len(items)


@feel_function("sum", ANY, repeated=True)
def _sum(budget: Budget, *values: Any) -> Any:
    return _total(budget, values)[0]


@feel_function("mean", ANY, repeated=True)
def _mean(budget: Budget, *values: Any) -> Any:
    total, count = _total(budget, values)
    if total is None:
        return None
    return calculate("/", total, count) if is_number(total) else temporal_arithmetic.combine("/", total, count)


@feel_function("product", ANY, repeated=True)
def _product(budget: Budget, *values: Any) -> Any:
    product: Any = None
    for item in _several(budget, values):
        if not is_number(item):
            return None
        product = exact(item) if product is None else calculate("*", product, item)
        if product is None:
            return None
    return product


@feel_function("median", ANY, repeated=True)
def _median(budget: Budget, *values: Any) -> Any:
    items = _several(budget, values)
    if not items or not all(is_number(item) for item in items):
        return None
    budget.spend(len(items) * len(items).bit_length())
    ordered = sorted(map(as_decimal, items))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    total = calculate("+", low, high)
    return None if total is None else calculate("/", total, 2)


def _place(items: list[Any], position: Number) -> int | None:
    """The index, from 0, of the item with this number; None if there is none."""
    number = whole(position)
    if not number or abs(number) > len(items):
        return None
    return number - 1 if number > 0 else len(items) + number


@feel_function("sublist", "list", "number", "number", optional=1)
def _sublist(budget: Budget, items: list[Any], start: Number, length: Number | None = None) -> list[Any] | None:
    begin = _place(items, start)
    if begin is None:
        return None
    count = len(items) - begin if length is None else whole(length)
    if count < 0 or begin + count > len(items):
        return None
    budget.spend(count)
    return list(items[begin : begin + count])


@feel_function("append", "list", ANY, optional=1, repeated=True)
def _append(budget: Budget, items: list[Any], *more: Any) -> list[Any]:
    budget.spend(len(items) + len(more))
    return [*items, *more]


@feel_function("concatenate", "list", repeated=True)
def _concatenate(budget: Budget, *lists: list[Any]) -> list[Any]:
    budget.spend(sum(map(len, lists)))
    return [item for items in lists for item in items]


@feel_function("insert before", "list", "number", ANY)
def _insert_before(budget: Budget, items: list[Any], position: Number, item: Any) -> list[Any] | None:
    place = _place(items, position)
    if place is None:
        return None
    budget.spend(len(items) + 1)
    return [*items[:place], item, *items[place:]]


@feel_function("remove", "list", "number")
def _remove(budget: Budget, items: list[Any], position: Number) -> list[Any] | None:
    place = _place(items, position)
    if place is None:
        return None
    budget.spend(len(items))
    return [*items[:place], *items[place + 1 :]]


@feel_function("reverse", "list")
def _reverse(budget: Budget, items: list[Any]) -> list[Any]:
    budget.spend(len(items))
    return list(reversed(items))


@feel_function("index of", "list", ANY)
def _index_of(budget: Budget, items: list[Any], item: Any) -> list[int]:
    return [number for number, one in enumerate(items, 1) if equal(one, item, budget)]


@feel_function("distinct values", "list")
def _distinct(budget: Budget, items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not any(equal(item, other, budget) for other in kept):
            kept.append(item)
    return kept


@feel_function("union", "list", repeated=True)
def _union(budget: Budget, *lists: list[Any]) -> list[Any]:
    return _distinct(budget, [item for items in lists for item in items])


@feel_function("flatten", "list")
def _flatten(budget: Budget, items: list[Any]) -> list[Any]:
    flat: list[Any] = []
    pending = [iter(items)]
    while pending:
        for item in pending[-1]:
            budget.spend()
            if isinstance(item, list | tuple):
                pending.append(iter(item))
                break
            flat.append(item)
        else:
            pending.pop()
    return flat


def _booleans(budget: Budget, values: tuple[Any, ...]) -> list[Any] | None:
    items = _several(budget, values)
    return items if all(item is None or isinstance(item, bool) for item in items) else None


@feel_function("all", ANY, repeated=True)
def _all(budget: Budget, *values: Any) -> bool | None:
    items = _booleans(budget, values)
    return None if items is None else False if False in items else None if None in items else True


@feel_function("any", ANY, repeated=True)
def _any(budget: Budget, *values: Any) -> bool | None:
    items = _booleans(budget, values)
    return None if items is None else True if True in items else None if None in items else False


# -- contexts -------------------------------------------------------------------------------------


@feel_function("get entries", "context")
def _get_entries(budget: Budget, context: Mapping[str, Any]) -> list[dict[str, Any]]:
    budget.spend(len(context))
    return [{"key": key, "value": value} for key, value in context.items()]


@feel_function("context put", "context", "text", ANY)
def _context_put(budget: Budget, context: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    budget.spend(len(context) + 1)
    return {**context, key: value}


@feel_function("context merge", "list")
def _context_merge(budget: Budget, contexts: list[Any]) -> dict[str, Any] | None:
    merged: dict[str, Any] = {}
    for context in contexts:
        if feel_kind(context) != "context":
            return None
        budget.spend(len(context))
        merged.update(context)
    return merged


@feel_function("context", "list")
def _context(budget: Budget, entries: list[Any]) -> dict[str, Any] | None:
    """A context of entries as `get entries` gives them."""
    made: dict[str, Any] = {}
    for entry in entries:
        budget.spend()
        if feel_kind(entry) != "context" or "value" not in entry or not isinstance(key := entry.get("key"), str):
            return None
        if key in made:
            return None
        made[key] = entry["value"]
    return made


@feel_function("stddev", ANY, repeated=True)
def _stddev(budget: Budget, *values: Any) -> Any:
    items = _several(budget, values)
    mean = _mean(budget, items)
    if len(items) < 2 or not is_number(mean):
        return None
    return deviation(items, mean)
