"""`load_job`: a job from a file, a text or a dict; and `Job`, the checked result."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hark.dialects.job.checks import check_graph
from hark.dialects.job.reading import read_draft
from hark.dialects.job.template_checks import check_templates
from hark.dialects.job.tree import TreeNode, Unreadable, check_text, decode, from_json, from_value
from hark.dialects.job.yaml_tree import from_yaml
from hark.model.errors import InvalidDefinition, InvalidInput
from hark.model.job import JobSpec, digest_of, encode_job
from hark.model.problem import Problem

_SHOWN = 20  # problems in the message; `.problems` has all


class Job:
    """A checked job, as `load_job` returns it. Pass it to `app.register` or `app.start`.

    Attributes:
        name: The name of the job.
        spec: The job as data.
        source: The JSON text of the spec, which the store keeps.
        digest: The digest of the source: two jobs with the same digest are the same version.
    """

    __slots__ = ("digest", "name", "source", "spec")

    def __init__(self, spec: JobSpec) -> None:
        self.spec = spec
        self.name = spec.name
        self.source = encode_job(spec)
        self.digest = digest_of(self.source)

    def __repr__(self) -> str:
        return f"<job {self.name}, {len(self.spec.tasks)} tasks>"


def load_job(source: str | os.PathLike[str] | Mapping[str, Any]) -> Job:
    """Read and check a job: from a YAML or JSON file, from such a text, or from a dict.

    A text with several lines, or one that begins with `{`, is the job itself; any other text is a path. What is checked
    is the structure; whether its gates exist is checked when the job is started.

    Args:
        source: A path, the text of a job, or a dict with the same keys.

    Returns:
        The job, to be passed to `app.register` or `app.start`.

    Raises:
        InvalidDefinition: The job has mistakes; `.problems` lists all of them with their lines.
        MissingExtra: It is YAML, and PyYAML is not installed: `pip install 'hark[jobs]'`.
        OSError: The file cannot be read.

    Example:
        job = load_job("release.yaml")
        handle = await app.start(job, {"service": "api"})
    """
    label = "The job"
    try:
        if isinstance(source, Mapping):
            root = from_value(dict(source))
        elif isinstance(source, str) and _is_text(source):
            root = _parse(check_text(source))
        elif isinstance(source, str | os.PathLike):
            return parse_job_file(Path(source).read_bytes(), f"The job file {os.fspath(source)}")
        else:
            raise InvalidInput(f"load_job takes a path, a text or a dict, not {type(source).__name__}.")
    except Unreadable as unreadable:
        raise invalid(label, [unreadable.problem]) from None
    return Job(check(root, label))


def parse_job_file(data: bytes, label: str) -> Job:
    """The job in the bytes of a file; `label` begins the message about its problems.

    Raises:
        InvalidDefinition: It has mistakes.
        MissingExtra: It is YAML, and PyYAML is not installed.
    """
    try:
        root = _parse(decode(data))
    except Unreadable as unreadable:
        raise invalid(label, [unreadable.problem]) from None
    return Job(check(root, label))


def _is_text(source: str) -> bool:
    """Whether a text is a job, not the path of one."""
    return "\n" in source or source.lstrip().startswith("{") or (": " in source and not os.path.exists(source))


def _parse(text: str) -> TreeNode:
    return from_json(text) if text.lstrip().startswith("{") else from_yaml(text)


def check(root: TreeNode, label: str) -> JobSpec:
    """The spec of a tree. Raises InvalidDefinition with all problems."""
    draft = read_draft(root)
    check_templates(draft, check_graph(draft))
    if draft.problems:
        raise invalid(label, draft.problems)
    return draft.spec()


def invalid(label: str, problems: Sequence[Problem]) -> InvalidDefinition:
    """The error of a job with problems, in the order of their lines."""
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    shown = [f"  {problem}" for problem in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        shown.append(f"  and {len(ordered) - _SHOWN} more")
    what = "a problem" if len(ordered) == 1 else f"{len(ordered)} problems"
    return InvalidDefinition("\n".join([f"{label} has {what}:", *shown]), problems=ordered)
