"""Service tasks: the children of a process that a handler runs.

They are run like the tasks of a job, by the same program (programs/jobs/tasks/task_program.py) and by the same
workers. For them, a process is a job without needs: a task for each node, so that the number of a task is that of its
node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from hark.model.activation import Claim
from hark.model.decisions import NewInstance
from hark.model.epochs import count_of
from hark.model.errors import InvalidInput
from hark.model.lanes import lane_name_problem, task_lane
from hark.model.names import check_name
from hark.programs.bpmn.bpmn_spec import BpmnSpec, NodeSpec
from hark.programs.bpmn.interpreter.elements import ELEMENT_BEHAVIOURS
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, TaskSpec
from hark.programs.jobs.new_tasks import KIND
from hark.programs.jobs.tasks.task_state import (
    LOCAL,
    MAX_EMBEDDED,
    STARTED_AT,
    TaskState,
    dump_task_state,
    load_task_state,
)

_QUEUE: Final = "default"

_encode = msgspec.json.Encoder().encode


def task_graph(spec: BpmnSpec) -> JobGraph:
    """The process as the program of its service tasks sees it."""
    return JobGraph(JobSpec(spec.id, tuple(map(_task_spec, spec.nodes)), is_bpmn=True))


def _task_spec(node: NodeSpec) -> TaskSpec:
    if not ELEMENT_BEHAVIOURS[node.kind].has_handler:
        return TaskSpec(node.id)
    limit = max(1, node.retries)
    retry = RetrySpec(limit) if node.retry_delay is None else RetrySpec(limit, node.retry_delay, scaling=1.0)
    handler = node.handler if isinstance(node.handler, str) else None
    return TaskSpec(node.id, handler=handler, retry=retry, headers=node.headers)


def new_service_task(
    claim: Claim,
    spec: BpmnSpec,
    number: int,
    id: str,
    *,
    local: Mapping[str, Any],
    root: Mapping[str, Any],
    handler: str,
) -> NewInstance:
    """The row of a service task.

    Args:
        claim: The process instance.
        spec: The process.
        number: The number of the node.
        id: The id of the task.
        local: The variables that it sees beside those of the process itself; they hide those of the same name.
        root: The variables of the process itself.
        handler: The name of the handler.

    Raises:
        InvalidInput: A handler cannot have this name.
    """
    return NewInstance(
        definition=claim.definition,
        version=claim.version,
        state=dump_task_state(_first_state(claim, number, local, root)),
        id=id,
        named=True,
        step=spec.nodes[number].id,
        queue=_QUEUE,
        priority=claim.priority,
        trace=claim.trace,
        scheduled_at=claim.scheduled_at,
        lane=service_lane(handler),
        kind=KIND,
    )


def service_lane(handler: str) -> str:
    """The lane of the tasks of a handler; raises InvalidInput if a handler cannot have this name."""
    problem = lane_name_problem(check_name(handler, "name of a handler"), "handler")
    if problem is not None:
        raise InvalidInput(problem)
    return task_lane(handler)


def retried_state(
    claim: Claim, number: int, left: str | None, *, local: Mapping[str, Any], root: Mapping[str, Any]
) -> str:
    """The state with which a service task runs again after an incident: from its first attempt on, with the variables
    of now, and with the checkpoint in the state that it left, if that is known."""
    state = _first_state(claim, number, local, root)
    if left is not None:
        before = load_task_state(left)
        state.checkpoint, state.period = before.checkpoint, before.period
        state.ended = True  # what it asked before is asked anew
    return dump_task_state(state)


def _first_state(claim: Claim, number: int, local: Mapping[str, Any], root: Mapping[str, Any]) -> TaskState:
    if _is_small(local, root) and len(text := _encode({**root, **local})) <= MAX_EMBEDDED:
        return TaskState(number, claim.id, inputs=Raw(text))
    data: dict[str, Any] = {STARTED_AT: (count_of(claim.epoch + 1), claim.now)}  # each commit has an epoch of its own
    if local:
        data[LOCAL] = dict(local)
    return TaskState(number, claim.id, inputs=UNSET, data=data)


def _is_small(*values: Any) -> bool:
    """Return False if the JSON of these is certainly longer than a task's state may embed. It looks at no more of them
    than it needs: thousands of tasks may start beside the same large variables."""
    left, size = list(values), 0
    while left:
        value = left.pop()
        kind = type(value)  # not `isinstance`, which asks a Mapping about each item
        if kind is str or kind is list or kind is dict:
            size += len(value)
            if size > MAX_EMBEDDED:
                return False
            if kind is dict:
                left.extend(value)
                left.extend(value.values())
            elif kind is list:
                left.extend(value)
        else:
            size += 1
    return size <= MAX_EMBEDDED


class ThrownError(Struct, frozen=True):
    """A BPMN error that a handler threw."""

    code: str
    message: str = ""
    variables: dict[str, Any] | None = None


class _ThrowingData(Struct, frozen=True):
    bpmn_error: ThrownError | None = None


class _ThrowingState(Struct, frozen=True):
    data: _ThrowingData = _ThrowingData()


_thrown_decoder = msgspec.json.Decoder(_ThrowingState)


def thrown_by(state: str) -> ThrownError | None:
    """The BPMN error in the state of a service task that has failed; None if it failed in another way."""
    return _thrown_decoder.decode(state).data.bpmn_error
