"""`hark job`: check and draw job files, run jobs, and watch them."""

from hark.doors.cli import job_files, job_runs
from hark.doors.cli.commands import command, group

cli = group("Check, run and watch jobs.")
for verb in (
    job_files.check, job_files.graph, job_files.schema, job_runs.run, job_runs.status, job_runs.cancel, job_runs.retry,
    job_runs.logs,
):  # fmt: skip
    command(cli)(verb)
command(cli, "list")(job_runs.list_)
