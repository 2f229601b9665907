"""Gates: decide whether the output of a task is accepted.

A task whose handler has an output waits in its own row, with the output in its state, in the lane of its gate: a
registered callable runs where its code is; an expression, and a person's approval, are decided by any worker. A
rejected output is a failed attempt. The state of the task and its event `gate` name the person who decided.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct

from hark.model import json
from hark.model.activation import TASK_TRAITS, Claim, Traits
from hark.model.answers import SettledAnswer
from hark.model.decisions import Decision, DecisionEvent, Park
from hark.model.errors import InvalidInput, InvalidOutcome
from hark.model.failures import Failure, failure_of, storable
from hark.programs.cancellation import is_cancelled
from hark.programs.expressions import ExpressionError, compile_condition
from hark.programs.jobs.job_graph import APPROVAL_GATE, JobGraph
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_spec import JobSpec, QuestionSpec
from hark.programs.jobs.job_variables import Compiled, templates_in
from hark.programs.jobs.tasks import approvals
from hark.programs.jobs.tasks.task_data import load_data
from hark.programs.jobs.tasks.task_outcomes import TaskActivation
from hark.programs.jobs.tasks.task_state import TaskState, load_task_state

_MAX_SHOWN = 4000  # characters of an output in the question about it
_MAX_RECORDED = 4000  # characters of the further keys of an answer in the record of the decision
_WAIT = "gate"  # the place of the wait for the answer
_DONE = {"approve": "approved", "reject": "rejected", "timeout": "timed out"}


class GateDecision(Struct, omit_defaults=True):
    """The decision of a gate."""

    gate: str
    action: Literal["approve", "reject", "timeout"]
    by: str | None = None
    reason: str | None = None
    comment: str | None = None
    edited: bool = False
    more: dict[str, Any] = {}  # the further keys of the answer

    @property
    def failure(self) -> Failure:
        """The error of the failed attempt, if the output was not approved."""
        who = f" by {self.by}" if self.by else ""
        why = f": {self.reason}" if self.reason else ""
        return Failure(None, storable(f"{_DONE[self.action]}{who} (gate {self.gate}){why}"))

    def record(self) -> dict[str, Any]:
        """The decision as the state of the task and the event `gate` have it: with the further keys of the answer, if
        they are small, and without the output. The awakeable has the whole answer."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        more = fields.pop("more", {})
        return {**fields, **more} if len(json.dump(more)) <= _MAX_RECORDED else fields


_RESERVED = frozenset((*GateDecision.__struct_fields__, "output"))  # an answer cannot say by whom it was given


async def decide(claim: Claim, services: JobServices) -> Decision:
    """Decide about a task in the phase `gate` in the lane `job`: by an expression, or by a person."""
    graph = await services.job_graph(claim.definition, claim.version)
    activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
    gate = activation.gate
    if activation.state.ended or activation.state.phase != "gate" or gate is None:
        return activation.moved_back()
    if gate == APPROVAL_GATE:
        return await _approval(activation, graph, services)
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
    if condition.holds(await _variables(activation, graph, services, [condition])):
        return GateDecision(gate, "approve")
    return GateDecision(gate, "reject", reason="the expression does not hold")


async def _approval(activation: TaskActivation, graph: JobGraph, services: JobServices) -> Decision:
    """Ask a person, or take the answer."""
    claim = activation.claim
    wait = next((wait for wait in claim.waits if wait.place == _WAIT), None)
    if wait is None:
        return await _ask(activation, graph, services)
    answer = approvals.answer_to(claim, wait)
    if answer is None:  # it was asked already, and handed back or reclaimed since
        return activation.suspended()
    activation.consume = tuple(row.seq for row in claim.inbox)
    return _decide_by_answer(activation, answer)


async def _ask(activation: TaskActivation, graph: JobGraph, services: JobServices) -> Decision:
    claim, state = activation.claim, activation.state
    try:
        question = await _question(activation, graph, services)
    except (ExpressionError, InvalidInput) as error:
        return activation.failed(failure_of(error))
    asked = await approvals.ask(claim, services, state.run, f"{_WAIT}#{state.period}", question)
    decision = activation.suspended()
    decision.move = Park(arm=(approvals.arm(asked, _WAIT),), disarm=())
    return decision


async def _question(activation: TaskActivation, graph: JobGraph, services: JobServices) -> QuestionSpec:
    """The question, rendered. Without a description of its own, it shows the output."""
    given = activation.task.question or QuestionSpec()
    templates = templates_in((given.title, given.description))
    if templates:
        variables = await _variables(activation, graph, services, templates)
        given = approvals.rendered(given, variables)
    description = given.description
    if description is None:
        shown = _output(activation)
        description = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
    title = given.title or f"Approve {activation.claim.step}?"
    return msgspec.structs.replace(given, title=title, description=description)


async def _variables(
    activation: TaskActivation, graph: JobGraph, services: JobServices, compiled: Sequence[Compiled]
) -> dict[str, Any]:
    """The variables of the expressions of a gate: those of the task, and `output`."""
    data = await load_data(activation.state, graph, services, compiled)
    return data.scope.variables(*compiled, **data.more, output=json.load(_output(activation)))


def _decide_by_answer(activation: TaskActivation, answer: SettledAnswer) -> Decision:
    decided = approvals.decision_of(answer)
    given = decided.answer
    more = {key: value for key, value in given.items() if key not in _RESERVED}
    decision = GateDecision(
        APPROVAL_GATE, decided.action, decided.by, decided.reason, given.get("comment"), more=more
    )  # fmt: skip
    if decided.action == "approve" and "output" in given:
        activation.state.output = Raw(json.dump(given["output"]).encode())
        decision.edited = True
    return apply(activation, decision)


def apply(activation: TaskActivation, decided: GateDecision) -> Decision:
    """Complete the task or fail the attempt, as its gate decided."""
    fields = decided.record()
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
            output = json.load_for_code(_output(activation))
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
