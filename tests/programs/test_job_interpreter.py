"""The interpreter of jobs without a store: what becomes of an activation that could not be carried out."""

from __future__ import annotations

from typing import Any

import pytest

from hark.model.activation import Claim
from hark.model.decisions import Finish, Redo
from hark.model.errors import NotFound, StoreUnavailable
from hark.programs.jobs.addresses import item_id, parse_task_id, task_id, undo_id
from hark.programs.jobs.interpreter import recover_job


def claim(**options: Any) -> Claim:
    fields = dict.fromkeys(Claim.__struct_fields__[: len(Claim.__struct_fields__) - len(Claim.__struct_defaults__)])
    return Claim(**{**fields, "id": "j", "step": "run", "state": "{}", **options})


def test_a_store_that_did_not_answer_a_read_repeats_the_activation() -> None:
    decision = recover_job(claim(), StoreUnavailable("down"))
    assert isinstance(decision.move, Redo)
    assert decision.consume == (), "the ends of tasks are still in the inbox"


def test_any_other_error_fails_the_job_which_can_be_retried_from_there() -> None:
    decision = recover_job(claim(), NotFound("no source"))
    assert isinstance(decision.move, Finish)
    assert (decision.move.status, decision.move.keeps_undo, decision.state) == ("failed", True, "{}")


@pytest.mark.parametrize("job", ["j", "a.b", "a.0", "a.1-2"])
def test_the_id_of_a_task_is_read_back(job: str) -> None:
    assert [parse_task_id(job, task_id(job, 7, generation)) for generation in (0, 3)] == [(7, 0), (7, 3)]
    task = task_id(job, 7)
    for other in (undo_id(task), item_id(task, 2), job, f"{job}.x", f"other.{job}.7"):
        assert parse_task_id(job, other) is None
