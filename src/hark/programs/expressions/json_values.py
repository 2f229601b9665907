"""The values of expressions: null, true, false, numbers, texts, lists and objects, as JSON has them.

A value is never converted silently. True is not 1, "1" is not 1, but 1 and 1.0 are the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from hark.programs.expressions.budget import Budget

Kind = Literal["null", "true or false", "number", "text", "list", "object"]

_WORD = 64  # bits
_encode = msgspec.json.Encoder().encode


class WrongValue(Exception):
    """A value is not one that the operator or function can use; the evaluator adds the position."""


def kind_of(value: Any) -> Kind:
    """The type of a value, as messages call it. Raises WrongValue if it is not a value of JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, Mapping):
        return "object"
    raise WrongValue(f"A value of the Python type {type(value).__name__} is not JSON")


def is_same(left: Any, right: Any, budget: Budget) -> bool:
    """Return True if two values are equal as JSON; values of different types are not. A loop: depth is no limit."""
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        budget.spend()
        kind = kind_of(one)
        if kind != kind_of(other):
            return False
        if kind == "list":
            if len(one) != len(other):
                return False
            budget.spend(len(one))
            pending.extend(zip(one, other, strict=True))
        elif kind == "object":
            if len(one) != len(other):
                return False
            budget.spend(len(one))
            for key, value in one.items():
                if key not in other:
                    return False
                pending.append((value, other[key]))
        else:
            if kind == "text":
                budget.spend_text(min(len(one), len(other)))
            if one != other:
                return False
    return True


def as_text(value: Any, budget: Budget) -> str:
    """A text as it is; everything else as its JSON."""
    if isinstance(value, str):
        budget.spend_text(len(value))
        return value
    return as_json(value, budget)


def as_json(value: Any, budget: Budget) -> str:
    """The JSON of a value. Its size is counted before it is written, so that the budget bounds the time too."""
    budget.spend_text(_size(value, budget))
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as cause:
        raise WrongValue(f"The value cannot be written as JSON: {cause}") from cause


def _size(value: Any, budget: Budget) -> int:
    """About the number of characters of its JSON."""
    size, pending = 0, [value]
    while pending:
        part = pending.pop()
        budget.spend()
        kind = kind_of(part)
        if kind == "text":
            size += len(part) + 2
        elif kind == "list":
            budget.spend(len(part))
            pending.extend(part)
        elif kind == "object":
            budget.spend(len(part))
            if not all(isinstance(key, str) for key in part):
                raise WrongValue("An object has a key that is not a text")
            size += sum(len(key) + 4 for key in part)
            pending.extend(part.values())
        elif type(part) is int and part.bit_length() > _WORD:  # to write it takes the square of its length
            budget.spend(part.bit_length() // 8)
            size += part.bit_length() // 3
        else:
            size += 8
    return size
