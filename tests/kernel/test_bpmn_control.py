"""Operators set variables of a process and resume its incidents while it is live (B10)."""

import json
from typing import Any

import pytest

from hark.kernel.requests import Cancel, Commit, DefinitionRow, Deliver, HandBack, Register, RetryInstance, SetVariables
from hark.model.activation import Claim
from hark.model.bpmn_state import control_wait, has_begun, merge_variables
from hark.model.decisions import Arm, Decision, Finish, Park
from hark.model.errors import Conflict, InvalidInput, NotFound
from hark.model.lanes import BPMN, ENGINE_QUEUE
from hark.programs.bpmn.bpmn_spec import START, step_of_start
from tests.promises.support_signals import Turns, rows
from tests.support.turns import ask

WAIT = Arm("children", control_wait("p"), "", answers_each=True)


@pytest.fixture
async def turns(turns_by_hand: Turns) -> Turns:
    await turns_by_hand.run(Register(rows=[DefinitionRow("P", 1, BPMN, ENGINE_QUEUE, START)]))
    await turns_by_hand.start("P", "p")
    return turns_by_hand


def decided(claim: Claim, move: Any, state: dict[str, Any]) -> Commit:
    consume = tuple(row.seq for row in claim.inbox)
    return Commit(claim=claim, decision=Decision("await", "run", json.dumps(state), move, consume))


async def parked(turns: Turns, **state: Any) -> None:
    """The process has begun and waits."""
    await turns.run(decided(await turns.claim("P"), Park((WAIT,)), {"variables": {"a": 1}, "tokens": [], **state}))


async def state(turns: Turns) -> Any:
    [[text]] = await rows(turns.made_for, "SELECT state FROM instances WHERE id = 'p'")
    return json.loads(text)


def control(claim: Claim) -> list[tuple[str, str, str | None, Any]]:
    return [(row.kind, row.name, row.wait_id, json.loads(row.payload)) for row in claim.inbox]


def test_b10_variables_are_merged_into_the_state_of_a_process() -> None:
    merged = merge_variables('{"variables":{"a":1,"b":{"c":2}},"tokens":[1]}', '{"b":null,"d":"x"}', "run")
    assert json.loads(merged) == {"variables": {"a": 1, "b": None, "d": "x"}, "tokens": [1]}
    assert json.loads(merge_variables('{"tokens":[1]}', '{"a":1}', "run")) == {"tokens": [1], "variables": {"a": 1}}
    for step in (START, step_of_start("s")):
        assert not has_begun(step)
        assert json.loads(merge_variables('{"variables":1}', '{"a":2}', step)) == {"variables": 1, "a": 2}


async def test_b10_a_live_process_gets_its_variables_as_a_row_of_its_inbox(turns: Turns) -> None:
    await parked(turns)
    both = [SetVariables(target="p", payload=payload) for payload in ('{"a":2}', '{"b":3}')]
    assert await ask(turns, *both) == ["p", "p"]
    claim = await turns.claim("P")
    assert control(claim) == [("control", "variables", "p~0", {"a": 2}), ("control", "variables", "p~0", {"b": 3})]
    assert await state(turns) == {"variables": {"a": 1}, "tokens": []}
    assert await ask(turns, SetVariables(target="p", payload='{"c":4}')) == ["p"]  # while it executes
    await turns.run(decided(claim, Park((), disarm=()), {"variables": {}}))
    assert control(await turns.claim("P")) == [("control", "variables", "p~0", {"c": 4})]
    found = await rows(turns.made_for, "SELECT data FROM events WHERE type = 'variables' ORDER BY seq")
    assert [json.loads(data) for (data,) in found] == [{"names": ["a"]}, {"names": ["b"]}, {"names": ["c"]}]


async def test_b10_before_the_first_activation_variables_are_merged_into_the_input(turns: Turns) -> None:
    await ask(turns, SetVariables(target="p", payload='{"a":1,"b":1}'), SetVariables(target="p", payload='{"b":2}'))
    claim = await turns.claim("P")
    assert (json.loads(claim.state), claim.inbox) == ({"a": 1, "b": 2}, [])


async def test_b10_during_the_first_activation_variables_wait_for_its_end(turns: Turns) -> None:
    claim = await turns.claim("P")
    await ask(turns, SetVariables(target="p", payload='{"a":2}'))
    await turns.run(decided(claim, Park((WAIT,)), {"variables": {"a": 1}}))
    assert control(await turns.claim("P")) == [("control", "variables", "p~0", {"a": 2})]


async def test_b10_variables_that_were_set_first_do_not_overwrite_later_ones(turns: Turns) -> None:
    """The first activation is handed back; what was set during it is in the inbox, and must be read first."""
    claim = await turns.claim("P")
    await ask(turns, SetVariables(target="p", payload='{"a":1}'))
    await turns.run(HandBack(claims=[claim]))
    await ask(turns, SetVariables(target="p", payload='{"a":2}'))
    claim = await turns.claim("P")
    assert (claim.step, claim.state) == (START, "{}")
    assert [given for *_, given in control(claim)] == [{"a": 1}, {"a": 2}]


async def test_b10_variables_of_a_failed_process_are_corrected_before_its_retry(turns: Turns) -> None:
    await parked(turns)
    await ask(turns, SetVariables(target="p", payload="{}"))
    await turns.run(
        decided(await turns.claim("P"), Finish("failed", error="no"), {"variables": {"a": 1}, "failed": True})
    )
    both = [SetVariables(target="p", payload='{"a":2,"b":3}'), RetryInstance(target="p")]
    assert await ask(turns, SetVariables(target="p", payload='{"b":1}')) == ["p"]
    assert await rows(turns.made_for, "SELECT status FROM instances") == [("failed",)]
    assert await ask(turns, *both) == ["p", "p"]
    claim = await turns.claim("P")
    assert json.loads(claim.state) == {"variables": {"a": 2, "b": 3}, "failed": True}
    assert claim.inbox == []


async def test_b10_retry_of_a_live_process_resumes_its_incidents(turns: Turns) -> None:
    await parked(turns, incidents=[{"token": 1}])
    assert await ask(turns, SetVariables(target="p", payload='{"a":2}'), RetryInstance(target="p")) == ["p", "p"]
    claim = await turns.claim("P")
    assert control(claim) == [("control", "variables", "p~0", {"a": 2}), ("control", "retry", "p~0", None)]
    assert await ask(turns, RetryInstance(target="p")) == ["p"]  # it may have new ones by now
    await turns.run(decided(claim, Park((), disarm=()), {"variables": {}}))
    claim = await turns.claim("P")
    assert control(claim) == [("control", "retry", "p~0", None)]
    await turns.run(decided(claim, Park((), disarm=()), {"variables": {}}))
    [refused] = await ask(turns, RetryInstance(target="p"))
    assert isinstance(refused, Conflict)
    assert "no incidents" in str(refused)
    assert await turns.nobody_runs("P")


async def test_b10_a_process_that_has_not_begun_has_nothing_to_retry(turns: Turns) -> None:
    [refused] = await ask(turns, RetryInstance(target="p"))
    assert isinstance(refused, Conflict)


async def test_b10_variables_that_cannot_be_set(turns: Turns) -> None:
    await turns.start("M", "m")
    await turns.start("P", "ended")
    await turns.run(Cancel(target="ended"))
    before = await rows(turns.made_for, "SELECT state FROM instances ORDER BY id")
    asked = [SetVariables(target=target, payload='{"a":2}') for target in ("nowhere", "m", "ended")]
    results = await ask(turns, *asked, SetVariables(target="p", payload="[1]"))
    assert [type(result) for result in results] == [NotFound, InvalidInput, Conflict, InvalidInput]
    assert "is a machine" in str(results[1])
    assert results[2].status == "cancelled"
    assert await rows(turns.made_for, "SELECT state FROM instances ORDER BY id") == before
    assert await rows(turns.made_for, "SELECT count(*) FROM inbox") == [(0,)]


async def test_b10_a_cancel_in_the_same_turn_comes_first(turns: Turns) -> None:
    await parked(turns)
    [refused, _] = await ask(turns, SetVariables(target="p", payload="{}"), Cancel(target="p"))
    assert isinstance(refused, Conflict)


async def test_invariant_16_no_signal_is_taken_for_what_an_operator_asks(turns: Turns) -> None:
    await parked(turns, incidents=[{}])
    for name in ("variables", "retry", "p~0"):
        await turns.run(Deliver(target="p", name=name, payload='{"a":2}'))
    assert await turns.nobody_runs("P")
    assert {kind for (kind,) in await rows(turns.made_for, "SELECT kind FROM inbox")} == {"signal"}
