"""Problem: one mistake in a definition file, with the place where it is."""

from __future__ import annotations

from dataclasses import dataclass


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
