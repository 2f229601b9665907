"""Problem: a mistake in a definition file, with its place. ProblemList: the mistakes of a file that is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hark.model.errors import InvalidDefinition

_MAX_PROBLEMS: Final = 100  # a file of a megabyte can have 100,000, and to find the nearest known word takes long
_SHOWN: Final = 20  # in the message; `.problems` has all


@dataclass(frozen=True)
class Problem:
    """A mistake in a job file or a process, as `InvalidDefinition.problems` lists it.

    Attributes:
        element: The task or element that has the mistake; None if it concerns the whole file.
        line: The line of the file, from 1; None if the definition does not come from a text.
        message: What is wrong, and what to do.
    """

    element: str | None
    line: int | None
    message: str

    def __str__(self) -> str:
        place = [f"line {self.line}"] if self.line is not None else []
        if self.element is not None:
            place.append(self.element)
        return f"{', '.join(place)}: {self.message}" if place else self.message


class TooManyProblems(Exception):
    """A file has so many problems that the rest of it is not read."""


class ProblemList(list[Problem]):
    """The problems of a file, in the order in which they are found."""

    def report(self, element: str | None, line: int | None, message: str) -> None:
        """Keep a problem, once: a mistake in the `defaults:` of a job reaches many tasks.

        Raises:
            TooManyProblems: There are enough to show.
        """
        problem = Problem(element, line, message)
        if problem not in self:
            self.append(problem)
        if len(self) == _MAX_PROBLEMS:
            raise TooManyProblems

    def error(self, label: str) -> InvalidDefinition:
        """The error of the file that `label` names, with its problems in the order of their lines."""
        ordered = sorted(self, key=lambda problem: problem.line or 0)
        shown = [f"  {problem}" for problem in ordered[:_SHOWN]]
        if len(ordered) > _SHOWN:
            shown.append(f"  and {len(ordered) - _SHOWN} more")
        least = "at least " if len(ordered) == _MAX_PROBLEMS else ""
        what = "a problem" if len(ordered) == 1 else f"{least}{len(ordered)} problems"
        return InvalidDefinition("\n".join([f"{label} has {what}:", *shown]), problems=ordered)
