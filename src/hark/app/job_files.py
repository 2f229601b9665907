"""Job files for the doors: load, check, draw. What a file means is decided in programs/jobs/file/."""

from __future__ import annotations

from hark.app.job_loading import load_job
from hark.app.registered_jobs import unknown_gates
from hark.programs.jobs.file import Job
from hark.programs.jobs.file.file_schema import job_schema
from hark.programs.jobs.file.job_drawing import draw_svg, draw_text
from hark.programs.jobs.file.loading import parse_job_file, with_name
from hark.programs.jobs.job_needs import JobNeed, needs_of

__all__ = [
    "Job", "JobNeed", "draw_svg", "draw_text", "job_schema", "load_job", "needs_of", "parse_job_file", "unknown_gates",
    "with_name",
]  # fmt: skip
