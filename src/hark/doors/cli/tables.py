"""Tables that fit the terminal: columns are left out by importance, then long cells are cut. No line is wrapped.

In a pipe, in a file and with `--wide` everything is printed; COLUMNS sets the width anywhere.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence

from hark.doors.cli.output import colored, printable

_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GAP = "  "
_COMFORTABLE = 24  # columns are cut to this width before one is left out
_NARROWEST = 8  # and never below this one


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    if_empty: str,
    *,
    drop: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Print a table, or `if_empty` without rows.

    Args:
        columns: The names of the columns. The first one identifies a row: it is cut last.
        rows: The cells of each row.
        if_empty: What to print instead of a table without rows.
        drop: The columns that may be left out of a narrow table, the least important first.
        wide: Whether to print everything, however wide the terminal is.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    if not cells:
        print(if_empty)
        return
    table = [list(columns), *cells]
    widths = fit([max(_width(row[n]) for row in table) for n in range(len(columns))], columns, drop, line_width(wide))
    for number, row in enumerate(table):
        shown = [(_cut(cell, width), width) for cell, width in zip(row, widths, strict=True) if width]
        line = _GAP.join(
            colored(cell, None if number else "bold") + " " * (width - _width(cell)) for cell, width in shown
        )
        print(line.rstrip())


def shown_ids(ids: Iterable[str], wide: bool = False) -> dict[str, str]:
    """The printed form of each id: whole, or for a terminal the first characters that tell the ids apart.

    Commands accept these too. The first 13 are the time in milliseconds, which is not enough for instances that were
    started together. An id that a caller has chosen stays whole.
    """
    ids = set(ids)
    made = {id for id in ids if _UUID.fullmatch(id)} if line_width(wide) is not None else set()
    length = 13
    while len({id[:length] for id in made}) < len(made):
        length += 1
    return {id: id[:length] if id in made else id for id in ids}


def line_width(wide: bool = False) -> int | None:
    """The maximum width of a line; None for any width."""
    if wide or not (sys.stdout.isatty() or os.environ.get("COLUMNS")):
        return None
    return shutil.get_terminal_size().columns


def fit(natural: Sequence[int], columns: Sequence[str], drop: Sequence[str], limit: int | None) -> list[int]:
    """The width of each column, 0 for one that is left out, so that a line is at most `limit` wide."""
    widths = list(natural)
    if limit is None:
        return widths

    def excess(least: int) -> int:
        """The number of columns of the terminal that are missing if the columns after the first are cut to `least`."""
        used = [widths[0], *(min(width, least) for width in widths[1:] if width)]
        return sum(used) + len(_GAP) * (len(used) - 1) - limit

    for name in drop:
        if excess(_COMFORTABLE) > 0:
            widths[columns.index(name)] = 0
    most = max(widths)
    while most > _NARROWEST and excess(most) > 0:
        most -= 1
    widths = [widths[0], *(min(width, most) for width in widths[1:])]
    widths[0] -= max(0, min(excess(most), widths[0] - _NARROWEST))
    return widths


def cut_line(line: str, limit: int | None) -> str:
    """Cut a line of text to a width of at most `limit`."""
    return line if limit is None else _cut(line, limit)


def _cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - 1).rstrip() + "…"


def _width(text: str) -> int:
    """The columns of a terminal that a text takes: two for a character of East Asia, none for an accent."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
