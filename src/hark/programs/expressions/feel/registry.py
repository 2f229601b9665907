"""Declare FEEL functions: the name of each, the types of its parameters, and the code.

An argument that does not fit its parameter makes the call null, as does a wrong number of arguments. Before that, FEEL
converts between a value and the list that has only this value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hark.programs.expressions.budget import Budget
from hark.programs.expressions.feel.numbers import effort
from hark.programs.expressions.feel.values import feel_kind

_Run = TypeVar("_Run", bound=Callable[..., Any])

ANY = "any"
"""A parameter that may be everything, null too."""


@dataclass(frozen=True, slots=True)
class FeelFunction:
    """A function, called as `run(budget, *arguments)`. The last parameter may be repeated `repeats` times more."""

    parameters: tuple[str, ...]
    least: int
    repeats: int
    run: Callable[..., Any]

    def __call__(self, budget: Budget, arguments: list[Any]) -> Any:
        count = len(arguments)
        if not self.least <= count <= len(self.parameters) + self.repeats:
            return None
        parameters = self.parameters
        for index, argument in enumerate(arguments):
            wanted = parameters[min(index, len(parameters) - 1)]
            if wanted == ANY:
                continue
            kind = feel_kind(argument)
            if kind == wanted:
                continue
            if wanted == "list" and kind != "null":
                arguments[index] = [argument]
            elif kind == "list" and len(argument) == 1 and feel_kind(argument[0]) == wanted:
                arguments[index] = argument[0]
            else:
                return None
        return self.run(budget, *arguments)


FEEL_FUNCTIONS: Final[dict[str, FeelFunction]] = {}

_MOST_REPEATS = 10_000


def feel_function(name: str, *parameters: str, optional: int = 0, repeated: bool = False) -> Callable[[_Run], _Run]:
    """Register a function. The last `optional` parameters may be left out; the last one of all may be `repeated`."""

    def register(run: _Run) -> _Run:
        least = len(parameters) - optional
        FEEL_FUNCTIONS[name] = FeelFunction(parameters, least, _MOST_REPEATS if repeated else 0, run)
        return run

    return register


def plain_function(name: str, run: Callable[..., Any], *parameters: str, optional: int = 0) -> None:
    """Register a function whose work is so small that it needs no budget."""
    feel_function(name, *parameters, optional=optional)(lambda budget, *arguments: run(*arguments))


def number_function(name: str, run: Callable[..., Any], *parameters: str, steps: int, optional: int = 0) -> None:
    """Register a function that calculates with numbers, and takes as long as so many steps."""

    @feel_function(name, *parameters, optional=optional)
    def spend_and_run(budget: Budget, *arguments: Any) -> Any:
        budget.spend(steps + effort(*arguments))
        return run(*arguments)


def text_function(name: str, run: Callable[..., Any], *parameters: str) -> None:
    """Register a function that reads its first argument, a text, once."""

    @feel_function(name, "text", *parameters)
    def spend_and_run(budget: Budget, text: str, *more: Any) -> Any:
        budget.spend_text(len(text))
        return run(text, *more)
