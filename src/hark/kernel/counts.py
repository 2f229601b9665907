"""Counts: the numbers of one turn for the metrics (X6). The clerk adds them up for the process after the COMMIT."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from hark.kernel.requests import Cancel, SettleAwakeable
from hark.model.errors import AlreadySettled

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Counts:
    """The instances that a turn started and ended, and the number of each other thing that happened in it."""

    __slots__ = ("ended", "happened", "started")

    def __init__(self) -> None:
        # Not Counter: every turn makes these, and a Counter takes ten times as long to make.
        self.started: defaultdict[str, int] = defaultdict(int)  # by definition
        self.ended: defaultdict[tuple[str, str], int] = defaultdict(int)  # by status and definition
        self.happened: defaultdict[str, int] = defaultdict(int)  # "retry", "timeout", "cancel", …: see `add_up`


def add_up(turn: Turn) -> None:
    """Count what the verbs of the turn have not counted. This is its last phase."""
    happened = turn.result.counts.happened
    if turn.history.retries:
        happened["retry"] += turn.history.retries
    if turn.history.timeouts:
        happened["timeout"] += turn.history.timeouts
    cancelled = [r for r in turn.batch.of(Cancel) if r.sender is None and isinstance(r.result, str)]
    if cancelled:
        again = set(map(id, turn.result.again))
        happened["cancel"] += sum(id(request) not in again for request in cancelled)
    late = sum(isinstance(request.result, AlreadySettled) for request in turn.batch.of(SettleAwakeable))
    if late:
        happened["late_answer"] += late
    if turn.history.failures:  # a function that is undone is counted when it has failed
        happened["failed_attempt"] += sum(failed.type != "undoing" for failed in turn.history.failures)
    if turn.broadcasts.published:
        happened["published"] += len(turn.broadcasts.published)
