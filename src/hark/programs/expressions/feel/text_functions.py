"""The functions of FEEL on texts. Characters are counted from 1, and from the end if the number is negative."""

from __future__ import annotations

import re
from typing import Any

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel.numbers import Number, whole
from hark.programs.expressions.feel.registry import ANY, feel_function, plain_function, text_function
from hark.programs.expressions.feel.values import feel_text

_ESCAPE = re.compile(r"\\(.)")

plain_function("string length", len, "text")
text_function("upper case", str.upper)
text_function("lower case", str.lower)
text_function("trim", str.strip)
text_function("substring after", lambda text, part: text.partition(part)[2] if part else text, "text")
text_function("contains", lambda text, part: part in text, "text")


@feel_function("string", ANY)
def _string(budget: Budget, value: Any) -> str | None:
    return None if value is None else feel_text(value, budget)


@feel_function("substring", "text", "number", "number", optional=1)
def _substring(budget: Budget, text: str, start: Number, length: Number | None = None) -> str | None:
    first = whole(start)
    if not first or abs(first) > len(text):
        return None
    count = len(text) if length is None else whole(length)
    if count < 1:
        return None
    budget.spend_text(len(text))
    begin = first - 1 if first > 0 else len(text) + first
    return text[begin : begin + count]


@feel_function("substring before", "text", "text")
def _substring_before(budget: Budget, text: str, part: str) -> str:
    budget.spend_text(len(text))
    before, found, _ = text.partition(part) if part else ("", "", "")
    return before if found else ""


@feel_function("starts with", "text", "text")
def _starts_with(budget: Budget, text: str, start: str) -> bool:
    budget.spend_text(len(start))
    return text.startswith(start)


@feel_function("ends with", "text", "text")
def _ends_with(budget: Budget, text: str, end: str) -> bool:
    budget.spend_text(len(end))
    return text.endswith(end)


@feel_function("split", "text", "text")
def _split(budget: Budget, text: str, delimiter: str) -> list[str] | None:
    r"""The parts between the delimiter, which is not a pattern; only `\s` stands for any space and `\.` for a point."""
    budget.spend_text(len(text))
    budget.spend_text(len(delimiter))
    if not delimiter:
        return None
    spaces = delimiter in (r"\s", r"\s+")
    parts = re.split(delimiter, text) if spaces else text.split(_ESCAPE.sub(r"\1", delimiter))
    budget.spend(len(parts))
    return parts


@feel_function("string join", "list", ANY, optional=1)
def _string_join(budget: Budget, items: list[Any], delimiter: Any = None) -> str | None:
    """The texts of a list, without those that are null, with the delimiter between them."""
    budget.spend(len(items))
    texts = [item for item in items if item is not None]
    if not all(isinstance(text, str) for text in texts) or not (delimiter is None or isinstance(delimiter, str)):
        return None
    between = delimiter or ""
    budget.spend_text(sum(map(len, texts)) + len(between) * len(texts))
    return between.join(texts)
