"""Which row of an inbox resolves which operation, beside a model that looks at all of them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hark.model.activation import InboxRow, WaitRow
from hark.programs.functions.function_inbox import FunctionInbox
from hark.programs.functions.operations import AwakeableAnswer, Operation, Sleep, WaitForSignal, entry_of

NAMES = ("a", "b", "c")


def wait_for(entry: int, *names: str) -> WaitForSignal:
    operation = WaitForSignal(tuple(("signal", name) for name in names), None)
    operation.entry = entry
    return operation


def answer(entry: int) -> AwakeableAnswer:
    operation = AwakeableAnswer(f"prom{entry}", str, None)
    operation.entry = entry
    return operation


def sleep(entry: int) -> Sleep:
    operation = Sleep(0)
    operation.entry = entry
    return operation


def wait_row(entry: int) -> WaitRow:
    return WaitRow(f"w{entry}", str(entry), "timer", None, None, 0, None, None)


def row(seq: int, kind: str, name: str, wait_id: str | None = None) -> InboxRow:
    return InboxRow(seq, kind, name, wait_id, "null", 0)


def first_match(
    rows: list[InboxRow], operations: dict[int, Operation], waits: list[WaitRow]
) -> tuple[InboxRow, Operation] | None:
    """The model: a deadline comes after everything else, then the order of arrival, then the order of asking."""
    for one in sorted(rows, key=lambda each: (each.kind == "timer", each.seq)):
        for operation in operations.values():
            if one.wait_id is not None:
                fits = any(wait.id == one.wait_id and wait.place == operation.place for wait in waits)
            elif one.kind == "awakeable":
                fits = isinstance(operation, AwakeableAnswer) and operation.id == one.name
            else:
                fits = isinstance(operation, WaitForSignal) and (one.kind, one.name) in operation.names
            if fits:
                return one, operation
    return None


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)),
        st.tuples(st.just("ask"), st.none()),
        st.tuples(st.just("sleep"), st.none()),
        st.tuples(st.just("signal"), st.sampled_from(NAMES)),
        st.tuples(st.just("answer"), st.integers(0, 12)),
        st.tuples(st.just("timer"), st.integers(0, 12)),
        st.tuples(st.just("withdraw"), st.integers(0, 12)),
        st.tuples(st.just("commit"), st.none()),
        st.tuples(st.just("take"), st.none()),
    ),
    max_size=40,
)


@given(steps)
def test_s10_rows_are_used_as_a_look_at_all_of_them_says(steps: list[tuple[str, Any]]) -> None:
    inbox = FunctionInbox()
    operations: dict[int, Operation] = {}
    waits: list[WaitRow] = []
    unused: list[InboxRow] = []
    entry = seq = 0
    for what, value in [*steps, *[("take", None)] * 12]:
        match what:
            case "wait" | "ask" | "sleep":
                operation: Operation
                operation = (
                    wait_for(entry, *value) if what == "wait" else answer(entry) if what == "ask" else sleep(entry)
                )
                operations[entry] = operation
                waits = [*waits, wait_row(entry)]
                inbox.expect(operation)
                entry += 1
            case "signal" | "answer" | "timer":
                seq += 1
                kind = "awakeable" if what == "answer" else what
                name = f"prom{value}" if what == "answer" else str(value)
                unused.append(row(seq, kind, name, f"w{value}" if what == "timer" else None))
                inbox.add(unused[-1:])
            case "withdraw":
                operations.pop(value, None)
            case "commit":
                gone = [wait for wait in waits if entry_of(wait.place) not in operations]
                inbox.consume_answers_to(gone)
                unused = [one for one in unused if one.wait_id not in {wait.id for wait in gone}]
                waits = [wait for wait in waits if wait not in gone]
            case "take":
                expected = first_match(unused, operations, waits)
                assert inbox.take_match(operations, waits) == expected
                if expected is not None:
                    unused.remove(expected[0])
                    del operations[expected[1].entry]
    assert bool(inbox) == bool(unused)


class CountedLookups(dict[int, Operation]):
    """Open operations that count how often they are looked at."""

    looks = 0

    def get(self, key: int, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)

    def values(self) -> Any:
        self.looks += len(self)
        return super().values()


def test_many_answers_are_matched_without_looking_at_every_operation_for_each() -> None:
    n = 2000
    inbox, operations = FunctionInbox(), CountedLookups()
    for entry in range(n):
        operations[entry] = wait_for(entry, f"s{entry}") if entry % 2 else answer(entry)
        inbox.expect(operations[entry])
    rows = [row(n - k, "signal", f"s{k}") if k % 2 else row(n - k, "awakeable", f"prom{k}") for k in range(n)]
    inbox.add(reversed(rows))
    for _ in range(n):
        found = inbox.take_match(operations, ())
        assert found is not None
        del operations[found[1].entry]
    assert not inbox
    assert operations.looks <= 4 * n


def test_signals_that_nobody_asked_for_cost_nothing_when_others_are_taken() -> None:
    n = 2000
    inbox, operations = FunctionInbox(), CountedLookups()
    inbox.add([row(k, "signal", "unasked") for k in range(n)])
    for entry in range(n):
        operations[entry] = wait_for(entry, "asked")
        inbox.expect(operations[entry])
        inbox.add([row(n + entry, "signal", "asked")])
        found = inbox.take_match(operations, ())
        assert found is not None
        assert found[0].seq == n + entry
        del operations[entry]
    assert operations.looks <= 4 * n


def test_answers_to_operations_that_were_given_up_are_looked_at_once() -> None:
    n = 2000
    inbox, operations = FunctionInbox(), CountedLookups()
    waits = [wait_row(entry) for entry in range(n)]
    inbox.add([row(2 * k, "awakeable", f"prom{k}") for k in range(n)])
    inbox.add([row(2 * k + 1, "timer", "", f"w{k}") for k in range(n)])
    for entry in range(n, 2 * n):
        operations[entry] = wait_for(entry, "asked")
        inbox.expect(operations[entry])
        inbox.add([row(10 * n + entry, "signal", "asked")])
        assert inbox.take_match(operations, waits) is not None
        del operations[entry]
    assert inbox.take_match(operations, waits) is None
    assert inbox
    assert operations.looks <= 6 * n


def test_a_row_that_was_put_aside_is_used_when_its_operation_is_asked_for() -> None:
    inbox = FunctionInbox()
    operations: dict[int, Operation] = {}
    waits = [wait_row(1)]
    inbox.add([row(1, "timer", "", "w1"), row(2, "awakeable", "prom2")])
    assert inbox.take_match(operations, waits) is None
    for operation in (sleep(1), answer(2)):
        operations[operation.entry] = operation
        inbox.expect(operation)
    assert [inbox.take_match(operations, waits) for _ in range(2)] == [
        (row(2, "awakeable", "prom2"), operations[2]),
        (row(1, "timer", "", "w1"), operations[1]),
    ]
    assert not inbox


def test_a_row_that_was_put_aside_is_used_when_its_wait_is_known() -> None:
    inbox, operations = FunctionInbox(), {1: sleep(1)}
    inbox.expect(operations[1])
    inbox.add([row(1, "timer", "", "w1")])
    assert inbox.take_match(operations, []) is None
    assert inbox.take_match(operations, [wait_row(1)]) == (row(1, "timer", "", "w1"), operations[1])
