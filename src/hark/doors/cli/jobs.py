"""`hark job`: check and draw job files, run jobs, and watch them."""

from hark.doors.cli import job_files, job_runs
from hark.doors.cli.commands import group

cli = group("Check, run and watch jobs.")
job_files.add_commands(cli)
job_runs.add_commands(cli)
