"""Listeners: an activation is given what its own process delivers, and is notified of everything else."""

from typing import Any

import pytest

from hark.engine.worker.listeners import Listeners
from hark.model.activation import Arrived, InboxRow


def rows(*seqs: int, **options: Any) -> dict[str, Arrived]:
    return {"t": Arrived(3, [InboxRow(seq, "signal", "s", "w", "1", 1) for seq in seqs], **options)}


async def test_a_task_is_given_the_rows_and_not_notified() -> None:
    listeners, given = Listeners(), []
    listener = listeners.listen("t", lambda arrived: not given.append([row.seq for row in arrived.rows]))
    listeners.notify({"t", "other"}, rows(4, 5))
    assert given == [[4, 5]]
    assert not listener.is_notified()


@pytest.mark.parametrize("case", ["refused", "moved", "function"])
async def test_a_listener_that_does_not_get_all_rows_is_notified(case: str) -> None:
    listeners = Listeners()
    listener = listeners.listen("t", None if case == "function" else lambda arrived: case != "refused")
    listeners.notify({"t"}, {} if case == "function" else rows(4, is_complete=case != "moved"))
    assert listener.is_notified()


async def test_a_row_of_another_process_below_one_that_was_given_is_not_overlooked() -> None:
    listeners = Listeners()
    listener = listeners.listen("t", lambda arrived: True)
    listener.reset(2)
    listeners.notify({"t"}, rows(4))
    assert listeners.listening() == [("t", 2)]
    listeners.notify_unseen({"t": [4], "other": [1]})
    assert not listener.is_notified()
    assert listeners.listening() == [("t", 4)]
    listeners.notify({"t"}, rows(7))
    listeners.notify_unseen({"t": [6, 7]})
    assert listener.is_notified()
