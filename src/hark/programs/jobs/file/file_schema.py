"""The JSON Schema of job files, made from the table of keys. Editors complete and check files with it.

It is shipped as job.schema.json beside this file; a test compares both. A schema cannot say everything: cycles, names
and expressions are only found by `load_job` and `hark job check`.
"""

from __future__ import annotations

from typing import Any

from hark.programs.jobs.file.keys import JOB_KEYS, NEEDED_BY_TYPE, TASK_KEYS, TYPES, object_schema

ID = "https://hark.example/job.schema.json"


def job_schema() -> dict[str, Any]:
    """The schema of a job file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "Hark job",
        "description": "A DAG of tasks: see docs/jobs.md.",
        **object_schema(JOB_KEYS),
        "$defs": {"task": {**object_schema(TASK_KEYS), "allOf": [_of_type(name) for name in TYPES]}},
    }


def _of_type(name: str) -> dict[str, Any]:
    """The keys that a task of this type cannot have, and those that it needs."""
    is_type: dict[str, Any] = {"properties": {"type": {"const": name}}}
    if name != "task":  # a task without `type` is a task
        is_type["required"] = ["type"]
    then: dict[str, Any] = {"properties": {key: False for key, known in TASK_KEYS.items() if name not in known.types}}
    if needed := NEEDED_BY_TYPE.get(name):
        then["required"] = list(needed)
    if name in ("task", "map"):
        then["oneOf"] = [{"required": ["handler"]}, {"required": ["run"]}]
        then["dependentRequired"] = {"agent": ["run"]}
    return {"if": is_type, "then": then}
