"""Batch: the requests of one turn, by type.

An outcome's effects are requests too, with the outcome as their sender: they commit with it or not at all
(invariant 12). See effects.py for the request of each effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from hark.kernel.requests import (
    Commit,
    Deliver,
    Publish,
    Request,
    SettleAwakeable,
    SignalWithStart,
    StartInstances,
)
from hark.model.decisions import Arm, JournalLine, Move

R = TypeVar("R", bound=Request)

_DELIVERIES: Final = frozenset({Deliver, SignalWithStart, Publish})
_FREQUENT: Final = frozenset({Commit, StartInstances, Deliver, SignalWithStart, SettleAwakeable})


class Batch:
    """The requests of one turn. `of` returns those of one type in the order of the calls."""

    __slots__ = ("_by_type", "continuing", "deliveries", "has_rare", "journaled", "message_waits")

    def __init__(self, requests: Iterable[Request]) -> None:
        self._by_type: dict[type[Request], list[Any]] = {}
        self.deliveries: list[Deliver | SignalWithStart | Publish] = []  # in the order of the calls (S10)
        self.journaled: list[tuple[Commit, JournalLine, Request]] = []  # effects whose result is a line of a journal
        self.message_waits: list[tuple[Commit, Arm]] = []  # waits for messages that outcomes arm
        self.continuing: list[tuple[Commit, Move]] = []  # functions that continue as new, with a version to choose
        self.has_rare = False  # some are of types that most turns do not have: see `run_turn`
        for request in requests:
            self.add(request)

    def add(self, request: Request) -> None:
        kind = type(request)
        if kind in self._by_type:
            self._by_type[kind].append(request)
        else:
            self._by_type[kind] = [request]
            self.has_rare = self.has_rare or kind not in _FREQUENT
        if kind in _DELIVERIES:
            self.deliveries.append(request)  # type: ignore[arg-type]

    def of(self, kind: type[R]) -> Sequence[R]:
        return self._by_type.get(kind, ())
