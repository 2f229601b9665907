"""Rows as a turn holds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hark.model.activation import WaitRow
from hark.model.values import PARKED, TERMINAL


class Locked:
    """An instance row this turn holds."""

    __slots__ = ("epoch", "has_signals", "id", "looked", "status", "waits")

    def __init__(self, id: str, status: str, epoch: int, has_signals: bool) -> None:
        self.id = id
        self.status = status
        self.epoch = epoch
        self.has_signals = has_signals
        self.waits: list[WaitRow] = []
        self.looked = False  # `waits` is what the store has

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL

    @property
    def parked(self) -> bool:
        return self.status in PARKED


def wait_row(found: Sequence[Any]) -> WaitRow:
    id, _, place, kind, name, key, deadline, remaining, _, fired_at = found
    return WaitRow(id, place, kind, name, key, deadline, remaining, fired_at)
