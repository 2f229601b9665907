"""Load a job from a file, a text or a dict. Its meaning is decided in programs/jobs/file/."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hark.model.errors import InvalidInput
from hark.programs.jobs.file.loading import Job, parse_job, parse_job_file


def load_job(source: str | os.PathLike[str] | Mapping[str, Any]) -> Job:
    """Read and check a job: from a YAML or JSON file, from such a text, or from a dict.

    A text with several lines, or one that begins with `{`, is the job itself; any other text is a path. What is checked
    is the structure; whether its gates exist is checked when the job is started. A file without `name` has the name of
    the file: `release` for release.yaml.

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
    if isinstance(source, Mapping) or (isinstance(source, str) and is_job_text(source)):
        return parse_job(source)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return parse_job_file(path.read_bytes(), f"The job file {os.fspath(source)}", path.stem)
    raise InvalidInput(f"load_job takes a path, a text or a dict, not {type(source).__name__}.")


def is_job_text(source: str) -> bool:
    """Return True if a text is a job, not the path of one."""
    return (
        "\n" in source
        or "\0" in source
        or source.lstrip().startswith("{")
        or (": " in source and not os.path.exists(source))
    )
