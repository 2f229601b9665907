"""Requests of operators to a process, against the turns of the process: nothing that was accepted is lost (B10)."""

import json
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Commit, RetryInstance, SetVariables
from hark.model.activation import Claim
from hark.model.bpmn_state import control_wait
from hark.model.decisions import Arm, Decision, Finish, Park
from hark.model.errors import Conflict
from hark.model.lanes import BPMN
from hark.programs.bpmn.bpmn_spec import START
from tests.support.stage import Duel, Race, Stage, part, race
from tests.support.turns import DEFINITION, capacity

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROCESS: dict[str, Any] = {"kind": BPMN, "lane": f"{DEFINITION}@1", "step": START, "queue": "default"}
WAIT = Arm("children", control_wait("p"), "", answers_each=True)


def decided(claim: Claim, move: Any) -> Commit:
    state = json.dumps({"variables": {"a": 1}, "incidents": [{}]})
    return Commit(claim=claim, decision=Decision("await", "run", state, move, tuple(row.seq for row in claim.inbox)))


async def given(stage: Stage) -> dict[str, Any]:
    """What the process will know: the variables of its row, and those in its inbox on top of them."""
    [[state]] = await stage.eye.fetch("SELECT state FROM instances WHERE id = 'p'")
    known = json.loads(state)
    known = dict(known.get("variables", known))
    for (payload,) in await stage.eye.fetch(
        "SELECT payload FROM inbox WHERE instance_id = 'p' AND consumed_at IS NULL AND kind = 'control' ORDER BY seq"
    ):
        known |= json.loads(payload) or {}
    return known


@race(deep=True)
async def test_b10_variables_that_are_set_while_a_process_parks_wake_it(stage: Stage) -> Race:
    claim = await stage.executing("p", **PROCESS)
    variables = SetVariables(target="p", payload='{"a":2}')
    yield Duel(part(decided(claim, Park((WAIT,)))), part(variables))
    assert variables.result == "p"
    assert (await stage.content()).instances["p"].status == "runnable"
    assert await given(stage) == {"a": 2}


@race(deep=True)
async def test_b10_variables_that_are_set_while_a_process_is_claimed_for_the_first_time_are_not_lost(
    stage: Stage,
) -> Race:
    await stage.start("p", **PROCESS)
    variables = SetVariables(target="p", payload='{"b":2}')
    claiming, _ = yield Duel(part(claim=capacity("worker")), part(variables))
    assert variables.result == "p"
    claims = claiming.claims or await stage.claim()
    begun = json.loads(claims[0].state)
    await stage.one.run(decided(claims[0], Park((WAIT,))))
    assert begun | await given(stage) == {"a": 1, "b": 2}


@pytest.mark.parametrize("end", ["failed", "done"])
@race()
async def test_b10_variables_that_are_set_while_a_process_ends_are_kept_for_a_retry_or_refused(
    stage: Stage, end: Any
) -> Race:
    claim = await stage.executing("p", **PROCESS)
    await stage.one.run(decided(claim, Park((WAIT,))))
    await stage.one.run(SetVariables(target="p", payload="{}"))
    [claim] = await stage.claim()
    variables = SetVariables(target="p", payload='{"a":2}')
    yield Duel(part(decided(claim, Finish(end))), part(variables))
    if end == "failed":
        assert variables.result == "p"
        await stage.one.run(RetryInstance(target="p"))
        [retried] = await stage.claim()
        assert retried.id == "p"
        assert await given(stage) == {"a": 2}
    else:
        assert variables.result == "p" or isinstance(variables.result, Conflict)


@race()
async def test_b10_a_retry_of_a_live_process_against_its_end_resumes_it_or_is_refused(stage: Stage) -> Race:
    claim = await stage.executing("p", **PROCESS)
    await stage.one.run(decided(claim, Park((WAIT,))))
    retry = RetryInstance(target="p")
    yield Duel(part(Cancel(target="p")), part(retry))
    assert retry.result == "p" or isinstance(retry.result, Conflict)
    assert (await stage.content()).instances["p"].status == "cancelled"
