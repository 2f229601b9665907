"""The inbox of one activation: which row resolves which open operation of the function.

A directed row (a timer, a settled awakeable, a finished child) belongs to the wait it names, a signal or
broadcast to the first open operation that waits for its name. Which rows are delivered to the instance at
all is decided by the kernel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from hark.model.activation import Claim, InboxRow, WaitRow
from hark.programs.operations import AwakeableAnswer, ChildCall, Operation, Result, WaitForSignal, entry_of


class FunctionInbox:
    """The rows not used yet, and the rows the next commit consumes or restores.

    A commit adds only new rows, and a function may leave thousands of signals unasked for: signals are found by their
    name, so that they cost nothing until they are awaited.
    """

    __slots__ = ("_directed", "_signals", "consumed", "restored")

    def __init__(self) -> None:
        self._directed: dict[int, InboxRow] = {}  # to a wait or an awakeable, by seq
        self._signals: dict[tuple[str, str], deque[InboxRow]] = {}  # signals and broadcasts by kind and name, in order
        self.consumed: list[int] = []
        self.restored: list[int] = []  # signals whose lines a retry has cut

    def __bool__(self) -> bool:
        return bool(self._directed or self._signals)

    def add(self, rows: Iterable[InboxRow]) -> None:
        """Rows that the last commit has read, in order of arrival."""
        for row in rows:
            if row.wait_id is not None or row.kind == "awakeable":
                self._directed[row.seq] = row
            else:
                self._signals.setdefault((row.kind, row.name), deque()).append(row)

    def take_match(
        self, operations: Mapping[int, Operation], waits: Sequence[WaitRow]
    ) -> tuple[InboxRow, Operation] | None:
        """The first row that an open operation waits for, marked as consumed; None if there is none."""
        found: list[tuple[bool, int, InboxRow, Operation]] = []
        for row in self._directed.values():
            operation = _operation_for(row, operations, waits)
            if operation is not None:
                found.append((row.kind == "timer", row.seq, row, operation))  # a signal wins over its deadline (S6)
        if self._signals:
            for operation in operations.values():
                if isinstance(operation, WaitForSignal):
                    for name in operation.names:
                        if name in self._signals:
                            row = self._signals[name][0]
                            found.append((False, row.seq, row, operation))
        if not found:
            return None
        _, _, row, operation = min(found, key=lambda one: one[:2])  # of several that wait for a name, the first
        self._remove(row)
        return row, operation

    def _remove(self, row: InboxRow) -> None:
        self.consumed.append(row.seq)
        if self._directed.pop(row.seq, None) is None:
            queue = self._signals[row.kind, row.name]
            queue.popleft()
            if not queue:
                del self._signals[row.kind, row.name]

    def consume_answers_to(self, waits: Iterable[WaitRow]) -> None:
        """Consume the rows that were directed to these waits: they are disarmed."""
        names = {wait.name if wait.kind == "awakeable" else wait.id for wait in waits}
        if names and self._directed:
            for row in list(self._directed.values()):
                if (row.name if row.kind == "awakeable" else row.wait_id) in names:
                    self._remove(row)

    def take_changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the next commit consumes and restores."""
        if not self.consumed and not self.restored:
            return (), ()
        consumed, self.consumed = tuple(self.consumed), []
        restored, self.restored = tuple(self.restored), []
        if restored:  # the commit gives the whole inbox again, in which these are the first
            self._directed.clear()
            self._signals.clear()
        return consumed, restored


def result_of(operation: Operation, row: InboxRow, claim: Claim) -> Result:
    """What an operation receives from its row, as the value and error of a line."""
    match operation:
        case WaitForSignal() | AwakeableAnswer():
            return operation.result_of(row)
        case ChildCall():
            return operation.result_of(*_child(operation, claim))
        case _:
            return "null", None


def _operation_for(row: InboxRow, operations: Mapping[int, Operation], waits: Sequence[WaitRow]) -> Operation | None:
    if row.wait_id is not None:
        for wait in waits:
            if wait.id == row.wait_id:
                operation = operations.get(entry_of(wait.place))
                return operation if operation is not None and operation.place == wait.place else None
        return None
    for operation in operations.values():
        if isinstance(operation, AwakeableAnswer) and row.name == operation.id:
            return operation
    return None


def _child(call: ChildCall, claim: Claim) -> tuple[str, str, str | None, str | None]:
    for wait in claim.waits:
        if wait.place == call.place:
            for child in claim.children:
                if child.wait_id == wait.id:
                    return child.id, child.status, child.result, child.error
    return call.child.id, "failed", None, "retention removed the child before its parent read the result"
