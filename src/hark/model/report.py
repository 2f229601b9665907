"""Report: what new code does to what is live (V2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import wrap
from typing import Final

_COMMAND: Final = re.compile("`[^`]*`")
_WIDTH: Final = 80  # columns of a terminal
_SAMPLES: Final = 3  # instances that the text names for each cause
# Parts of an error that differ between instances with one cause: numbers, and the value that pydantic repeats.
_DATA: Final = re.compile(r"input_value=.*?(?=, input_type=)|\d+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LiveProblem:
    """An unfinished instance that does not go on with the code that was checked.

    Attributes:
        instance_id: The instance.
        definition: The name of its definition.
        version: The version that it runs.
        entry: The entry of its journal at which they differ; None if it is not in a journal.
        line: The line of the code, as "FILE:LINE"; or None.
        expected: What was committed, such as the operation in the journal.
        found: What the code has, or asks for.
        advice: What to do before the deploy.
        cause: What does not fit, without the data of the instance: the error that the code would raise, for example.
    """

    instance_id: str
    definition: str
    version: int
    entry: int | None
    line: str | None
    expected: str
    found: str
    advice: str
    cause: str


@dataclass(frozen=True, slots=True)
class Report:
    """The effect of the code that was checked on what is live.

    Attributes:
        continues: How many unfinished instances go on with it.
        problems: Those that do not.
        unneeded_patches: The names of patches that no unfinished instance needs any more: the calls can be removed.
    """

    continues: int
    problems: tuple[LiveProblem, ...]
    unneeded_patches: tuple[str, ...]

    def __str__(self) -> str:
        """The report as text: the problems by cause, the largest first."""
        causes: dict[tuple[str | int | None, ...], list[LiveProblem]] = {}
        for one in self.problems:
            cause = _DATA.sub("…", one.cause)
            causes.setdefault((one.definition, one.version, one.line, one.advice, cause), []).append(one)
        lines = [line for group in sorted(causes.values(), key=len, reverse=True) for line in _lines_of_cause(group)]
        stopped = len({one.instance_id for one in self.problems})
        total = self.continues + stopped
        lines.append(f"{self.continues} of {total} unfinished instance{'' if total == 1 else 's'} would go on.")
        lines += [
            f"ctx.patched({name!r}) is not needed any more: no unfinished instance runs the code before it."
            for name in self.unneeded_patches
        ]
        return "\n".join(lines)


def _lines_of_cause(problems: Sequence[LiveProblem]) -> list[str]:
    first, count = problems[0], len(problems)
    ids = ", ".join(one.instance_id for one in problems[:_SAMPLES])
    parts = {
        "expected": first.expected + ("" if first.entry is None else f", entry {first.entry} of the journal"),
        "found": first.found,
        "line": first.line,
        "instances": ids + (f" and {count - _SAMPLES} more" if count > _SAMPLES else ""),
        "to do": first.advice,
    }
    shown = [_wrapped(f"  {name:10} ", text) for name, text in parts.items() if text is not None]
    return [f"{first.definition} version {first.version}: {count} would not go on", *chain(*shown), ""]


def _wrapped(name: str, text: str) -> list[str]:
    whole = _COMMAND.sub(lambda command: command[0].replace(" ", "\0"), text)  # to be copied from one line
    indent = " " * len(name)
    lines = wrap(
        whole, _WIDTH, initial_indent=name, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]
