"""Print results: JSON for programs, blocks of fields for people. Tables are in tables.py.

Colors are used on a terminal only, and not with NO_COLOR. Text from outside (names, payloads, errors) is printed
without its control characters: the name of a signal must not be able to control the terminal.
"""

import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark.model.durations import duration
from hark.model.errors import InvalidInput

if TYPE_CHECKING:
    from hark.model.page import Page

_STYLES = {
    "done": "green", "RESOLVED": "green", "woke": "green", "ok": "green",
    "failed": "red", "REJECTED": "red", "TIMEOUT": "red", "error": "red",
    "held": "red", "awaiting_signal": "yellow", "awaiting_children": "yellow", "PENDING": "yellow", "warning": "yellow",
    "executing": "cyan", "runnable": "cyan", "cancelled": "dim", "CANCELLED": "dim",
}  # fmt: skip
_ANSI = {"green": "32", "red": "31", "yellow": "33", "cyan": "36", "dim": "2", "bold": "1"}


def print_json(value: Any) -> None:
    from hark.model import json

    print(json.dump_unchecked(value))


def print_result(value: Any, *, as_json: bool) -> None:
    """Print a value alone: text as it is, so that a script can use it, anything else as JSON."""
    if not isinstance(value, str) or as_json:
        print_json(value)
    elif sys.stdout.isatty():
        print(*map(printable, value.split("\n")), sep="\n")
    else:
        print(value)


def print_svg(svg: str, output: Path | None, *, as_json: bool) -> None:
    drawn = f"{svg.rstrip()}\n"
    if output is not None:
        try:
            output.write_text(drawn, "utf-8")
        except OSError as error:
            raise InvalidInput(f"{output} cannot be written: {error.strerror}. Give another file with -o.") from None
    elif as_json:
        print_json({"svg": drawn})
    else:
        print(drawn, end="")


def printable(value: Any) -> str:
    """Text without control characters; a value that is not text becomes JSON."""
    from hark.model import json

    text = value if isinstance(value, str) else json.dump_unchecked(value)
    return "".join(c if c.isprintable() or c == " " else c.encode("unicode_escape").decode() for c in text)


def print_next_page(found: "Page[Any]") -> None:
    """Say how to list the next page, if there is one."""
    if found.next is not None:
        print(f"There is more: run the same command with --after {found.next}.")


def shorten(value: Any, size: int = 60) -> str:
    text = printable(value)
    return text if len(text) <= size else text[: size - 1] + "…"


def ago(at: datetime | None) -> str:
    """A time relative to now: `3 min ago`, `in 2 h`."""
    if at is None:
        return "-"
    seconds = (datetime.now(UTC) - at).total_seconds()
    return f"in {duration(-seconds)}" if seconds < -0.5 else "just now" if seconds < 1 else f"{duration(seconds)} ago"


def when(at: datetime | None) -> str:
    return "-" if at is None else f"{ago(at)} ({exact(at)})"


def exact(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def age(since: datetime) -> str:
    """The age of a time: `3 min`."""
    return duration((datetime.now(UTC) - since).total_seconds())


def colored(text: str, style: str | None = None) -> str:
    """Color a text, on a terminal; without `style`, in the color of the status that it names."""
    style = _STYLES.get(text) if style is None else style
    if style is None or not _use_colors():
        return text
    return f"\x1b[{_ANSI[style]}m{text}\x1b[0m"


def _use_colors() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_traceback(text: str | None) -> None:
    """Print a traceback, if there is one, below an empty line."""
    if text:
        print("", *map(printable, text.splitlines()), sep="\n")


def print_fields(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print the fields of one thing, name and value per line, without those that have no value."""
    for name, value in pairs:
        if value is not None and value != "-":
            print(f"{name:<16} {colored(printable(value))}")
