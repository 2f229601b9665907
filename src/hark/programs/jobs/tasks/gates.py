"""Gates: decide whether the output of a task is accepted.

A task whose handler has an output waits in its own row, with the output in its state, in the lane of its gate: a
registered callable runs where its code is; an expression, and a person's approval, are decided by any worker. A
rejected output is a failed attempt. The state of the task and its event `gate` name the person who decided.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hark.model import json
from hark.model.activation import TASK_TRAITS, Claim, Traits
from hark.model.answers import SettledAnswer
from hark.model.decisions import Decision, DecisionEvent, Park
from hark.model.errors import InvalidOutcome
from hark.model.failures import Failure, failure_of
from hark.programs.cancellation import is_cancelled
from hark.programs.expressions import compile_condition
from hark.programs.jobs.job_graph import APPROVAL_GATE, JobGraph
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_spec import JobSpec
from hark.programs.jobs.tasks import approvals
from hark.programs.jobs.tasks.task_data import load_data
from hark.programs.jobs.tasks.task_outcomes import TaskActivation
from hark.programs.jobs.tasks.task_state import TaskState, load_task_state

_MAX_SHOWN = 4000  # characters of an output in the question about it


class GateDecision(Struct, omit_defaults=True):
    """The decision of a gate. The state of the task and the event `gate` have it, without the output."""

    gate: str
    action: str  # "approve" or "reject"
    by: str | None = None
    reason: str | None = None
    comment: str | None = None
    edited: bool = False

    @property
    def failure(self) -> Failure:
        """The error of the failed attempt, if the output was rejected."""
        who = f" by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return Failure(None, f"rejected{who} (gate {self.gate}){why}")


class _Approval(Struct):
    """An answer that matches the schema of approvals.py."""

    action: str
    output: Raw | UnsetType = UNSET
    reason: str | None = None
    comment: str | None = None


async def decide(claim: Claim, services: JobServices) -> Decision:
    """Decide about a task in the phase `gate` in the lane `job`: by an expression, or by a person."""
    graph = await services.job_graph(claim.definition, claim.version)
    activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
    gate = activation.gate
    if activation.state.ended or activation.state.phase != "gate" or gate is None:
        return activation.moved_back()
    if gate == APPROVAL_GATE:
        return await _ask(activation, services)
    try:
        return apply(activation, await _evaluate(activation, graph, services, gate))
    except Exception as error:
        return activation.failed(failure_of(error))


def enter(claim: Claim, state: TaskState, job: JobSpec, output: str) -> Decision:
    """Decide about an output, JSON text, of a task without a handler: its gate follows or, without one, its result."""
    activation = TaskActivation(claim, state, job)
    activation.consume = tuple(row.seq for row in claim.inbox)
    return activation.completed(output)


async def _evaluate(activation: TaskActivation, graph: JobGraph, services: JobServices, gate: str) -> GateDecision:
    condition = compile_condition(gate)
    data = await load_data(activation.state, graph, services, [condition])
    output = json.load(_output(activation))
    if condition.holds(data.scope.variables(condition, output=output, **data.more)):
        return GateDecision(gate, "approve")
    return GateDecision(gate, "reject", reason="the expression does not hold")


async def _ask(activation: TaskActivation, services: JobServices) -> Decision:
    claim, state = activation.claim, activation.state
    wait = next((wait for wait in claim.waits if wait.place == "gate"), None)
    if wait is not None and (answer := approvals.answer_to(claim, wait)) is not None:
        activation.consume = tuple(row.seq for row in claim.inbox)
        return _decide_by_answer(activation, answer)
    decision = activation.suspended()
    if wait is None:  # else it was asked already, and handed back or reclaimed since
        shown = _output(activation)
        asked = await approvals.ask(
            claim, services, state.run, f"gate#{state.period}", title=f"Approve {claim.step}?",
            description=shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…",
            assignees=activation.task.assignees,
        )  # fmt: skip
        decision.move = Park(arm=(approvals.arm(asked, "gate"),), disarm=())
    return decision


def _decide_by_answer(activation: TaskActivation, answer: SettledAnswer) -> Decision:
    if answer.status != "RESOLVED":
        reason = answer.error or answer.status.lower()
        return apply(activation, GateDecision(APPROVAL_GATE, "reject", answer.by, reason))
    given = msgspec.json.decode(answer.payload, type=_Approval)
    decision = GateDecision(APPROVAL_GATE, given.action, answer.by, given.reason, given.comment)
    if given.action == "approve" and given.output is not UNSET:
        activation.state.output = given.output
        decision.edited = True
    return apply(activation, decision)


def apply(activation: TaskActivation, decided: GateDecision) -> Decision:
    """Complete the task or fail the attempt, as its gate decided."""
    fields = msgspec.to_builtins(decided)
    activation.state.decided = fields
    event = DecisionEvent("gate", activation.claim.step, msgspec.json.encode(fields).decode())
    if decided.action == "approve":
        return activation.accepted(_output(activation), [event])
    return activation.failed(decided.failure, events=[event])


def _output(activation: TaskActivation) -> str:
    output = activation.state.output
    return "null" if output is UNSET else bytes(output).decode()


class GateProgram:
    """Runs the lane of a registered gate: a callable of the output and the inputs of the job."""

    def __init__(self, name: str, gate: Callable[[Any, Any], Any]) -> None:
        self.name = name
        self.gate = gate
        self.traits: Traits = TASK_TRAITS
        self.code = gate

    async def run(self, claim: Claim, services: JobServices) -> Decision:
        graph = await services.job_graph(claim.definition, claim.version)
        activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
        if activation.state.ended or activation.state.phase != "gate":
            return activation.moved_back()
        try:
            data = await load_data(activation.state, graph, services)
            output = json.load(_output(activation))
            if inspect.iscoroutinefunction(self.gate):
                verdict = await self.gate(output, data.inputs)
            else:
                verdict = await services.call(self.gate, output, data.inputs)
            return apply(activation, self._decision(verdict))
        except Exception as error:
            if is_cancelled():
                raise asyncio.CancelledError from error
            return activation.failed(failure_of(error))

    def _decision(self, verdict: Any) -> GateDecision:
        if verdict is True:
            return GateDecision(self.name, "approve", self.name)
        if verdict is False:
            return GateDecision(self.name, "reject", self.name)
        if isinstance(verdict, str):
            return GateDecision(self.name, "reject", self.name, reason=verdict)
        raise InvalidOutcome(
            f"Gate {self.name!r} returned {verdict!r}. Return True to accept the output, False or the reason to reject."
        )

    async def recover(self, claim: Claim, services: JobServices, error: BaseException) -> Decision:
        """Fail the attempt: the store refused its outcome."""
        graph = await services.job_graph(claim.definition, claim.version)
        return TaskActivation(claim, load_task_state(claim.state), graph.spec).failed(failure_of(error))
