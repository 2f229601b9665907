"""Join several writes of a turn into one statement: a round trip for all of them instead of one for each.

A write that returns nothing (`Sql(…, joinable=True)`) is not sent at once. It goes with the next statement of its
transaction, as a WITH clause of it. All parts of such a statement have the same snapshot and do not see each other's
writes, so they must not have a table in common: otherwise the earlier writes are sent first.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from hark.store.sql import Sql

_PARAMETER: Final = re.compile(r"\$(\d+)")
_WITH: Final = re.compile(r"\s*WITH\b")


class JoinedWrites:
    """The writes of one transaction that have not been sent."""

    __slots__ = ("_parameters", "_parts", "_tables")

    def __init__(self) -> None:
        self._parts: list[tuple[str, int]] = []  # texts, each with the number of its parameters
        self._parameters: list[Any] = []
        self._tables: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def allow(self, sql: Sql[Any]) -> bool:
        """Return True when this statement may be joined with the waiting writes."""
        return sql.can_follow_writes and self._tables.isdisjoint(sql.tables)

    def add(self, sql: Sql[Any], text: str, parameters: list[Any]) -> None:
        self._parts.append((text, len(parameters)))
        self._parameters += parameters
        self._tables |= sql.tables

    def take(self) -> tuple[str, list[Any]]:
        """Return one statement for all waiting writes, with its parameters, and forget the writes."""
        text, parameters = _joined(tuple(self._parts)), self._parameters
        self._parts, self._parameters, self._tables = [], [], set()
        return text, parameters


@lru_cache(maxsize=256)
def _joined(parts: tuple[tuple[str, int], ...]) -> str:
    """The last part, with the others as its WITH clause. The numbers of parameters continue from part to part."""
    texts: list[str] = []
    before = 0
    for text, count in parts:
        texts.append(_renumbered(text, before))
        before += count
    *writes, last = texts
    if not writes:
        return last
    clauses = ", ".join(f"joined_{nth} AS ({text})" for nth, text in enumerate(writes, 1))
    own = _WITH.match(last)
    return f"WITH {clauses} {last}" if own is None else f"WITH {clauses},{last[own.end() :]}"


def _renumbered(text: str, before: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + before}", text)
