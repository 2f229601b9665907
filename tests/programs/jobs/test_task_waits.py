"""The waits of a handler: which stored wait a call continues, and what wakes a park. Without a store."""

from typing import Any

from hark.model.activation import InboxRow, WaitRow
from hark.programs.jobs.tasks.task_waits import TaskWaits


def wait(number: int, name: str, id: str | None = None) -> WaitRow:
    return WaitRow(id or f"w{number}", f"signal#{number}", "signal", name, None, 1000 + number, None, None)


def row(seq: int, wait_id: str | None, payload: str = "1", kind: str = "signal", name: str = "a") -> InboxRow:
    return InboxRow(seq, kind, name, wait_id, payload, 5)


def ask(waits: TaskWaits, name: str, deadline: int = 99) -> tuple[WaitRow, bool]:
    return waits.ask("signal", name, deadline, 0)


def test_the_nth_call_for_a_name_continues_the_nth_stored_wait_of_that_name() -> None:
    stored = [wait(10, "a"), wait(2, "a"), wait(3, "b")]
    waits = TaskWaits(stored, [])
    assert [ask(waits, "a")[0].id, ask(waits, "b")[0].id, ask(waits, "a")[0].id] == ["w2", "w3", "w10"]
    new, is_new = ask(waits, "a", deadline=77)
    assert (new.place, new.deadline, is_new) == ("signal#11", 77, True)
    assert new in stored  # a park keeps it


def test_a_continued_wait_has_its_answer_and_its_original_deadline() -> None:
    waits = TaskWaits([wait(0, "a")], [row(7, "w0", '"x"')])
    continued, is_new = ask(waits, "a", deadline=5)
    assert not is_new
    assert continued.deadline == 1000
    answer = waits.answer(continued)
    assert answer is not None
    assert answer.payload == '"x"'


def test_a_checkpoint_consumes_what_was_received_and_nothing_else() -> None:
    stored = [wait(0, "a"), wait(1, "b")]
    waits = TaskWaits(stored, [row(7, "w0"), row(8, "w1", name="b")])
    first, _ = ask(waits, "a")
    waits.receive(first, row(7, "w0"))
    assert waits.forget_received() == ((7,), ("w0",))
    assert [one.id for one in stored] == ["w1"]
    assert waits.forget_received() == ((), ())
    assert ask(waits, "b")[1] is False  # its answer is still there for the call that follows


def test_a_row_that_the_handler_acted_upon_does_not_wake_its_park() -> None:
    waits = TaskWaits([], [])
    first, _ = ask(waits, "a")
    waits.arrived(row(3, first.id))
    waits.receive(first, row(3, first.id))
    ask(waits, "b")
    assert waits.handed() == (3,)


def test_a_row_that_came_while_the_suspending_wait_was_open_wakes_the_park() -> None:
    """The handler may have been suspended before it saw it: with `asyncio.wait`, for example."""
    waits = TaskWaits([], [])
    first, _ = ask(waits, "a")
    ask(waits, "b")
    waits.receive(first, row(3, first.id))
    assert waits.handed() == ()


def test_rows_given_with_the_claim_do_not_wake_the_park_again() -> None:
    waits = TaskWaits([wait(0, "a"), wait(1, "b")], [row(3, "w0")])
    first, _ = ask(waits, "a")
    ask(waits, "b")
    waits.receive(first, row(3, "w0"))
    assert waits.handed() == (3,)
    assert TaskWaits([wait(0, "a")], [row(3, "w0")]).handed() == (3,)  # nor if the handler did not ask for it


def test_an_answer_that_the_handler_did_not_get_wakes_the_park() -> None:
    waits = TaskWaits([], [])
    first, _ = ask(waits, "a")
    assert waits.arrived(row(3, first.id)) == [first]
    assert waits.handed() == ()


def test_an_awakeable_answers_every_wait_for_it() -> None:
    waits = TaskWaits([], [])
    first, _ = waits.ask("awakeable", "prom_1x", None, 0)
    second, _ = waits.ask("awakeable", "prom_1x", None, 0)
    answer: Any = row(4, None, kind="awakeable", name="prom_1x")
    assert waits.arrived(answer) == [first, second]
