"""JobProgram: runs the lane `job` in every worker: jobs, and the tasks that need no code of a user."""

from __future__ import annotations

from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import Decision
from hark.programs.interpreted import recover
from hark.programs.jobs.job_interpreter import run_job
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.new_tasks import KIND
from hark.programs.jobs.tasks.step_tasks import run_step_task


class JobProgram:
    """The interpreter of jobs. The job to run is in the store: `claim.definition` and `claim.version` name it."""

    traits = TASK_TRAITS
    code = None  # that of Hark

    async def run(self, claim: Claim, services: JobServices) -> Decision:
        return await (run_step_task if claim.kind == KIND else run_job)(claim, services)

    async def recover(self, claim: Claim, services: JobServices, error: BaseException) -> Decision:
        return recover(claim, error, keeps_undo=True)
