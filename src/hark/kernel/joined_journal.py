"""Read a journal that `one_call_turn` returns as one text: its columns, and in each the items of all lines.

The database builds such a text in half the time of JSON, and here it is split in a quarter of the time (FINDINGS 84).
Values and errors are JSON, which contains no control characters, but a name may contain one. Then the text has more
parts than it should, and the caller reads the journal line by line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hark.model.activation import JournalRow

_COLUMN: Final = "\x1d"  # as in store/schema/functions.sql
_ITEM: Final = "\x1f"
_COLUMNS: Final = 6


def read_joined(text: str) -> list[JournalRow] | None:
    """The lines of a journal that has at least one; None if the text cannot be split.

    An empty item is NULL, because no name, value or error is empty; an empty entry is the number of its line, an empty
    kind is `run`. Errors are few: their column has pairs of the number of a line and its error.
    """
    columns = text.split(_COLUMN)
    if len(columns) != _COLUMNS:
        return None
    last, entries, kinds, names, values, errors = columns
    count = int(last) + 1
    found: list[Sequence[Any]] = [
        range(count) if len(entries) == count - 1 else _entries(entries),
        ["run"] * count if len(kinds) == count - 1 else [kind or "run" for kind in kinds.split(_ITEM)],
        _texts(names),
        _texts(values),
    ]
    pairs = errors.split(_ITEM) if errors else []
    if any(len(items) != count for items in found) or not all(map(str.isdecimal, pairs[::2])):
        return None  # also if the numbers of the lines have a gap, which the engine does not leave
    of_lines: list[str | None] = [None] * count
    for number, error in zip(pairs[::2], pairs[1::2], strict=False):
        of_lines[int(number)] = error
    return list(map(JournalRow, range(count), *found, of_lines))


def _texts(column: str) -> list[str] | list[str | None]:
    items = column.split(_ITEM)
    return [item or None for item in items] if "" in items else items


def _entries(column: str) -> list[int]:
    return [int(item) if item else nth for nth, item in enumerate(column.split(_ITEM))]
