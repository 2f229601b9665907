"""FunctionInbox: matches the rows of the inbox of one activation with the open operations of the function.

A directed row (a timer, a settled awakeable, a finished child) belongs to the wait it names, a signal or
broadcast to the first open operation that waits for its name. Which rows are delivered to the instance at
all is decided by the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from hark.model.activation import ChildRow, Claim, InboxRow, WaitRow
from hark.programs.functions.operations import AwakeableAnswer, ChildCall, Operation, Result, WaitForSignal, entry_of

_Name = tuple[str, str]  # kind and name of a signal or broadcast


class FunctionInbox:
    """The rows not used yet, and the rows the next commit consumes or restores.

    A function may have thousands of open operations, thousands of answers to them, and thousands of signals that it
    does not ask for. So operations are found by what they wait for and signals by their name, and a signal costs
    nothing until it is awaited.
    """

    __slots__ = (
        "_answers", "_aside", "_awaited", "_by_wait", "_children", "_directed", "_places", "_signals", "_timers",
        "_waiting", "_waits", "consumed", "restored",
    )  # fmt: skip

    def __init__(self) -> None:
        self._directed: dict[int, InboxRow] = {}  # to a wait or an awakeable, by seq, in the order of arrival
        self._timers: dict[int, InboxRow] = {}  # the same: deadlines
        self._aside: dict[str, list[InboxRow]] = {}  # of both: rows that nothing waited for, by what they are for
        self._signals: dict[_Name, deque[InboxRow]] = {}  # signals and broadcasts, in the order of arrival
        self._waiting: dict[_Name, deque[WaitForSignal]] = {}  # in the order in which they were asked for
        self._awaited: list[tuple[int, _Name]] = []  # a heap of rows whose name was waited for; some are used by now
        self._answers: dict[str, AwakeableAnswer] = {}  # by awakeable
        self._places: dict[str, str] = {}  # the places of `_waits`, by id
        self._waits: Sequence[WaitRow] = ()
        self._by_wait: dict[str, ChildRow] = {}  # `_children`, by the wait that counts them: each has one of its own
        self._children: Sequence[ChildRow] = ()
        self.consumed: list[int] = []
        self.restored: list[int] = []  # signals whose lines a retry has cut

    def release(self) -> None:
        """Drop the operations: they refer to the session that has this inbox."""
        self._waiting.clear()
        self._answers.clear()

    def __bool__(self) -> bool:
        return bool(self._directed or self._timers or self._signals or self._aside)

    def expect(self, operation: Operation) -> None:
        """Note that the code has asked for this operation, and the journal has no line for it."""
        if self._aside:
            self._put_back(operation.id if isinstance(operation, AwakeableAnswer) else operation.place)
        if isinstance(operation, WaitForSignal):
            for name in operation.names:
                self._waiting.setdefault(name, deque()).append(operation)
                if name in self._signals:
                    heappush(self._awaited, (self._signals[name][0].seq, name))
        elif isinstance(operation, AwakeableAnswer):
            self._answers[operation.id] = operation

    def add(self, rows: Iterable[InboxRow]) -> None:
        """Add rows that the last commit has read, in order of arrival."""
        for row in rows:
            if row.kind == "timer":
                self._timers[row.seq] = row
            elif row.addressee is not None:
                self._directed[row.seq] = row
            else:
                name: _Name = (row.kind, row.name)
                self._signals.setdefault(name, deque()).append(row)
                if name in self._waiting:
                    heappush(self._awaited, (row.seq, name))

    def take_match(
        self, operations: Mapping[int, Operation], waits: Sequence[WaitRow]
    ) -> tuple[InboxRow, Operation] | None:
        """The first row that an open operation waits for, marked as consumed; None if there is none."""
        if waits is not self._waits and (self._directed or self._timers or self._aside):
            self._waits, self._places = waits, {wait.id: wait.place for wait in waits}
            self._put_back(*self._aside)
        found = self._first(self._directed, operations)
        signal = self._first_signal(operations) if self._awaited else None
        if signal is not None and (found is None or signal[0].seq < found[0].seq):
            found = signal
        if found is None:
            found = self._first(self._timers, operations)  # a signal wins over its deadline (S6)
        if found is not None:
            self._remove(found[0])
        return found

    def _first(
        self, rows: dict[int, InboxRow], operations: Mapping[int, Operation]
    ) -> tuple[InboxRow, Operation] | None:
        """The first directed row whose operation is open. Others before it are put aside, and looked at again when
        their operation is asked for or the waits change."""
        operation: Operation | None
        while rows:
            row = next(iter(rows.values()))
            if row.wait_id is None:
                key = row.name
                operation = self._answers.get(key)
                if operation is not None and operations.get(operation.entry) is operation:
                    return row, operation
            else:
                key = self._places.get(row.wait_id, "")
                operation = operations.get(entry_of(key)) if key else None
                if operation is not None and operation.place == key:
                    return row, operation
            self._aside.setdefault(key, []).append(rows.pop(row.seq))
        return None

    def _put_back(self, *keys: str) -> None:
        """Look again at the rows that were put aside under these keys."""
        rows = [row for key in keys for row in self._aside.pop(key, ())]
        if rows:
            rows += [*self._directed.values(), *self._timers.values()]
            self._directed.clear()
            self._timers.clear()
            self.add(sorted(rows, key=lambda row: row.seq))

    def _first_signal(self, operations: Mapping[int, Operation]) -> tuple[InboxRow, Operation] | None:
        """The first signal or broadcast that an open operation waits for, with the first of these operations."""
        while self._awaited:
            seq, name = self._awaited[0]
            waiting, signals = self._waiting.get(name), self._signals.get(name)
            while waiting and operations.get(waiting[0].entry) is not waiting[0]:
                waiting.popleft()
            if waiting and signals and signals[0].seq == seq:
                return signals[0], waiting[0]
            heappop(self._awaited)
            if not waiting:
                self._waiting.pop(name, None)
        return None

    def _remove(self, row: InboxRow) -> None:
        self.consumed.append(row.seq)
        if self._directed.pop(row.seq, None) is None and self._timers.pop(row.seq, None) is None:
            name = (row.kind, row.name)
            queue = self._signals[name]
            queue.popleft()
            heappop(self._awaited)
            if queue:
                heappush(self._awaited, (queue[0].seq, name))
            else:
                del self._signals[name]

    def consume_answers_to(self, waits: Iterable[WaitRow]) -> None:
        """Consume the rows that were directed to these waits: they are disarmed."""
        addressees = {wait.addressee for wait in waits}
        self._put_back(*self._aside)
        if addressees and (self._directed or self._timers):
            for row in [*self._directed.values(), *self._timers.values()]:
                if row.addressee in addressees:
                    self._remove(row)

    def take_changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the seqs of the rows that the next commit consumes and restores."""
        if not self.consumed and not self.restored:
            return (), ()
        consumed, self.consumed = tuple(self.consumed), []
        restored, self.restored = tuple(self.restored), []
        if restored:  # the commit gives the whole inbox again, in which these are the first
            for kept in (self._directed, self._timers, self._signals, self._awaited, self._aside):
                kept.clear()
        return consumed, restored

    def result_of(self, operation: Operation, row: InboxRow, claim: Claim) -> Result:
        """The value and the error of a line: what an operation receives from its row."""
        match operation:
            case WaitForSignal() | AwakeableAnswer():
                return operation.result_of(row)
            case ChildCall():
                return operation.result_of(*self._child(operation, row, claim))
            case _:
                return "null", None

    def _child(self, call: ChildCall, row: InboxRow, claim: Claim) -> tuple[str, str, str | None, str | None]:
        if claim.children is not self._children:
            self._children, self._by_wait = claim.children, {child.wait_id: child for child in claim.children}
        child = self._by_wait.get(row.wait_id or "")
        if child is None:
            return call.child.id, "failed", None, "retention removed the child before its parent read the result"
        return child.id, child.status, child.result, child.error
