"""The lease of a task as text."""

import pytest

from hark import InvalidInput
from hark.model.task_lease import lease_text, parse_lease


@pytest.mark.parametrize("task_id", ["job.0", "a.b.c.12-3", "j.4.undo"])
def test_a_lease_is_read_back(task_id: str) -> None:
    assert lease_text(task_id, 17) == f"17.{task_id}"
    assert parse_lease(lease_text(task_id, 17)) == (task_id, 17)


@pytest.mark.parametrize("text", ["", "17", "17.", "x.job.0", ".job.0", "-1.job.0", "\u0661.job.0"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not the lease of a task"):
        parse_lease(text)
