"""Migrated: what becomes of a live instance that moves to another version of its definition (V4).

Programs compute it from what the instance has committed, and the kernel writes it in one commit, if the instance has
committed nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from hark.model.errors import InvalidMigration
from hark.model.problem import Problem

_SHOWN: Final = 10


class Migrated(Struct, frozen=True, kw_only=True):
    """The row of an instance after a migration. What is not named here stays as it is."""

    step: str
    state: str
    moved_waits: tuple[tuple[str, str], ...] = ()  # ids of waits, with their new place
    dropped_waits: tuple[str, ...] = ()  # ids of waits
    moved_questions: tuple[tuple[str, str, str | None], ...] = ()  # ids of awakeables, with their new place and task
    control: str | None = None
    """The wait of a job or process for the ends of its children. It is woken with a row of kind `control` and the name
    `migrated` that is directed to this wait: in its next activation, it begins what the new version has in addition."""


def refuse(label: str, problems: Iterable[Problem]) -> InvalidMigration:
    """Make the error of an instance that cannot be moved, with all reasons."""
    found = list(problems)
    shown = [f"  {problem}" for problem in found[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(f"  and {len(found) - _SHOWN} more")
    return InvalidMigration("\n".join([f"{label} cannot be moved:", *shown]), problems=found)
