"""A journal as one text: what `one_call_turn` joins is split into the same lines, or not at all."""

from __future__ import annotations

import pytest

from hark.kernel.joined_journal import read_joined
from hark.model.activation import JournalRow

RUNS = [JournalRow(n, n, "run", f"f{n}", str(n), None) for n in range(3)]
MIXED = [
    JournalRow(0, 4, "anew", None, None, None),
    JournalRow(1, 5, "run", "f", "1", None),
    JournalRow(2, 2, "run", "f", None, '{"type": "HarkError"}'),
    JournalRow(3, 6, "sleep", None, "null", None),
    JournalRow(4, 7, "run", "f", None, '{"type": "RunFailed"}'),
]


def joined(rows: list[JournalRow]) -> str:
    """As the database does it."""
    columns = [
        ["" if row.entry == row.seq else str(row.entry) for row in rows],
        ["" if row.kind == "run" else row.kind for row in rows],
        [row.name or "" for row in rows],
        [row.value or "" for row in rows],
        [text for row in rows if row.error is not None for text in (str(row.seq), row.error)],
    ]
    return "\x1d".join([str(rows[-1].seq), *("\x1f".join(column) for column in columns)])


@pytest.mark.parametrize("rows", [RUNS, RUNS[:1], MIXED, MIXED[:1], MIXED[:3]])
def test_the_lines_of_a_text_are_those_that_were_joined(rows: list[JournalRow]) -> None:
    assert read_joined(joined(rows)) == rows


@pytest.mark.parametrize("separator", ["\x1d", "\x1f"])
@pytest.mark.parametrize("column", ["name", "value", "error"])
def test_a_text_with_a_separator_in_an_item_is_not_split(column: str, separator: str) -> None:
    for at in ("{}", "a{}", "{}a", "a{}b", "{0}{0}"):
        row = JournalRow(1, 1, "run", "f", "1", '{"type": "HarkError"}')
        setattr(row, column, at.format(separator))
        assert read_joined(joined([RUNS[0], row, RUNS[2]])) is None


def test_a_journal_with_a_gap_is_not_split() -> None:
    assert read_joined(joined([RUNS[0], RUNS[2]])) is None


def test_text_in_another_form_is_not_split() -> None:
    assert read_joined('[[0,0,"run","f","1",null]]') is None
