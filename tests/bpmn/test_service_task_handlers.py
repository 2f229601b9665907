"""The handlers of service tasks, without a store: what they see, throw and escalate."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, Redo
from hark.model.errors import BpmnError, InvalidInput
from hark.model.notes import NoteParent
from hark.programs.bpmn.bpmn_spec import BpmnSpec, NodeSpec
from hark.programs.bpmn.interpreter.service_tasks import new_service_task, task_graph, thrown_by
from hark.programs.bpmn.interpreter.shared_variables import SharedVariables
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_services import TaskServices
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, TaskSpec
from hark.programs.jobs.tasks.task_context import TaskContext
from hark.programs.jobs.tasks.task_program import TaskProgram
from hark.programs.jobs.tasks.task_state import load_task_state
from tests.bpmn.test_service_tasks import bpmn_claim
from tests.programs.jobs.test_task_session import Script

SPEC = BpmnSpec("order", (NodeSpec("charge", "service", handler="h", retries=3, headers={"currency": "EUR"}),))
LARGE = {"order": {"lines": list(range(500))}, "total": 7}
Handler = Callable[[TaskContext], Any]


class Worker(Script):
    """Runs a handler as a task of the process or, with `job`, of a job."""

    def __init__(self, root: Mapping[str, Any] | None = None, *, job: bool = False) -> None:
        super().__init__()
        self.root, self.reads = root or {}, 0
        spec = JobSpec("j", (TaskSpec("charge", handler="h", retry=RetrySpec(3)),))
        self.tasks = JobGraph(spec) if job else task_graph(SPEC)

    async def job_graph(self, definition: str, version: int) -> JobGraph:
        return self.tasks

    async def variables(self, process: str, count: int, since: int) -> Mapping[str, Any]:
        assert (process, count, since) == ("p1", 2, 0)
        self.reads += 1
        return self.root

    async def run(self, handler: Handler, local: Mapping[str, Any] | None = None, state: str | None = None) -> Decision:
        new = new_service_task(bpmn_claim(), SPEC, 0, "p1.1", local=local or {}, root=self.root, handler="h")
        task: Claim = bpmn_claim(
            id="p1.1", kind="task", lane="task:h", step="charge", state=state or new.state, parent_id="p1",
            parent_wait="p1~0",
        )  # fmt: skip
        return await TaskProgram("h", handler).run(task, cast("TaskServices", self))


async def test_b6_a_handler_sees_the_variables_and_the_headers_of_its_element() -> None:
    async def handler(task: TaskContext) -> Any:
        assert task.inputs is task.input
        assert (task.outputs, task.attempt, task.run_id) == ({}, 1, "p1")
        return [task.name, task.input, task.headers]

    decision = await Worker({"total": 7}).run(handler, {"item": 1})
    assert isinstance(decision.move, Finish)
    assert json.loads(decision.move.result or "") == ["charge", {"total": 7, "item": 1}, {"currency": "EUR"}]


async def test_b6_large_variables_are_read_from_the_process_and_local_ones_hide_them() -> None:
    async def handler(task: TaskContext) -> Any:
        return [task.input["total"], len(task.input["order"]["lines"])]

    worker = Worker(LARGE)
    decision = await worker.run(handler, {"total": 8})
    assert isinstance(decision.move, Finish)
    assert json.loads(decision.move.result or "") == [8, 500]
    assert worker.reads == 1


def test_b6_a_handler_may_change_variables_that_other_tasks_share() -> None:
    shared = {"order": {"lines": [1, 2]}, "tags": ["a"], "total": 7, "left": {"a": 1}}
    before = json.dumps(shared)
    reads: list[Callable[[dict[str, Any]], Any]] = [
        lambda v: v["order"]["lines"].append(3),
        lambda v: v.get("order")["lines"].append(3),
        lambda v: dict(v)["order"]["lines"].append(3),
        lambda v: {**v}["order"]["lines"].append(3),
        lambda v: v.copy()["order"]["lines"].append(3),
        lambda v: (v | {"b": 1})["order"]["lines"].append(3),
        lambda v: ({"b": 1} | v)["order"]["lines"].append(3),
        lambda v: [one.clear() for one in v.values() if isinstance(one, dict | list)],
        lambda v: [one.clear() for _, one in v.items() if isinstance(one, dict | list)],
        lambda v: v.pop("order")["lines"].append(3),
        lambda v: (v.pop("item"), v.popitem()[1].clear()),
        lambda v: v.setdefault("order", {})["lines"].append(3),
        lambda v: v.update(order=1),
        lambda v: v.__ior__({"order": 1}),
        lambda v: v.__delitem__("order"),
        lambda v: v.__setitem__("order", 1),
    ]
    for read in reads:
        variables = SharedVariables(shared, {"item": 1})
        assert json.loads(json.dumps(variables)) == {**shared, "item": 1}
        assert isinstance(variables, dict)
        read(SharedVariables(shared, {"item": 1}))
        assert json.dumps(shared) == before


@pytest.mark.parametrize("returned", [False, True])
async def test_b4_a_bpmn_error_ends_the_task_at_once_and_is_in_its_state(returned: bool) -> None:
    async def handler(task: TaskContext) -> Any:
        error = BpmnError("declined", "no money", {"left": 3})
        if returned:
            return task.fail(error)
        raise error

    decision = await Worker().run(handler)
    assert isinstance(decision.move, Finish)
    assert (decision.move.status, decision.move.error) == ("failed", "BpmnError: declined: no money")
    thrown = thrown_by(decision.state)
    assert thrown is not None
    assert (thrown.code, thrown.message, thrown.variables) == ("declined", "no money", {"left": 3})
    [event] = decision.events
    assert (event.type, json.loads(event.data or "")["code"]) == ("thrown", "declined")

    async def works(task: TaskContext) -> Any:
        return task.attempt

    again = await Worker().run(works, state=decision.state)
    assert isinstance(again.move, Finish)
    assert (again.move.status, again.move.result, thrown_by(again.state)) == ("done", "1", None)


@pytest.mark.parametrize(
    "wrong", [BpmnError(""), BpmnError(7), BpmnError("a", variables=[1]), BpmnError("a", "", {"b": object()})]
)  # type: ignore[arg-type]
async def test_b4_a_bpmn_error_that_is_malformed_is_an_error_of_the_handler(wrong: BpmnError) -> None:
    async def handler(task: TaskContext) -> Any:
        raise wrong

    decision = await Worker().run(handler)
    assert isinstance(decision.move, Redo)
    assert load_task_state(decision.state).attempt == 2
    assert decision.failure is not None
    assert decision.failure.type != "BpmnError"


async def test_b4_in_a_job_a_bpmn_error_is_an_error_like_any_other() -> None:
    async def handler(task: TaskContext) -> Any:
        raise BpmnError("declined")

    decision = await Worker(job=True).run(handler)
    assert isinstance(decision.move, Redo)
    assert load_task_state(decision.state).data == {}


async def test_b4_an_escalation_is_told_to_the_process_at_once() -> None:
    worker = Worker()
    worker.answers[NoteParent] = [True]

    async def handler(task: TaskContext) -> Any:
        return await task.escalate("late", {"days": 3})

    decision = await worker.run(handler)
    assert isinstance(decision.move, Finish)
    assert decision.move.result == "true"
    [note] = worker.notes
    assert (note.task_id, note.parent_id, note.parent_wait) == ("p1.1", "p1", "p1~0")
    assert json.loads(note.payload) == {"status": "escalated", "code": "late", "variables": {"days": 3}}
    assert [(event.type, json.loads(event.data)["task"]) for event in note.events] == [("escalated", "charge")]


async def test_b4_a_task_of_a_job_cannot_escalate() -> None:
    async def handler(task: TaskContext) -> Any:
        with pytest.raises(InvalidInput, match="only tasks of a process"):
            task.escalate("late")

    worker = Worker(job=True)
    assert (await worker.run(handler)).label == "done"
    assert worker.notes == []


@pytest.mark.parametrize("arguments", [("",), (7,), ("a", [1])])
async def test_b4_a_malformed_escalation_is_refused(arguments: Any) -> None:
    async def handler(task: TaskContext) -> Any:
        with pytest.raises(InvalidInput):
            task.escalate(*arguments)

    worker = Worker()
    assert (await worker.run(handler)).label == "done"
    assert worker.notes == []
