"""LockedRow: an instance row as a turn holds it."""

from __future__ import annotations

from hark.model.activation import WaitRow
from hark.model.values import PARKED, TERMINAL


class LockedRow:
    """An instance row that this turn has locked: the columns of `statements.lock`, and its waits once they are read."""

    __slots__ = ("epoch", "has_inbox_rows", "id", "kind", "status", "waits", "waits_are_current")

    def __init__(self, id: str, status: str, epoch: int, has_inbox_rows: bool, kind: str = "") -> None:
        self.id = id
        self.status = status
        self.epoch = epoch
        self.has_inbox_rows = has_inbox_rows
        self.kind = kind  # only if it was locked as a target, or inserted
        self.waits: list[WaitRow] = []
        self.waits_are_current = False  # `waits` equals what the store has

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def parked(self) -> bool:
        return self.status in PARKED


def status_of(row: LockedRow | None) -> str:
    """The status of a row that a turn wanted to lock; "deleted" if there is none."""
    return "deleted" if row is None else row.status
