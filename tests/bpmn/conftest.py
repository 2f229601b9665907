"""Every activation of a process in these tests leaves a sound state (soundness.py)."""

from __future__ import annotations

import pytest

from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.programs.bpmn.interpreter import bpmn_program
from hark.programs.bpmn.interpreter.bpmn_services import BpmnServices
from tests.bpmn.soundness import flaws


@pytest.fixture(autouse=True)
def _sound_states(monkeypatch: pytest.MonkeyPatch) -> None:
    run_bpmn = bpmn_program.run_bpmn

    async def run(claim: Claim, services: BpmnServices) -> Decision:
        decision = await run_bpmn(claim, services)
        found = flaws(claim, decision)
        assert not found, f"the state of {claim.definition} {claim.id} is not sound: {'; '.join(found)}"
        return decision

    monkeypatch.setattr(bpmn_program, "run_bpmn", run)
