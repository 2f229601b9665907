"""Fixtures for BPMN: the testing kit on every database, and the check that every activation leaves a sound state."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from hark.model.activation import Claim
from hark.model.decisions import Decision
from hark.programs.bpmn.interpreter import bpmn_program
from hark.programs.bpmn.interpreter.bpmn_services import BpmnServices
from hark.testing import Harness
from tests.bpmn.soundness import flaws
from tests.support.stores import Store


@pytest.fixture(autouse=True)
def _sound_states(monkeypatch: pytest.MonkeyPatch) -> None:
    run_bpmn = bpmn_program.run_bpmn

    async def run(claim: Claim, services: BpmnServices) -> Decision:
        decision = await run_bpmn(claim, services)
        found = flaws(claim, decision)
        assert not found, f"the state of {claim.definition} {claim.id} is not sound: {'; '.join(found)}"
        return decision

    monkeypatch.setattr(bpmn_program, "run_bpmn", run)


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Harness]:
    async with Harness(url=store.url, **store.options) as app:
        yield app
