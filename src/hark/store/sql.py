"""One text per statement, for both databases.

A statement is written once, in PostgreSQL's words plus three marks, and compiled for each store:

    :now                        a value
    id IN :ids[text]            id = ANY($1::text[])       | id IN (SELECT value FROM json_each(:ids))
    {rows: id text, n bigint}   unnest($1::…, $2::…) r(…)  | a json_each of [[…], …] named r

`r.ord` counts the rows from one, so an INSERT can keep the order of its list. Casts and row locks
are dropped for SQLite, which has one writer and needs neither. Where the two really differ a
statement has a text of its own, with the reason beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_VALUE: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b(?!\[)")
_LIST: Final = re.compile(r"\bIN :([a-z_]+)\[(\w+)\]")
_ROWS: Final = re.compile(r"\{rows: ([^}]+)\}")
_CAST: Final = re.compile(r"::[a-z]+(?: precision)?(\[\])?")
_LOCK: Final = re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?")


def _columns(text: str) -> list[tuple[str, str]]:
    """`id text, n bigint` as pairs of name and type."""
    return [(name, kind) for name, _, kind in (part.strip().partition(" ") for part in text.split(","))]


class Sql:
    """A statement: its text for each store, and the order of its parameters."""

    __slots__ = ("columns", "names", "postgres", "sqlite")

    def __init__(self, text: str, *, sqlite: str | None = None) -> None:
        rows = _ROWS.search(text)
        self.columns: tuple[str, ...] = ()
        if rows:
            self.columns = tuple(name for name, _ in _columns(rows.group(1)))
        self.names: list[str] = []
        self.postgres = self._for_postgres(text)
        self.sqlite = self._for_sqlite(sqlite or text)

    def _number(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return f"${len(self.columns) + self.names.index(name) + 1}"

    def _for_postgres(self, text: str) -> str:
        def rows(match: re.Match[str]) -> str:
            arrays, names = [], []
            for n, (name, kind) in enumerate(_columns(match.group(1)), 1):
                arrays.append(f"${n}::{kind}[]")
                names.append(name)
            return f"unnest({', '.join(arrays)}) WITH ORDINALITY AS r({', '.join(names)}, ord)"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(lambda m: f"= ANY({self._number(m[1])}::{m[2]}[])", text)
        return _VALUE.sub(lambda m: self._number(m[1]), text)

    def _for_sqlite(self, text: str) -> str:
        def rows(match: re.Match[str]) -> str:
            picked = ", ".join(f"value ->> {n} AS {name}" for n, (name, _) in enumerate(_columns(match.group(1))))
            return f"(SELECT {picked}, key + 1 AS ord FROM json_each(:rows)) AS r"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", text)
        return _LOCK.sub("", _CAST.sub("", text))

    def arguments(self, rows: Sequence[Sequence[Any]] | None, values: Mapping[str, Any]) -> list[Any]:
        """The parameters in PostgreSQL's order: the columns of `rows`, then the values."""
        given: list[Any] = []
        if self.columns:
            assert rows is not None
            given.extend(zip(*rows, strict=True) if rows else ([] for _ in self.columns))
        given.extend(values[name] for name in self.names)
        return given
