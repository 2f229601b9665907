"""`Job`, the checked result of reading a job; made of a text, a value or the bytes of a file.

What reads and checks a file is imported when the first job is loaded (compiling.py): most programs load none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hark.programs.jobs.job_spec import JobSpec, digest_of, encode_job


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


def parse_job(source: str | Mapping[str, Any]) -> Job:
    """The job in a text or a dict.

    Raises:
        InvalidDefinition: It has mistakes.
        MissingExtra: It is YAML, and PyYAML is not installed.
    """
    from hark.programs.jobs.file import compiling

    if isinstance(source, str):
        return Job(*compiling.compile_text(source, "The job"))
    return Job(*compiling.compile_value(dict(source), "The job"))


def parse_job_file(data: bytes, label: str, name: str | None = None) -> Job:
    """The job in the bytes of a file; `label` begins the message about its problems, and `name`, from the name of the
    file, is that of a job that has none.

    Raises:
        InvalidDefinition: It has mistakes.
        MissingExtra: It is YAML, and PyYAML is not installed.
    """
    from hark.programs.jobs.file import compiling

    return Job(*compiling.compile_bytes(data, label, name))


def with_name(data: bytes, name: str) -> bytes:
    """The bytes of a job file that `parse_job_file` has accepted, for a reader who does not know the file's name."""
    from hark.programs.jobs.file import compiling

    return compiling.with_name(data, name)
