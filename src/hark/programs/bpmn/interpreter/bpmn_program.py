"""BpmnProgram: runs the lane `bpmn`, in every worker."""

from __future__ import annotations

from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import Decision
from hark.programs.bpmn.interpreter.bpmn_interpreter import run_bpmn
from hark.programs.bpmn.interpreter.bpmn_services import BpmnServices
from hark.programs.interpreted import recover


class BpmnProgram:
    """The interpreter of processes. The process to run is in the store: `claim.definition` and `claim.version`."""

    traits = TASK_TRAITS
    code = None  # that of Hark

    async def run(self, claim: Claim, services: BpmnServices) -> Decision:
        return await run_bpmn(claim, services)

    async def recover(self, claim: Claim, services: BpmnServices, error: BaseException) -> Decision:
        return recover(claim, error, keeps_undo=False)
