"""The JSON Schema of job files agrees with `load_job` in what a schema can say."""

from typing import Any

import jsonschema_rs
import pytest

from hark import InvalidDefinition, load_job
from hark.programs.jobs.file.file_schema import job_schema

VALIDATOR = jsonschema_rs.validator_for(job_schema())


def of(task: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "j", "tasks": [{"name": "a", **task}], **more}


GOOD = [
    of({"run": "x"}),
    of({"handler": "h", "gate": "user_approval", "retry": {"limit": 2}, "heartbeat_sec": 3}),
    of({"run": "x", "gate": {"user_approval": {"title": "{{ output }}?", "assignees": ["a"], "timeout": 5}}}),
    of({"run": "x", "gate": {"user_approval": {}}}, timeout_sec=1.5),
    of({"agent": {"type": "o", "model": "m"}, "run": "x"}),
    of({"agent": "o", "run": "x"}),
    of({"type": "loop", "handler": "h", "max_iterations": 3, "loop_delay": 0}),
    of({"type": "approval", "title": "ok?", "assignees": ["a"], "schema": {"type": "object"}}),
    of({"type": "wait_for_event", "event": "e", "match": "event.x == 1", "timeout": 1.5}),
    of({"type": "sleep", "seconds": "{{ inputs.x }}"}),
    of({"type": "workflow", "definition": "d", "input": [1, {"a": None}]}),
    of({"type": "map", "over": [1], "handler": "h", "concurrency": 2, "as": "x"}),
    of({"run": "x", "if": False, "rate_limit": ["a", "b"], "priority": -3}),
    of({"run": "x"}, schedule="0 9 * * MON", inputs={"a": None}, fail_fast=True, defaults={"retry": {}}),
    of({"run": "x"}, schedule={"every": 5, "catch_up": 0}, **{"finally": [{"name": "z", "run": "y"}]}),
]
BAD = [
    {"name": "j"},
    of({}),
    of({"run": "x", "handler": "h"}),
    of({"agent": "o"}),
    of({"run": 1}),
    of({"run": "x", "runn": "x"}),
    of({"run": "x", "gate": {}}),
    of({"run": "x", "gate": {"lint": {}}}),
    of({"run": "x", "gate": {"user_approval": {"titel": "x"}}}),
    of({"run": "x"}, timeout_sec=0),
    of({"run": "x", "type": "loop"}),
    of({"type": "loop"}),
    of({"type": "sleep"}),
    of({"type": "sleep", "seconds": "soon"}),
    of({"type": "map", "handler": "h"}),
    of({"run": "x", "max_iterations": 3}),
    of({"run": "x", "retry": {"limit": 0}}),
    of({"run": "x", "timeout_sec": 0}),
    of({"run": "x", "when": "never"}),
    of({"run": "x"}, on="push"),
    of({"run": "x"}, fail_fast="yes"),
    of({"run": "x"}, **{"finally": [{"name": "z", "type": "loop"}]}),
]


@pytest.mark.parametrize("job", GOOD)
def test_what_load_job_accepts_matches_the_schema(job: dict[str, Any]) -> None:
    load_job(job)
    VALIDATOR.validate(job)


@pytest.mark.parametrize("job", BAD)
def test_what_load_job_refuses_for_its_shape_does_not_match_the_schema(job: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition):
        load_job(job)
    assert not VALIDATOR.is_valid(job)
