"""`load_job`: a job from a file, a text or a dict; and `Job`, the checked result.

What reads and checks a file is imported when the first job is loaded (compiling.py): most programs load none.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hark.model.errors import InvalidInput
from hark.model.job import JobSpec, digest_of, encode_job


class Job:
    """A checked job, as `load_job` returns it. Pass it to `app.register` or `app.start`.

    Attributes:
        name: The name of the job.
        spec: The job as data.
        source: The JSON text of the spec, which the store keeps.
        digest: The digest of the source: two jobs with the same digest are the same version.
        gate_lines: The line of the gate of each task, by its name; None if the job is not from a file.
    """

    __slots__ = ("digest", "gate_lines", "name", "source", "spec")

    def __init__(self, spec: JobSpec, gate_lines: Mapping[str, int | None] | None = None) -> None:
        self.gate_lines = gate_lines or {}
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
        InvalidDefinition: The job has mistakes; `.problems` lists them with their lines, up to 100.
        MissingExtra: It is YAML, and PyYAML is not installed: `pip install 'hark[jobs]'`.
        OSError: The file cannot be read.

    Example:
        job = load_job("release.yaml")
        handle = await app.start(job, {"service": "api"})
    """
    from hark.dialects.job import compiling

    if isinstance(source, Mapping):
        return Job(*compiling.compile_value(dict(source), "The job"))
    if isinstance(source, str) and is_job_text(source):
        return Job(*compiling.compile_text(source, "The job"))
    if isinstance(source, str | os.PathLike):
        return parse_job_file(Path(source).read_bytes(), f"The job file {os.fspath(source)}")
    raise InvalidInput(f"load_job takes a path, a text or a dict, not {type(source).__name__}.")


def parse_job_file(data: bytes, label: str) -> Job:
    """The job in the bytes of a file; `label` begins the message about its problems.

    Raises:
        InvalidDefinition: It has mistakes.
        MissingExtra: It is YAML, and PyYAML is not installed.
    """
    from hark.dialects.job import compiling

    return Job(*compiling.compile_bytes(data, label))


def is_job_text(source: str) -> bool:
    """Whether a text is a job, not the path of one."""
    return (
        "\n" in source
        or "\0" in source
        or source.lstrip().startswith("{")
        or (": " in source and not os.path.exists(source))
    )
