"""Job files for the doors: load, check, draw. What a file means is decided in dialects/job/."""

from __future__ import annotations

from hark.app.job_loading import load_job
from hark.dialects.job import Job
from hark.dialects.job.drawing import draw_svg, draw_text
from hark.dialects.job.loading import parse_job_file
from hark.dialects.job.schema import job_schema

__all__ = ["Job", "draw_svg", "draw_text", "job_schema", "load_job", "parse_job_file"]
