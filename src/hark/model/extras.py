"""Import modules that need an extra (`pip install 'hark[server]'`), or say which extra is missing."""

from __future__ import annotations

import importlib
from types import ModuleType

from hark.model.errors import MissingExtra


def import_extra(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import a module of Hark that depends on packages of an extra.

    Args:
        module: The full name of the module.
        extra: The extra that installs what it depends on.
        needed_by: What the user asked for, as the message names it: "app.serve()".

    Raises:
        MissingExtra: A package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "hark":
            raise
        raise missing_extra(error, extra=extra, needed_by=needed_by) from None


def missing_extra(error: ModuleNotFoundError, *, extra: str, needed_by: str) -> MissingExtra:
    return MissingExtra(
        f"{needed_by} needs the module {error.name!r}, which is not installed. "
        f"Install it with: pip install 'hark[{extra}]'.",
        extra=extra,
    )
