"""The inbox of one activation: which row resolves which open operation of the function.

A directed row (a timer, a settled awakeable, a finished child) belongs to the wait it names, a signal or
broadcast to the first open operation that waits for its name. Which rows are delivered to the instance at
all is decided by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hark.model.activation import Claim, InboxRow, WaitRow
from hark.programs.operations import AwakeableAnswer, ChildCall, Operation, Result, WaitForSignal, entry_of


class FunctionInbox:
    """The rows not used yet, and the rows the next commit consumes or restores."""

    __slots__ = ("consumed", "restored", "rows")

    def __init__(self) -> None:
        self.rows: list[InboxRow] = []
        self.consumed: list[int] = []
        self.restored: list[int] = []  # signals whose lines a retry has cut

    def take_match(
        self, operations: Mapping[int, Operation], waits: Sequence[WaitRow]
    ) -> tuple[InboxRow, Operation] | None:
        """The first row that an open operation waits for, marked as consumed; None if there is none."""
        names = {name for o in operations.values() if isinstance(o, WaitForSignal) for name in o.names}
        # The inbox may hold thousands of signals that are not awaited: check the name before searching.
        for n, row in enumerate(self.rows):
            directed = row.wait_id is not None or row.kind == "awakeable"
            if directed or (row.kind, row.name) in names:
                operation = _operation_for(row, operations, waits)
                if operation is not None:
                    del self.rows[n]
                    self.consumed.append(row.seq)
                    return row, operation
        return None

    def consume_answers_to(self, waits: Iterable[WaitRow]) -> None:
        """Consume the rows that were directed to these waits: they are disarmed."""
        names = {wait.name if wait.kind == "awakeable" else wait.id for wait in waits}
        self.consumed += [r.seq for r in self.rows if (r.name if r.kind == "awakeable" else r.wait_id) in names]

    def take_changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What the next commit consumes and restores."""
        if not self.consumed and not self.restored:
            return (), ()
        consumed, self.consumed = tuple(self.consumed), []
        restored, self.restored = tuple(self.restored), []
        return consumed, restored


def in_order(rows: Sequence[InboxRow]) -> list[InboxRow]:
    """The rows as they are read: a signal wins over its deadline (S6)."""
    return sorted(rows, key=lambda row: (row.kind == "timer", row.seq))


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
        match operation:
            case WaitForSignal() if (row.kind, row.name) in operation.names:
                return operation
            case AwakeableAnswer() if row.kind == "awakeable" and row.name == operation.id:
                return operation
    return None


def _child(call: ChildCall, claim: Claim) -> tuple[str, str, str | None, str | None]:
    for wait in claim.waits:
        if wait.place == call.place:
            for child in claim.children:
                if child.wait_id == wait.id:
                    return child.id, child.status, child.result, child.error
    return call.child.id, "failed", None, "retention removed the child before its parent read the result"
