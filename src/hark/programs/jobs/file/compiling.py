"""Compile the bytes, the text or the value of a job to its checked spec, or report all its problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.problem import Problem, ProblemList, TooManyProblems
from hark.programs.jobs.file.file_tree import TreeNode, Unreadable, check_text, decode, from_json, from_value
from hark.programs.jobs.file.job_checks import check_graph
from hark.programs.jobs.file.job_reading import JobDraft, read_draft
from hark.programs.jobs.file.template_checks import check_templates
from hark.programs.jobs.file.yaml_tree import from_yaml
from hark.programs.jobs.job_inputs import checked_inputs
from hark.programs.jobs.job_spec import JobSpec


class CompiledJob(NamedTuple):
    """The spec of a job, and the lines of its gates: which gates exist is known only later."""

    spec: JobSpec
    gate_lines: Mapping[str, int | None]  # by the name of the task


def compile_bytes(data: bytes, label: str, name: str | None = None) -> CompiledJob:
    """The spec of a file; `label` begins the message about its problems, `name` is that of a job without a name.
    Raises InvalidDefinition."""
    root = _tree(lambda: _parse(decode(data)), label)
    if name is not None and isinstance(root.value, dict):
        root.value.setdefault("name", TreeNode(name, root.line))
    return check(root, label)


def with_name(data: bytes, name: str) -> bytes:
    """The bytes of a job file without mistakes, with this name if it has none: as JSON then."""
    root = _parse(decode(data))
    if "name" in root.value:
        return data
    return json.dump({"name": name, **root.plain()}).encode()


def compile_text(text: str, label: str) -> CompiledJob:
    """The spec of a text. Raises InvalidDefinition."""
    return check(_tree(lambda: _parse(check_text(text)), label), label)


def compile_value(value: Any, label: str) -> CompiledJob:
    """The spec of a Python value. Raises InvalidDefinition."""
    return check(_tree(lambda: from_value(value), label), label)


def check_value(value: Any, label: str) -> None:
    """Raise InvalidDefinition if a job has mistakes other than those that concern several tasks."""
    draft = JobDraft(_tree(lambda: from_value(value), label))
    with suppress(TooManyProblems):
        read_draft(draft)
    if draft.problems:
        raise draft.problems.error(label)


def _tree(read: Callable[[], TreeNode], label: str) -> TreeNode:
    try:
        return read()
    except Unreadable as unreadable:
        raise ProblemList([unreadable.problem]).error(label) from None


def _parse(text: str) -> TreeNode:
    return from_json(text) if text.lstrip().startswith("{") else from_yaml(text)


def check(root: TreeNode, label: str) -> CompiledJob:
    """The spec of a tree. Raises InvalidDefinition with all problems, or the first 100."""
    draft = JobDraft(root)
    with suppress(TooManyProblems):
        read_draft(draft)
        check_templates(draft, check_graph(draft))
    if draft.problems:
        raise draft.problems.error(label)
    spec = draft.spec()
    if spec.schedule is not None:
        try:
            checked_inputs(spec, spec.schedule.input)
        except InvalidInput as error:
            problem = Problem(None, root.value["schedule"].line, f"schedule: {error}")
            raise ProblemList([problem]).error(label) from None
    lines = {task.spec.name: task.at("gate").line for task in draft.tasks if task.spec is not None}
    return CompiledJob(spec, lines)
