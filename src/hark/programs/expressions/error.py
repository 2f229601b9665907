"""ExpressionError: what is wrong in an expression, and where."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from hark.model.errors import HarkError

_AROUND = 40  # characters of a long expression that are shown on each side of the position
_MOST_NAMES = 12
_MOST_COMPARED = 1_000  # known names that are compared with a misspelled one
_LONGEST_COMPARED = 100  # characters; comparing two names takes time by the product of their lengths


class ExpressionError(HarkError, ValueError):
    """An expression cannot be compiled, or cannot be evaluated with the variables it was given.

    Attributes:
        problem: What is wrong, without the place.
        expression: The whole text that was compiled.
        position: The index in that text, from 0, of the part that is wrong.
    """

    def __init__(self, message: str, expression: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1} of {_excerpt(expression, position)})")
        self.problem = message
        self.expression = expression
        self.position = position


class MissingValue(ExpressionError):
    """A name, key or index that does not exist. `default` replaces it."""


def _excerpt(text: str, position: int) -> str:
    start, end = max(0, position - _AROUND), position + _AROUND
    return f"“{'…' if start else ''}{text[start:end]}{'…' if end < len(text) else ''}”"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or the known ones if there are few."""
    some = [other for other, _ in zip(known, range(_MOST_COMPARED), strict=False) if len(other) <= _LONGEST_COMPARED]
    if len(name) <= _LONGEST_COMPARED and (close := get_close_matches(name, some, n=1)):
        return f"did you mean {close[0]!r}?"
    if not some:
        return "there are none."
    shown = ", ".join(sorted(some)[:_MOST_NAMES])
    return f"known: {shown}{', …' if len(some) > _MOST_NAMES else ''}."
