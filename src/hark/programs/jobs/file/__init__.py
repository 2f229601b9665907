"""Jobs from files, texts, dicts and the builder `Dag`: all of them become a checked JobSpec."""

from __future__ import annotations

from typing import Any

from hark.programs.jobs.file.dag import Dag
from hark.programs.jobs.file.loading import Job

__all__ = ["Dag", "Job", "job_of"]


def job_of(definition: Any) -> Job | None:
    """The checked job of a Job or a Dag; None for anything else.

    Raises:
        InvalidDefinition: The Dag has mistakes.
    """
    if isinstance(definition, Dag):
        return definition.job()
    return definition if isinstance(definition, Job) else None
