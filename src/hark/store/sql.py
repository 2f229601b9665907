"""One text per statement, for both databases.

A statement is written once, in PostgreSQL's words plus three marks, and compiled for each store:

    :now                        a value
    id IN :ids[text]            id = ANY(a list of text)   | id IN (SELECT value FROM json_each(:ids))
    {rows: id text, n bigint}   unnest(list, list) r(…)    | a json_each of [[…], …] named r

`r.ord` counts the rows from one, so an INSERT can keep the order of its list. Casts and row locks
are dropped for SQLite, which has one writer and needs neither. Where the two really differ a
statement has a text of its own, with the reason beside it.

A list goes to PostgreSQL as one text, its items between separators that JSON and names have no use for:
a driver's array costs about a microsecond and a half per row of four, this a third of that. Should an item
contain a separator after all, the statement is sent in its other form, with arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

_VALUE: Final = re.compile(r"(?<![:\w]):([a-z_]+)\b(?!\[)")
_LIST: Final = re.compile(r"\bIN :([a-z_]+)\[(\w+)\]")
_ROWS: Final = re.compile(r"\{rows: ([^}]+)\}")
_CAST: Final = re.compile(r"::[a-z]+(?: precision)?(\[\])?")
_BETWEEN: Final = "\x1f"
_NULL: Final = "\x1e"
_LOCK: Final = re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?")


def _columns(text: str) -> list[tuple[str, str]]:
    """`id text, n bigint` as pairs of name and type."""
    return [(name, kind) for name, _, kind in (part.strip().partition(" ") for part in text.split(","))]


class Row(msgspec.Struct, frozen=True, gc=False):
    """The base of row types (`class Details(Row, frozen=True)`): one field per column, in the order of the SELECT.

    A store builds them without checks or conversions, so a boolean is 0 or 1 when it comes from SQLite.
    """


R = TypeVar("R")


class Sql(Generic[R]):
    """A statement: its text for each store, the order of its parameters and the type of its rows.

    With `row`, `Tx.fetch` and `Store.read` return a list of that type; without it they return what the driver
    returns (tuples or records), which callers unpack by position. Statements of the hot path have no row type.
    """

    @overload
    def __init__(self: Sql[Any], text: str, *, sqlite: str | None = None) -> None: ...
    @overload
    def __init__(self, text: str, *, sqlite: str | None = None, row: type[R]) -> None: ...
    def __init__(self, text: str, *, sqlite: str | None = None, row: type[R] | None = None) -> None:
        self.row = row
        self._text = text
        self._other = sqlite
        rows = _ROWS.search(text)
        self.columns: tuple[str, ...] = ()
        self._kinds: tuple[str, ...] = ()
        if rows:
            self.columns, self._kinds = zip(*_columns(rows.group(1)), strict=True)
        self.names: list[str] = []
        self._lists = {name: kind for name, kind in _LIST.findall(text)}

    # Compiled when it is first sent: of a hundred statements a process sends a few.

    @cached_property
    def postgres(self) -> str:
        return self._for_postgres(self._text, _as_text)

    @cached_property
    def arrays(self) -> str:
        return self._for_postgres(self._text, "{}::{}[]".format)

    @cached_property
    def sqlite(self) -> str:
        return self._for_sqlite(self._other or self._text)

    def _number(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return f"${len(self.columns) + self.names.index(name) + 1}"

    def _for_postgres(self, text: str, a_list: Callable[[str, str], str]) -> str:
        def rows(match: re.Match[str]) -> str:
            columns = _columns(match.group(1))
            lists = ", ".join(a_list(f"${n}", kind) for n, (_, kind) in enumerate(columns, 1))
            return f"unnest({lists}) WITH ORDINALITY AS r({', '.join(name for name, _ in columns)}, ord)"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(lambda m: f"= ANY({a_list(self._number(m[1]), m[2])})", text)
        return _VALUE.sub(lambda m: self._number(m[1]), text)

    def _for_sqlite(self, text: str) -> str:
        def rows(match: re.Match[str]) -> str:
            picked = ", ".join(f"value ->> {n} AS {name}" for n, (name, _) in enumerate(_columns(match.group(1))))
            return f"(SELECT {picked}, key + 1 AS ord FROM json_each(:rows)) AS r"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", text)
        return _LOCK.sub("", _CAST.sub("", text))

    def ask(self, rows: Sequence[Sequence[Any]] | None, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """The statement as PostgreSQL is sent it, and its parameters: the columns of `rows`, then the values."""
        text = self.postgres  # which numbers the names
        columns: list[Sequence[Any]] = []
        if self.columns:
            assert rows is not None
            columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.columns]
        try:
            given: list[Any] = list(map(_joined, columns, self._kinds))
            for name in self.names:
                value, kind = values[name], self._lists.get(name)
                given.append(value if kind is None else _joined(value, kind))
        except _Inseparable:
            return self.arrays, [*columns, *(values[name] for name in self.names)]
        return text, given


class _Inseparable(Exception):
    """An item contains what stands between them."""


def _as_text(parameter: str, kind: str) -> str:
    cast = "" if kind == "text" else f"::{kind}[]"
    return f"string_to_array({parameter}::text, '{_BETWEEN}', '{_NULL}'){cast}"


def _joined(items: Sequence[Any], kind: str) -> str:
    """The items as one text."""
    if kind != "text":
        return _BETWEEN.join([_NULL if item is None else str(item) for item in items])
    nulls = 0
    try:
        text = _BETWEEN.join(items)
    except TypeError:
        nulls = sum(item is None for item in items)
        text = _BETWEEN.join([_NULL if item is None else item for item in items])
    # One empty text would be read as no item at all.
    if items and (text.count(_BETWEEN) != len(items) - 1 or text.count(_NULL) != nulls or not text):
        raise _Inseparable
    return text
