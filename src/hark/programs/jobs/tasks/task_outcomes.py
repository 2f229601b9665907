"""Outcomes of a task: the values that its handler returns, and the decisions that follow from them.

An attempt that fails is repeated while its retry policy allows; then the task fails, and the job regresses or fails. An
output is the result of the task or, if the task has a gate, waits for the gate in the row of the task. Pure: no handler
is called here, and no clock is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct

from hark.model import lanes
from hark.model.activation import Claim
from hark.model.decisions import Decision, DecisionEvent, Effect, Finish, Park, Redo
from hark.model.durations import short_duration
from hark.model.errors import InvalidInput, InvalidOutcome
from hark.model.failures import Failure, failure_of
from hark.model.names import CENTURY, SECOND
from hark.model.notes import NotedEvent, NoteParent
from hark.programs.jobs.job_graph import APPROVAL_GATE, is_registered_gate
from hark.programs.jobs.job_spec import JobSpec, RetrySpec, TaskSpec
from hark.programs.jobs.new_tasks import lane_of, lane_of_undo
from hark.programs.jobs.tasks.task_state import BPMN_ERROR, TaskState, dump_task_state

QUESTION: Final = "awakeable#"  # how the places of awakeables begin; the period and a number follow
_DEFAULT_QUEUE: Final = "default"


class Complete(Struct, frozen=True):
    """The outcome of `task.complete`: the output."""

    output: Any = None


class Fail(Struct, frozen=True):
    """The outcome of `task.fail`: the error, whether to try again, and the µs until then; None: as the retry policy
    says."""

    error: Any
    retry: bool = True
    delay: int | None = None


class Continue(Struct, frozen=True):
    """The outcome of `task.continue_`: the output of this iteration."""

    output: Any = None


class Pause(Struct, frozen=True):
    """The outcome of `task.pause`: its name, and µs."""

    name: str
    delay: int


TaskOutcome = Complete | Fail | Continue | Pause


class TaskActivation:
    """An activation of a task: its claim, its state and its part of the spec. Makes its decisions.

    Attributes:
        state: The state; a decision stores it as it is then.
        consume: The seqs of the inbox rows that the handler received since its last checkpoint.
        handed: The seqs of the rows that it was given: they do not wake its park.
        effects: What commits with the outcome if the attempt fails: awakeables to withdraw.
    """

    def __init__(self, claim: Claim, state: TaskState, job: JobSpec) -> None:
        self.claim = claim
        claim.attempt = state.attempt - 1  # that of the row counts lost leases too
        self.state = state
        self.job = job
        self.task: TaskSpec = job.tasks[state.task]
        self.consume: tuple[int, ...] = ()
        self.handed: tuple[int, ...] = ()
        self.effects: list[Effect] = []

    @property
    def gate(self) -> str | None:
        """The gate of its output. An undo has none, and the gate of a map is for the whole list."""
        return None if self.state.undo or self.state.number is not None else self.task.gate

    def begin(self, now: int) -> None:
        """Begin an attempt: the handler is about to run. A task that was retried with its job begins with attempt 1."""
        state = self.state
        if state.ended:
            state.ended, state.since = False, 0
            state.data.pop(BPMN_ERROR, None)
            self._renew(attempt=1)
        state.paused = None
        state.since = state.since or now

    def bound_reached(self, now: int) -> Failure | None:
        """The reason why a loop may not run another iteration, if it may not."""
        task, state = self.task, self.state
        if task.type != "loop":
            return None
        if task.max_iterations is not None and state.iteration >= task.max_iterations:
            return Failure(None, f"the loop {task.name!r} reached max_iterations ({task.max_iterations})")
        if task.max_duration is not None and now - state.since >= task.max_duration * SECOND:
            limit = short_duration(task.max_duration)
            return Failure(None, f"the loop {task.name!r} reached max_duration ({limit})")
        return None

    # -- decisions --------------------------------------------------------------------------------

    def outcome(self, outcome: TaskOutcome, output: str, now: int) -> Decision:
        """The decision for what the handler returned; `output` is its output as JSON text."""
        match outcome:
            case Complete():
                return self.completed(output)
            case Fail():
                return self.failed(failure_of(outcome.error), final=not outcome.retry, delay=outcome.delay)
            case Continue():
                return self.continued(output, now)
            case Pause():
                return self.paused(outcome.name, outcome.delay)

    def completed(self, output: str) -> Decision:
        """Decide about the output of the handler: it is the result, or the gate decides on it."""
        if self.gate is None:
            return self.accepted(output)
        state = self.state
        state.phase, state.output, state.decided = "gate", Raw(output.encode()), None
        asked = self._renew()
        lane, queue = gate_place(self.gate, self._queue_of_code)
        return self._decide("next", Redo(0, drop_waits=True, asked=asked), lane=lane, queue=queue)

    def accepted(self, output: str, events: Iterable[DecisionEvent] = ()) -> Decision:
        """End the task with its result."""
        state = self.state
        state.phase, state.output = "run", UNSET
        return self._decide("done", Finish("done", result=output), events=events)

    def failed(
        self, failure: Failure, *, final: bool = False, delay: int | None = None, events: Iterable[DecisionEvent] = ()
    ) -> Decision:
        """Decide about a failed attempt, or an output that the gate has rejected. `final`: no further attempt would
        help; `delay`: µs until the next one, instead of what the policy says."""
        state, retry = self.state, self.task.retry
        was_at_gate = state.phase == "gate"
        state.output = UNSET
        if final or self._is_map or state.attempt >= retry.limit:  # the policy of a map is that of its items
            state.ended = True  # in its phase: if the job is retried, the gate moves it back
            decision = self._decide("stop", Finish("failed", error=failure.text, traceback=failure.traceback))
        else:
            state.phase = "run"
            delay = retry_delay(retry, state.attempt) if delay is None else delay
            asked = self._renew(attempt=state.attempt + 1)
            decision = self._decide("retry", Redo(delay, drop_waits=True, asked=asked))
            if was_at_gate:
                decision.lane, decision.queue = self.lane, self.queue
        decision.failure = failure
        decision.effects = self.effects
        decision.events = tuple(events)
        return decision

    def thrown(self, code: str, message: str, variables: str, failure: Failure) -> Decision:
        """End the task with a BPMN error, which its process can read in its row. A job catches none.

        Args:
            code: The code.
            message: A text for people.
            variables: JSON: an object, or null.
            failure: Why the task has failed, if nothing catches the error.
        """
        thrown = {"code": code, "message": message, "variables": Raw(variables.encode())}
        if self.job.is_bpmn:
            self.state.data[BPMN_ERROR] = thrown
        shown = {key: value for key, value in thrown.items() if value != ""}
        event = DecisionEvent("thrown", self.claim.step, msgspec.json.encode(shown).decode())
        return self.failed(failure, final=True, events=[event])

    def escalation(self, code: str, variables: str) -> NoteParent:
        """The note that throws an escalation to the process; `variables` is JSON. Raises InvalidInput in a job."""
        claim = self.claim
        if not self.job.is_bpmn:
            raise InvalidInput(
                f"Task {claim.step!r} belongs to a job: only tasks of a process can escalate. Signal the run, or fail."
            )
        assert claim.parent_id is not None
        assert claim.parent_wait is not None
        thrown = {"code": code, "variables": Raw(variables.encode())}
        event = NotedEvent("escalated", msgspec.json.encode({"task": claim.step, **thrown}).decode())
        payload = msgspec.json.encode({"status": "escalated", **thrown}).decode()
        return NoteParent(claim.id, claim.epoch, claim.parent_id, claim.parent_wait, payload, (event,), claim.step)

    def continued(self, output: str, now: int) -> Decision:
        """Begin the next iteration of a loop, unless it has reached a bound."""
        task, state = self.task, self.state
        if task.type != "loop":
            error = InvalidOutcome(
                f"Task {task.name!r} returned task.continue_(…), and is not a loop. Give it `type: loop`, or return "
                "task.complete(…)."
            )
            return self.failed(Failure(type(error).__name__, str(error)))
        state.iteration += 1
        if (reached := self.bound_reached(now)) is not None:
            state.iteration -= 1
            return self.failed(reached, final=True)
        state.previous = Raw(output.encode())
        asked = self._renew(attempt=1)
        self.claim.attempt = 0
        data = msgspec.json.encode({"iteration": state.iteration}).decode()
        event = DecisionEvent("iteration", self.claim.step, data)
        move = Redo(round(task.loop_delay * SECOND), drop_waits=True, asked=asked)
        return self._decide("next", move, events=[event])

    def paused(self, name: str, delay: int) -> Decision:
        """Run the handler again after a delay, in the same attempt and iteration."""
        self.state.paused = name
        asked = self._renew()
        data = msgspec.json.encode({"name": name}).decode()
        move = Redo(delay, drop_waits=True, asked=asked)
        return self._decide("next", move, events=[DecisionEvent("paused", self.claim.step, data)])

    def suspended(self) -> Decision:
        """Park the task on the waits of its claim, in the same attempt; what it received stays in its inbox."""
        decision = self._decide("await", Park(disarm=()))
        decision.consume, decision.handed = (), self.handed
        return decision

    def moved_back(self) -> Decision:
        """Run the handler again: the job was retried after the gate had rejected the output for good."""
        self.state.phase, self.state.output = "run", UNSET
        return self._decide("next", Redo(0, drop_waits=True), lane=self.lane, queue=self.queue)

    def _renew(self, *, attempt: int | None = None) -> str:
        """Ask for everything anew: what was asked and received so far belongs to the past. `attempt`: and another
        attempt begins. Return how the places of what was asked since the last checkpoint begin."""
        asked = f"{QUESTION}{self.state.period}."
        self.state.period += 1
        if attempt is not None:
            self.state.attempt, self.state.worked = attempt, 0
        return asked

    def _decide(
        self,
        label: Any,
        move: Redo | Park | Finish,
        *,
        events: Iterable[DecisionEvent] = (),
        lane: str | None = None,
        queue: str | None = None,
    ) -> Decision:
        return Decision(
            label, self.claim.step, dump_task_state(self.state), move, self.consume,
            events=tuple(events), lane=lane, queue=queue,
        )  # fmt: skip

    # -- where it runs ----------------------------------------------------------------------------

    @property
    def _is_map(self) -> bool:
        return self.task.type == "map" and self.state.number is None and not self.state.undo

    @property
    def lane(self) -> str:
        """The lane of its work: that of its handler, command or agent; a map itself is interpreted."""
        if self._is_map:
            return lanes.JOB
        return lane_of_undo(self.task) if self.state.undo else lane_of(self.task)

    @property
    def queue(self) -> str:
        return lanes.ENGINE_QUEUE if self._is_map else self._queue_of_code

    @property
    def _queue_of_code(self) -> str:
        """The queue of what runs the code of an app for it: its handler, and a registered gate."""
        return self.task.queue or self.job.queue or _DEFAULT_QUEUE


def gate_place(gate: str, queue: str) -> tuple[str, str]:
    """The lane and the queue in which a gate decides: a registered callable where its code is, any other anywhere."""
    if is_registered_gate(gate):
        return lanes.gate_lane(gate), queue
    assert gate == APPROVAL_GATE or "{{" in gate
    return lanes.JOB, lanes.ENGINE_QUEUE


def retry_delay(retry: RetrySpec, attempt: int) -> int:
    """µs between this attempt, counted from 1, and the next: `delay` × `scaling`^n, at most a century."""
    try:
        seconds = retry.delay * retry.scaling ** (attempt - 1)
    except OverflowError:
        return CENTURY
    return max(0, round(seconds * SECOND)) if seconds * SECOND < CENTURY else CENTURY


def as_outcome(value: Any) -> TaskOutcome:
    """The return value of a handler as an outcome: a plain value completes the task."""
    return value if isinstance(value, TaskOutcome) else Complete(value)
