"""TaskWaits: matches the calls of one activation of a task with stored waits, and with the rows it has received.

A handler that runs again before its next checkpoint (after a park, a crash or a hand-back) repeats its calls. The nth
wait for a name continues the nth wait of that name that is stored, with its answer or its original deadline; a call
beyond these arms a new wait. Pure: the session (task_session.py) talks to the store.
"""

from __future__ import annotations

from collections import deque

from hark.model.activation import InboxRow, WaitRow
from hark.model.names import new_id
from hark.model.values import WaitKind


class TaskWaits:
    """The stored waits, which of them the handler has asked for, and the row that each has received."""

    def __init__(self, waits: list[WaitRow], inbox: list[InboxRow]) -> None:
        """`waits`: of the claim. This list is kept up to date: a park keeps the waits that are in it."""
        self._waits = waits
        self._stored: dict[tuple[str, str | None], deque[WaitRow]] = {}
        for wait in sorted(waits, key=_number):
            self._stored.setdefault((wait.kind, wait.name), deque()).append(wait)
        self._next = 1 + max((_number(wait) for wait in waits), default=-1)
        self._claimed = {row.seq for row in inbox}
        self._answers: dict[str, InboxRow] = {}  # by wait; of an awakeable, by its id
        self._open: dict[str, tuple[WaitRow, int]] = {}  # asked for and not received: with the moment of the call
        self._received: dict[str, tuple[int, int]] = {}  # by wait: the seq of the row, and the moment
        self._moment = 0
        for row in inbox:
            self.arrived(row)

    def ask(self, kind: WaitKind, name: str, deadline: int | None, now: int) -> tuple[WaitRow, bool]:
        """Ask for an answer. Return its wait, and whether the wait is new and has to be armed."""
        stored = self._stored.get((kind, name))
        is_new = not stored
        if stored:
            wait = stored.popleft()
        else:
            place = f"{kind}#{self._next}"
            self._next += 1
            wait = WaitRow(new_id(), place, kind, name, None, deadline, None, None, now)
            self._waits.append(wait)
        self._moment += 1
        self._open[wait.id] = (wait, self._moment)
        return wait, is_new

    def withdraw(self, wait: WaitRow) -> None:
        """Forget a wait that could not be armed, or that the handler has given up. Calls from now on do not continue
        it, and a row that it has received does not count as received."""
        self._open.pop(wait.id, None)
        self._received.pop(wait.id, None)
        self._answers.pop(wait.id, None)
        if wait in self._waits:  # not after a checkpoint
            self._waits.remove(wait)

    def arrived(self, row: InboxRow) -> list[WaitRow]:
        """Take a row that arrived in the inbox. Return the waits that were asked for and have an answer now."""
        if (addressee := row.addressee) is not None:
            self._answers.setdefault(addressee, row)
        return [wait for wait, _ in self._open.values() if self.answer(wait) is row]

    def answer(self, wait: WaitRow) -> InboxRow | None:
        """The row that answers this wait, if it has arrived."""
        return self._answers.get(wait.id) or self._answers.get(wait.addressee)

    def receive(self, wait: WaitRow, row: InboxRow) -> None:
        """Give the handler this answer."""
        self._open.pop(wait.id, None)
        wait.fired_at = wait.fired_at or row.at
        self._moment += 1
        self._received[wait.id] = (row.seq, self._moment)

    def forget_received(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the seqs to consume and the waits to delete at a checkpoint. Calls from now on are new calls."""
        seqs = self.received()
        gone = tuple(self._received)
        self._received.clear()
        for wait in [wait for wait in self._waits if wait.id in gone]:
            self._waits.remove(wait)
        return seqs, gone

    @property
    def has_unused_answer(self) -> bool:
        """Return True if the handler has received something since it last asked: it may be about to use it."""
        newest = max((moment for _, moment in self._open.values()), default=0)
        return any(moment > newest for _, moment in self._received.values())

    def received(self) -> tuple[int, ...]:
        """The seqs of the rows that the handler has received since the last checkpoint."""
        return tuple(sorted({seq for seq, _ in self._received.values() if seq}))

    def handed(self) -> tuple[int, ...]:
        """The seqs of the rows that do not wake the park of this activation.

        Those that its handler has acted upon: it received them and then asked for more. A row that came in while
        another wait was open may have been ignored, if the handler was suspended by that other wait: it wakes the
        park, and counts from the next activation on, which is given it with its claim.
        """
        newest = max((moment for _, moment in self._open.values()), default=0)
        acted_upon = {seq for seq, moment in self._received.values() if moment < newest}
        unread = {row.seq for wait, _ in self._open.values() if (row := self.answer(wait)) is not None}
        return tuple(sorted((acted_upon | self._claimed) - unread))


def _number(wait: WaitRow) -> int:
    number = wait.place.rpartition("#")[2]
    return int(number) if number.isdecimal() else 0
