"""The rows of service tasks, as the interpreter of processes makes them."""

from __future__ import annotations

from typing import Any

import pytest

from hark.model import json
from hark.model.activation import Claim
from hark.model.errors import InvalidInput
from hark.programs.bpmn.bpmn_spec import BpmnSpec, NodeSpec
from hark.programs.bpmn.interpreter.service_tasks import (
    new_service_task,
    retried_state,
    task_graph,
    thrown_by,
)
from hark.programs.jobs.job_spec import RetrySpec
from hark.programs.jobs.tasks.task_state import BPMN_ERROR, dump_task_state, load_task_state
from tests.support.claims import a_claim

SPEC = BpmnSpec(
    "order",
    (
        NodeSpec("begin", "start"),
        NodeSpec("charge", "service", handler="charge-card", retries=5, retry_delay=2.5, headers={"currency": "EUR"}),
        NodeSpec("ship", "service", handler="=carrier", retries=0),
    ),
)


def bpmn_claim(**columns: Any) -> Claim:
    own = {"id": "p1", "definition": "order", "version": 3, "kind": "bpmn", "priority": 7, "step": "run", "trace": "t"}
    return a_claim(**{**own, "queue": "hark.graphs", "lane": "bpmn", **columns})


def test_b6_the_number_of_a_service_task_is_that_of_its_node() -> None:
    graph = task_graph(SPEC)
    assert [task.name for task in graph.tasks] == ["begin", "charge", "ship"]
    assert graph.spec.is_bpmn


def test_b6_retries_are_attempts_in_all_and_at_least_one() -> None:
    graph = task_graph(SPEC)
    assert graph.tasks[1].retry == RetrySpec(5, 2.5, 1.0)
    assert graph.tasks[2].retry == RetrySpec(1)
    assert task_graph(BpmnSpec("p", (NodeSpec("a", "service"),))).tasks[0].retry.limit == 3
    assert graph.tasks[1].headers == {"currency": "EUR"}


def test_b6_a_service_task_is_a_child_in_the_lane_of_its_handler() -> None:
    new = new_service_task(bpmn_claim(), SPEC, 1, "p1.4", local={}, root={"total": 120}, handler="charge-card")
    assert (new.id, new.kind, new.lane, new.queue) == ("p1.4", "task", "task:charge-card", "default")
    assert (new.definition, new.version, new.step, new.priority, new.trace) == ("order", 3, "charge", 7, "t")
    state = load_task_state(new.state)
    assert (state.task, state.run, state.attempt) == (1, "p1", 1)


def test_b6_small_variables_travel_with_the_task_and_local_ones_hide_others() -> None:
    new = new_service_task(bpmn_claim(), SPEC, 1, "p1.4", local={"n": 2}, root={"n": 1, "total": 120}, handler="h")
    assert json.load(bytes(load_task_state(new.state).inputs).decode()) == {"n": 2, "total": 120}  # type: ignore[arg-type]


@pytest.mark.parametrize("root", [{"big": "x" * 600}, {"items": list(range(300))}, {f"name{n}": n for n in range(100)}])
def test_b6_large_variables_of_the_process_are_left_in_its_row(root: dict[str, Any]) -> None:
    new = new_service_task(bpmn_claim(), SPEC, 1, "p1.4", local={"item": 7}, root=root, handler="h")
    assert len(new.state) < 100
    assert load_task_state(new.state).data == {"local": {"item": 7}, "started_at": [2, 0]}


def test_b6_large_variables_are_not_read_for_each_task() -> None:
    class Counted(list[int]):
        reads = 0

        def __iter__(self) -> Any:
            Counted.reads += 1
            return super().__iter__()

    root = {"items": Counted(range(1000))}
    new_service_task(bpmn_claim(), SPEC, 1, "p1.4", local={}, root=root, handler="h")
    assert Counted.reads == 0


@pytest.mark.parametrize("name", ["", "shell", "x" * 300])
def test_b6_a_name_that_a_handler_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        new_service_task(bpmn_claim(), SPEC, 1, "p1.4", local={}, root={}, handler=name)


def test_b10_a_retried_task_begins_with_its_first_attempt_and_new_variables() -> None:
    state = load_task_state(retried_state(bpmn_claim(), 1, None, local={}, root={"total": 130}))
    assert state.attempt == 1
    assert json.load(bytes(state.inputs).decode()) == {"total": 130}  # type: ignore[arg-type]


def test_b4_the_error_that_a_handler_threw_is_in_the_state_of_its_task() -> None:
    state = load_task_state(retried_state(bpmn_claim(), 1, None, local={}, root={}))
    assert thrown_by(dump_task_state(state)) is None
    state.data[BPMN_ERROR] = {"code": "declined", "message": "no money", "variables": {"left": 3}}
    thrown = thrown_by(dump_task_state(state))
    assert thrown is not None
    assert (thrown.code, thrown.message, thrown.variables) == ("declined", "no money", {"left": 3})
