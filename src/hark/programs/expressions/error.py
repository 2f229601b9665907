"""ExpressionError: describes a mistake in an expression, and its place."""

from __future__ import annotations

from collections.abc import Collection

from hark.model.errors import HarkError
from hark.model.nearest import nearest_word

_AROUND = 40  # characters of a long expression that are shown on each side of the position
_MOST_NAMES = 12


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


def suggestion(name: str, known: Collection[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, or some of those that are known."""
    if (nearest := nearest_word(name, known)) is not None:
        return f"did you mean {nearest!r}?"
    if not known:
        return "there are none."
    shown = sorted(other for other in known if len(other) <= _AROUND)[:_MOST_NAMES]
    return f"known: {', '.join(shown)}{', …' if len(shown) < len(known) else ''}."
