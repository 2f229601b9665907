"""The requests of one turn, by type.

An outcome's effects are requests too, with the outcome as their sender: they commit with it or not at all
(invariant 12). See effects.py for the request of each effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from hark.kernel.requests import Commit, Deliver, Publish, Request, SignalWithStart
from hark.model.decisions import Arm, JournalLine

R = TypeVar("R", bound=Request)


class Batch:
    """The requests of one turn. `of` returns those of one type in the order of the calls."""

    __slots__ = ("_by_type", "deliveries", "journaled", "message_waits")

    def __init__(self, requests: Iterable[Request]) -> None:
        self._by_type: dict[type[Request], list[Any]] = {}
        self.deliveries: list[Deliver | SignalWithStart | Publish] = []  # in the order of the calls (S10)
        self.journaled: list[tuple[Commit, JournalLine, Request]] = []  # effects whose result is a line of a journal
        self.message_waits: list[tuple[Commit, Arm]] = []  # waits for messages that outcomes arm
        for request in requests:
            self.add(request)

    def add(self, request: Request) -> None:
        kind = type(request)
        if kind in self._by_type:
            self._by_type[kind].append(request)
        else:
            self._by_type[kind] = [request]
        if isinstance(request, Deliver | SignalWithStart | Publish):
            self.deliveries.append(request)

    def of(self, kind: type[R]) -> Sequence[R]:
        return self._by_type.get(kind, ())
