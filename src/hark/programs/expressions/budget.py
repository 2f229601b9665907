"""Budget: limits the work of one evaluation, so that it always ends soon, whatever the expression and the values.

An expression has no loops, so it cannot run for ever; but a function that walks a list of the input, used a thousand
times in a row, could take minutes. Each node and each item that a function looks at is a step; each character that is
written, compared or searched counts too.
"""

from __future__ import annotations

MAX_STEPS = 100_000
MAX_CHARACTERS = 1 << 24
MAX_RESULT = 1 << 22  # characters of one text
_PER_STEP = MAX_CHARACTERS // MAX_STEPS  # characters that count as one step of a meter


class OverBudget(Exception):
    """The evaluation needs more than it may use; the evaluator turns this into an ExpressionError with a position."""


class Budget:
    """The steps and characters that are left for one evaluation."""

    __slots__ = ("_characters", "_steps")

    def __init__(self, steps: int = MAX_STEPS, characters: int = MAX_CHARACTERS) -> None:
        self._steps = steps
        self._characters = characters

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises OverBudget."""
        self._steps -= steps
        if self._steps < 0:
            raise OverBudget("The evaluation takes too many steps")

    def spend_text(self, characters: int) -> None:
        """Count characters, before they are written or read. Raises OverBudget."""
        self._characters -= characters
        if self._characters < 0 or characters > MAX_RESULT:
            raise OverBudget("The evaluation handles too much text")

    def spent(self) -> int:
        """The steps that were counted so far; characters are converted."""
        return MAX_STEPS - self._steps + (MAX_CHARACTERS - self._characters) // _PER_STEP


class Meter:
    """Adds up the work of several evaluations, for those who evaluate many.

    Attributes:
        steps: The steps that were counted so far.
    """

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0

    def count(self, budget: Budget) -> None:
        """Add the work of an evaluation that has ended, also one that has failed."""
        self.steps += budget.spent()
