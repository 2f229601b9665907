"""Print the errors of a wrong command line: those of typer, and for numbers the values that are accepted.

Typer validates options with pydantic, whose messages ("Input should be a valid integer, unable to parse string as an
integer") are for programmers: they name neither the limits of a number nor what was typed.
"""

import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

_NUMBERS = {int: "a whole number", float: "a number"}
_SHORTENED = reprlib.Repr()
_SHORTENED.maxstring = 60  # characters of what was typed


def usage_message(error: typer.TyperException) -> str:
    """The error in one or two sentences; the second one names the help of the command."""
    message = (_number_message(error) or error.format_message()).rstrip(".")
    ctx = getattr(error, "ctx", None)
    return f"{message}." if ctx is None else f"{message}. Try `{ctx.command_path} --help`."


@contextmanager
def usage_errors_of(ctx: Any) -> Iterator[None]:
    """Add the command to errors that typer raises without it, such as that of an option without a value."""
    try:
        yield
    except typer.TyperException as error:
        if getattr(error, "ctx", None) is None:
            error.ctx = ctx  # type: ignore[attr-defined]
        raise


def _number_message(error: typer.TyperException) -> str | None:
    """The error of an option that must be a number; None for any other error."""
    option: Any = error.param if isinstance(error, typer.BadParameter) else None
    problems = getattr(error.__cause__, "errors", None)  # pydantic's, which is not imported for this
    kind = None if option is None or problems is None else _NUMBERS.get(option.type_descriptor.annotation)
    if kind is None or problems is None:
        return None
    given = _SHORTENED.repr(problems()[0]["input"])
    return f"{'/'.join(option.opts)}: give {kind}{_range(option.min, option.max)}, not {given}"


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return "" if high is None else f" of at most {high}"
