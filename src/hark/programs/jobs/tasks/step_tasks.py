"""Run the tasks of type approval, wait_for_event, sleep and workflow, which need no handler. Maps are in map_tasks.py.

Each is a row of kind `task` in the lane `job`. It parks on what it waits for and holds no slot meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from hark.model import json
from hark.model.activation import Claim, InboxRow, WaitRow
from hark.model.decisions import Arm, Decision, Finish, Park, Redo, stop
from hark.model.errors import HarkError, InvalidInput
from hark.model.events import OutcomeType
from hark.model.failures import Failure, failure_of, storable
from hark.model.names import check_name, micros, new_id
from hark.programs.expressions import ExpressionError, Template
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_services import JobServices
from hark.programs.jobs.job_spec import QuestionSpec, TaskSpec
from hark.programs.jobs.job_variables import Scope, condition_of, render, templates_in
from hark.programs.jobs.tasks import approvals, gates
from hark.programs.jobs.tasks.task_outcomes import retry_delay
from hark.programs.jobs.tasks.task_state import TaskState, dump_task_state, load_task_state

_APPROVAL = "approval"
_ASKED = "asked"  # in the data of the state: how often it asked before


class StepTask:
    """An activation of a task that the interpreter runs itself."""

    def __init__(self, claim: Claim, services: JobServices, graph: JobGraph, state: TaskState) -> None:
        self.claim = claim
        self.services = services
        self.graph = graph
        self.state = state
        self.task: TaskSpec = graph.tasks[state.task]
        self.anew = state.ended  # the job was retried: what this task waited for before does not count
        if state.ended:
            state.ended, state.attempt = False, 1

    # -- what all of them share ----------------------------------------------------------------------

    async def scope(self) -> Scope:
        """The variables of its expressions."""
        inputs = self.state.inputs
        text = await self.services.inputs(self.state.run) if inputs is UNSET else bytes(inputs).decode()
        state = self.state
        return Scope(
            self.graph, state.run, json.load(text), state.generations, row_numbers=state.row_numbers,
            absent=state.absent.get,
        )  # fmt: skip

    async def rendered(self, value: Any) -> Any:
        """A value of the spec with its templates replaced."""
        templates = templates_in(value)
        return render(value, await self.variables(templates)) if templates else value

    async def variables(self, templates: Sequence[Template]) -> dict[str, Any]:
        """The variables of these templates."""
        scope = await self.scope()
        await scope.read(self.services, templates)
        return scope.variables(*templates)

    def wait(self, place: str) -> WaitRow | None:
        """The wait at this place, if it is armed already."""
        return None if self.anew else next((wait for wait in self.claim.waits if wait.place == place), None)

    def answers(self, wait: WaitRow) -> list[InboxRow]:
        """The rows of the inbox that answer this wait, oldest first."""
        return [row for row in self.claim.inbox if wait.answered_by(row.kind, row.name, row.wait_id)]

    def begin(self, arm: Arm) -> Decision:
        """Park on this wait alone."""
        label: OutcomeType = "spawn" if arm.children else "await"
        consume = tuple(row.seq for row in self.claim.inbox if row.wait_id is not None)
        return Decision(label, self.task.name, dump_task_state(self.state), Park((arm,)), consume)

    def park(self, consume: tuple[int, ...] = ()) -> Decision:
        """Wait on: what came is not what the task waits for."""
        return Decision("await", self.task.name, dump_task_state(self.state), Park(disarm=()), consume)

    def complete(self, output: Any) -> Decision:
        return self.complete_text(json.dump(output, limit=self.services.max_payload, what="output"))

    def complete_text(self, output: str) -> Decision:
        state = dump_task_state(self.state)
        return self._consuming(Decision("done", self.task.name, state, Finish("done", result=output)))

    def fail(self, error: str | BaseException) -> Decision:
        """Fail the task; the job regresses or fails."""
        self.state.ended = True
        failure = Failure(None, storable(error)) if isinstance(error, str) else failure_of(error)
        return self._consuming(stop(self.task.name, dump_task_state(self.state), failure))

    def retry_or_fail(self, error: str) -> Decision:
        """Begin another attempt, if the retry policy has one left."""
        policy, attempt = self.task.retry, self.state.attempt
        if attempt >= policy.limit:
            return self.fail(error)
        self.state.attempt = attempt + 1
        move = Redo(retry_delay(policy, attempt), drop_waits=True)
        decision = Decision("retry", self.task.name, dump_task_state(self.state), move)
        decision.failure = Failure(None, storable(error))
        return self._consuming(decision)

    def _consuming(self, decision: Decision) -> Decision:
        decision.consume = tuple(row.seq for row in self.claim.inbox)
        return decision


async def run_step_task(claim: Claim, services: JobServices) -> Decision:
    """Run one activation of a task in the lane `job`."""
    state = load_task_state(claim.state)
    if state.phase == "gate":
        return await gates.decide(claim, services)
    graph = await services.job_graph(claim.definition, claim.version)
    step = StepTask(claim, services, graph, state)
    try:
        match step.task.type:
            case "approval":
                return await _approval(step)
            case "wait_for_event":
                return await _wait_for_event(step)
            case "sleep":
                return await _sleep(step)
            case "workflow":
                return await _workflow(step)
            case "map":
                from hark.programs.jobs.tasks.map_tasks import run_map

                return await run_map(step)
            case other:
                return step.fail(f"A task of type {other!r} does not run in the lane {claim.lane!r}.")
    except (ExpressionError, InvalidInput) as error:
        return step.fail(error)


# -- approval ----------------------------------------------------------------------------------------


async def _approval(step: StepTask) -> Decision:
    wait = step.wait(_APPROVAL)
    if wait is None:
        return await _ask(step)
    answer = approvals.answer_to(step.claim, wait)
    if answer is None:
        return step.park()
    decided = approvals.decision_of(answer)
    match decided.action:
        case "timeout":
            return step.fail("The approval timed out: there was no answer in time.")
        case "reject":
            return step.fail(_rejected(decided.reason or decided.answer.get("comment")))
        case "approve":
            return step.complete({**decided.answer, "approved": True, "by": decided.by})
        case _ as never:
            assert_never(never)


def _rejected(reason: Any) -> str:
    text = reason if isinstance(reason, str) else None if reason is None else json.dump(reason)
    return f"Rejected: {text}" if text else "Rejected."


async def _ask(step: StepTask) -> Decision:
    task, data = step.task, step.state.data
    if step.anew:
        data[_ASKED] = data.get(_ASKED, 0) + 1
    question = QuestionSpec(task.title, task.description, task.assignees, task.timeout)
    if templates := templates_in((task.title, task.description)):
        question = approvals.rendered(question, await step.variables(templates))
    if not question.title:
        question = replace(question, title=f"Approve {task.name!r} of {step.claim.definition!r}?")
    asked = await approvals.ask(
        step.claim, step.services, step.state.run, f"{_APPROVAL}#{data.get(_ASKED, 0)}", question,
        schema=approvals.ANSWER_SCHEMA if task.schema is None else json.dump(task.schema),
    )  # fmt: skip
    return step.begin(approvals.arm(asked, _APPROVAL))


# -- wait_for_event, sleep -----------------------------------------------------------------------------


async def _wait_for_event(step: StepTask) -> Decision:
    task = step.task
    wait = step.wait("event")
    if wait is None:
        timeout = None if task.timeout is None else micros(task.timeout, "timeout", zero=False)
        name = check_name(await step.rendered(task.event), "event")
        return step.begin(Arm("broadcast", new_id(), "event", name=name, timeout=timeout))
    answers = step.answers(wait)
    if not answers:
        return step.park()
    matches = await _matcher(step)
    for row in answers:
        if row.kind == "timer":
            return step.complete({"timeout": True})
        if matches(json.load(row.payload)):
            return step.complete_text(row.payload)
    return step.park(consume=tuple(row.seq for row in answers))


async def _matcher(step: StepTask) -> Any:
    """A function that returns True for the payload that the task waits for. One of another shape does not match."""
    if step.task.match is None:
        return lambda event: True
    condition = condition_of(step.task.match)
    scope = await step.scope()
    await scope.read(step.services, [condition])

    def matches(event: Any) -> bool:
        try:
            return condition.holds(scope.variables(condition, event=event))
        except ExpressionError:
            return False

    return matches


async def _sleep(step: StepTask) -> Decision:
    wait = step.wait("sleep")
    if wait is None:
        seconds = await step.rendered(step.task.seconds)
        if isinstance(seconds, str):
            try:
                seconds = float(seconds)
            except ValueError:
                raise InvalidInput(f"seconds: {seconds!r} is not a number.") from None
        if type(seconds) not in (int, float):
            raise InvalidInput(f"seconds: {seconds!r} is not a number.")
        return step.begin(Arm("timer", new_id(), "sleep", timeout=micros(seconds, "seconds", zero=True)))
    return step.complete(None) if step.answers(wait) else step.park()


# -- workflow ------------------------------------------------------------------------------------------


async def _workflow(step: StepTask) -> Decision:
    """Start an instance of another definition, and complete with its result."""
    wait = step.wait("workflow")
    if wait is None:
        task = step.task
        definition, input = await step.rendered((task.definition, task.input))
        try:
            child = step.services.new(definition, input, {})
        except HarkError as error:
            return step.fail(error)
        return step.begin(Arm("children", new_id(), "workflow", children=(child,), join=1))
    ended = [child for child in step.claim.children if child.status in ("done", "failed", "cancelled")]
    if not ended:
        return step.park()
    one = ended[0]
    if one.status == "done":
        return step.complete_text(one.result or "null")
    return step.retry_or_fail(f"{one.definition} {one.id} {one.status}: {one.error or 'no reason was given'}")
