"""Import the app of `--app MODULE:VARIABLE`, and say what to correct if that fails."""

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from hark.model.errors import HarkError, InvalidInput
from hark.model.reasons import reason

if TYPE_CHECKING:
    from hark.app import Hark

_MISSING: Final = object()


def load_app(given: str) -> "Hark":
    """Import the app that `--app` names; the current folder is importable.

    Args:
        given: the value of `--app`. The variable is `app` if only a module is given.

    Raises:
        InvalidInput: there is no such module or variable, importing the module fails, or the variable is not a Hark.
    """
    from hark.app import Hark

    name, _, variable = given.partition(":")
    variable = variable or "app"
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(name)
        app = getattr(module, variable, _MISSING)
    except Exception as error:
        raise InvalidInput(
            f"--app {given} cannot be loaded: {_what_failed(error)}. {_what_to_do(error, name)}"
        ) from error
    if app is _MISSING:
        raise InvalidInput(
            f"--app {given} cannot be loaded: the module {name} has no variable {variable!r}. {_what_to_write(module)}"
        )
    if not isinstance(app, Hark):
        raise InvalidInput(
            f"--app {given} is a {type(app).__name__}, not a Hark. "
            "Give the variable that holds your Hark app, as module:variable."
        )
    return app


def _what_failed(error: Exception) -> str:
    """The message of an error without its place, which `_what_to_do` names."""
    why = reason(error)
    if isinstance(error, SyntaxError):
        why = error.msg.rstrip(".")
    if isinstance(error, ImportError) or why == type(error).__name__:
        return why
    return f"{type(error).__name__}: {why}"


def _what_to_do(error: Exception, module: str) -> str:
    place = _place(error, module)
    if place is None or _is_missing(error, module):
        return "Write it as module:app, and run the command in the folder of the module."
    if isinstance(error, ModuleNotFoundError):
        return f"Install it, or correct {place}."
    if isinstance(error, HarkError):  # its text says what to do
        return f"It comes from {place}."
    return f"Correct {place}."


def _is_missing(error: Exception, module: str) -> bool:
    """Return True if the module of `--app` itself was not found, and not one that it imports."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return f"{module}.".startswith(f"{error.name}.")


def _place(error: Exception, module: str) -> str | None:
    """The line that has to change, or None if no code of the user has run."""
    from hark.model.failures import innermost_line_of_user  # loads msgspec, which `--help` must not

    if isinstance(error, SyntaxError) and error.filename is not None and os.path.isfile(error.filename):
        return f"line {error.lineno} of {_shown(error.filename)}"
    found = innermost_line_of_user(error, module.partition(".")[0])
    return None if found is None else f"line {found[1]} of {_shown(found[0])}"


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _what_to_write(module: ModuleType) -> str:
    from hark.app import Hark

    apps = [f"--app {module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, Hark)]
    if apps:
        return f"Write {' or '.join(apps)}."
    return "Write app = Hark(…) in it, or give the module and the variable that holds your Hark app."
