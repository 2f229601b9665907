"""Instance rows as a turn holds them."""

from __future__ import annotations

from hark.model.activation import Claim, WaitRow
from hark.model.values import PARKED, TERMINAL


class LockedRow:
    """An instance row that this turn has locked: the columns of `statements.lock`, and its waits once they are read."""

    __slots__ = ("epoch", "has_signals", "id", "kind", "owner", "status", "waits", "waits_are_current")

    def __init__(
        self, id: str, status: str, epoch: int, has_signals: bool, kind: str = "", owner: str | None = None
    ) -> None:
        self.id = id
        self.status = status
        self.epoch = epoch
        self.has_signals = has_signals
        self.kind = kind  # only if it was locked as a target, or inserted
        self.owner = owner  # the worker that executes it
        self.waits: list[WaitRow] = []
        self.waits_are_current = False  # `waits` equals what the store has

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def parked(self) -> bool:
        return self.status in PARKED

    def is_held(self, claim: Claim) -> bool:
        """Whether it executes on this very claim (invariant 2).

        The owner is compared too: a claim that the database forgot in a crash (decision 23) may have been made again by
        another worker, with the same epoch.
        """
        return self.status == "executing" and self.epoch == claim.epoch and claim.owner in ("", self.owner)


def status_of(row: LockedRow | None) -> str:
    """The status of a row that a turn wanted to lock; "deleted" if there is none."""
    return "deleted" if row is None else row.status
