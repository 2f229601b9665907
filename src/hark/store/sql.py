"""Sql: one text per statement, compiled for both databases.

A statement is written once, in PostgreSQL's SQL with three kinds of placeholder:

    placeholder                 PostgreSQL                       SQLite
    :now                        $1                               :now
    id IN :ids[text]            id = ANY(list of text)           id IN (SELECT value FROM json_each(:ids))
    {rows: id text, n bigint}   unnest(list, list) AS r(id, n)   a json_each of [[…], …], named r

`r.ord` counts the rows from 1, so an INSERT can keep the order of its list. Casts and row locks are removed for SQLite,
which has one writer and needs neither. Where the databases really differ, the statement has a second text for SQLite,
with the reason in a comment.

A list is sent to PostgreSQL as one text: its items joined with a control character that JSON and names do not contain.
Encoding an array in the driver costs about 1.5 µs per row of four columns, this costs a third of that. If an item does
contain a separator, the statement is sent in a second form, with arrays.
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
_SEPARATOR: Final = "\x1f"
_NULL: Final = "\x1e"
_LOCK: Final = re.compile(r"\bFOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?")
_TABLE: Final = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE|USING)\s+([a-z_]+)\b")
_RECURSIVE: Final = re.compile(r"\s*WITH RECURSIVE\b")


def _columns(text: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, _, kind in (part.strip().partition(" ") for part in text.split(","))]


class Row(msgspec.Struct, frozen=True, gc=False):
    """The base of row types (`class Details(Row, frozen=True)`): one field per column, in the order of the SELECT.

    A store builds them without checks or conversions, so a boolean is 0 or 1 when it comes from SQLite.
    """

    @classmethod
    def columns(cls) -> str:
        """The fields as a list of columns, for statements that read these columns of a table."""
        return ", ".join(cls.__struct_fields__)


R = TypeVar("R")


class Sql(Generic[R]):
    """A statement: its text for each store, the order of its parameters and the type of its rows.

    With `row`, `Tx.fetch` and `Store.read` return a list of that type; without it they return what the driver
    returns (tuples or records), which callers unpack by position. Statements of the hot path have no row type.

    With `joinable`, it returns nothing and only writes rows that the locks of its turn protect: a store may send it
    together with a later statement of the turn (joined_writes.py).
    """

    @overload
    def __init__(self: Sql[Any], text: str, *, sqlite: str | None = None, joinable: bool = False) -> None: ...
    @overload
    def __init__(self, text: str, *, sqlite: str | None = None, row: type[R]) -> None: ...
    def __init__(
        self, text: str, *, sqlite: str | None = None, row: type[R] | None = None, joinable: bool = False
    ) -> None:
        self.row = row
        self.joinable = joinable
        self._text = text
        self._sqlite_text = sqlite
        rows = _ROWS.search(text)
        self.columns: tuple[str, ...] = ()
        self._kinds: tuple[str, ...] = ()
        if rows:
            self.columns, self._kinds = zip(*_columns(rows.group(1)), strict=True)
        self.names: list[str] = []
        self._lists = {name: kind for name, kind in _LIST.findall(text)}

    # Compiled at the first use: of more than a hundred statements most processes send a few.

    @cached_property
    def postgres(self) -> str:
        """The text for PostgreSQL, with every list as one text."""
        return self._for_postgres(self._text, _as_text)

    @cached_property
    def arrays(self) -> str:
        """The text for PostgreSQL, with every list as an array."""
        return self._for_postgres(self._text, "{}::{}[]".format)

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that the statement reads or writes; names that are not tables may be among them."""
        return frozenset(_TABLE.findall(self._text))

    @cached_property
    def can_follow_writes(self) -> bool:
        """True when PostgreSQL accepts further WITH clauses in front of this statement."""
        return _RECURSIVE.match(self._text) is None

    @cached_property
    def sqlite(self) -> str:
        """The text for SQLite, with every list as a JSON text."""
        return self._for_sqlite(self._sqlite_text or self._text)

    def _number(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return f"${len(self.columns) + self.names.index(name) + 1}"

    def _for_postgres(self, text: str, list_of: Callable[[str, str], str]) -> str:
        def rows(match: re.Match[str]) -> str:
            columns = _columns(match.group(1))
            lists = ", ".join(list_of(f"${n}", kind) for n, (_, kind) in enumerate(columns, 1))
            return f"unnest({lists}) WITH ORDINALITY AS r({', '.join(name for name, _ in columns)}, ord)"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(lambda m: f"= ANY({list_of(self._number(m[1]), m[2])})", text)
        return _VALUE.sub(lambda m: self._number(m[1]), text)

    def _for_sqlite(self, text: str) -> str:
        def rows(match: re.Match[str]) -> str:
            picked = ", ".join(f"value ->> {n} AS {name}" for n, (name, _) in enumerate(_columns(match.group(1))))
            return f"(SELECT {picked}, key + 1 AS ord FROM json_each(:rows)) AS r"

        text = _ROWS.sub(rows, text)
        text = _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", text)
        return _LOCK.sub("", _CAST.sub("", text))

    def bind(self, rows: Sequence[Sequence[Any]] | None, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
        """Return the text to send to PostgreSQL and its parameters: the columns of `rows`, then the values.

        Raises:
            ValueError: The rows differ in length.
        """
        text = self.postgres  # compiling it fills `names`
        columns: list[Sequence[Any]] = []
        if self.columns:
            assert rows is not None
            columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.columns]
        try:
            parameters: list[Any] = list(map(_join, columns, self._kinds))
            for name in self.names:
                value, kind = values[name], self._lists.get(name)
                parameters.append(value if kind is None else _join(value, kind))
        except _Inseparable:
            return self.arrays, [*columns, *(values[name] for name in self.names)]
        return text, parameters


class _Inseparable(Exception):
    """An item contains a separator: the list cannot be joined into one text."""


def _as_text(parameter: str, kind: str) -> str:
    cast = "" if kind == "text" else f"::{kind}[]"
    return f"string_to_array({parameter}::text, '{_SEPARATOR}', '{_NULL}'){cast}"


def _join(items: Sequence[Any], kind: str) -> str:
    if kind != "text":
        return _SEPARATOR.join([_NULL if item is None else str(item) for item in items])
    nulls = 0
    try:
        text = _SEPARATOR.join(items)
    except TypeError:
        nulls = sum(item is None for item in items)
        text = _SEPARATOR.join([_NULL if item is None else item for item in items])
    # PostgreSQL reads one empty text as a list without items.
    if items and (text.count(_SEPARATOR) != len(items) - 1 or text.count(_NULL) != nulls or not text):
        raise _Inseparable
    return text
