"""How answers are printed: JSON for programs, tables and blocks for people.

rich is imported when a print_table is drawn. Colours only on a terminal, and none with NO_COLOR. What others
wrote (names, payloads, errors) is printed without its control characters: a signal must not be able to
move the cursor of whoever looks at it.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_STYLES = {
    "done": "green", "RESOLVED": "green", "woke": "green", "ok": "green",
    "failed": "red", "REJECTED": "red", "TIMEOUT": "red", "wrong": "red",
    "awaiting_signal": "yellow", "awaiting_children": "yellow", "PENDING": "yellow", "look": "yellow",
    "executing": "cyan", "runnable": "cyan", "cancelled": "dim", "CANCELLED": "dim",
}  # fmt: skip
_ANSI = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}


def print_json(value: Any) -> None:
    """As JSON, on one line."""
    from hark.model import json

    print(json.dump(value))


def printable(value: Any) -> str:
    """Text that cannot steer a terminal; JSON for what is not text."""
    from hark.model import json

    text = value if isinstance(value, str) else json.dump(value)
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


def shorten(value: Any, size: int = 60) -> str:
    text = printable(value)
    return text if len(text) <= size else text[: size - 1] + "…"


def ago(at: datetime | None) -> str:
    """`3 min ago`, `in 2 h`."""
    if at is None:
        return "-"
    seconds = (datetime.now(UTC) - at).total_seconds()
    return f"in {duration(-seconds)}" if seconds < -0.5 else "just now" if seconds < 1 else f"{duration(seconds)} ago"


def duration(seconds: float) -> str:
    """A duration in its largest unit, rounded: `7 d` a moment before a week is over, `1 h` after 59 min 40 s."""
    for (size, unit), (smaller, _) in zip(_UNITS, [*_UNITS[1:], (1, "")], strict=True):
        if round(seconds / smaller) * smaller >= size:
            return f"{round(seconds / size)} {unit}"
    return "0 s"


def when(at: datetime | None) -> str:
    """Both: for the eye and for the record."""
    return "-" if at is None else f"{ago(at)} ({at:%Y-%m-%d %H:%M:%S} UTC)"


def colored(text: str, style: str | None = None) -> str:
    """A word in its colour, on a terminal."""
    style = _STYLES.get(text) if style is None else style
    if style is None or not _colours():
        return text
    return f"\x1b[{_ANSI[style]}m{text}\x1b[0m"


def _colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], nothing: str) -> None:
    """Rows under their names. In a pipe nothing is wrapped or cut."""
    rows = [[printable(cell) for cell in row] for row in rows]
    if not rows:
        print(nothing)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        drawn.add_column(column, overflow="fold", no_wrap=number == 0)
    for row in rows:
        drawn.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10_000
    Console(width=width, highlight=False, force_terminal=_colours()).print(drawn)


def print_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """One thing: name and value per line; what is not there is left out."""
    for name, value in pairs:
        if value is not None and value != "-":
            print(f"{name:<16} {colored(printable(value))}")
