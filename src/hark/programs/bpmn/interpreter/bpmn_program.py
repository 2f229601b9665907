"""ProcessProgram: what every worker runs in the lane `bpmn`."""

from __future__ import annotations

from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import Decision
from hark.programs.bpmn.interpreter.bpmn_interpreter import run_process
from hark.programs.bpmn.interpreter.bpmn_services import ProcessServices
from hark.programs.interpreted import recover


class ProcessProgram:
    """The interpreter of processes. The process to run is in the store: `claim.definition` and `claim.version`."""

    traits = TASK_TRAITS

    async def run(self, claim: Claim, services: ProcessServices) -> Decision:
        return await run_process(claim, services)

    async def recover(self, claim: Claim, services: ProcessServices, error: BaseException) -> Decision:
        return recover(claim, error, keeps_undo=False)
