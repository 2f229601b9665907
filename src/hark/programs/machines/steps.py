"""The interpreter of machines: one step in, one decision out.

Loads the state, calls the step, and translates its outcome into a decision for the kernel. Every error on
the way, also a return value that is not an outcome or a state that cannot be stored, goes to `handle` (M4);
when that fails too, the instance fails with both errors. No clock, thread or database here: the worker
provides them as `StepServices`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, Protocol, Unpack

from msgspec import Struct

from hark.model import json
from hark.model.activation import SIGNALS, Claim, Traits
from hark.model.decisions import (
    Advance,
    Arm,
    Decision,
    Effect,
    FailedAttempt,
    Finish,
    Move,
    NewInstance,
    Park,
    Redo,
    stop,
)  # fmt: skip
from hark.model.errors import HarkError, InvalidOutcome, NonDeterministic
from hark.model.events import OutcomeType
from hark.model.exits import exit_in
from hark.model.failures import Failure, failure_of
from hark.model.log import InstanceLog
from hark.model.names import from_micros, new_id
from hark.model.outcomes import KEEP, Await, Done, Next, Outcome, Retry, Spawn, StartOptions, Stop
from hark.model.values import ChildView, Signal
from hark.programs import effects
from hark.programs.cancellation import is_cancelled
from hark.programs.misfits import HELD, hold

if TYPE_CHECKING:  # a TypeVar with a default: `Context` alone means Context[Any], also in strict mode
    from typing_extensions import TypeVar

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")

_ADVANCE = Advance()
_SHOWN = 200  # characters of a state in an event
_TRAITS = Traits()  # a step waits only by its outcome, and creates no awakeables


class StepServices(Protocol):
    """The services of the worker for a step."""

    max_payload: int

    def now(self) -> datetime:
        """The time of the database."""

    def rate_limit(self, rate_limit: Any, weight: float) -> str | None:
        """The bucket of a rate limit; raises InvalidInput if it is not configured or the weight is above its burst."""

    def concurrency_key(self, key: str | None) -> str | None:
        """The key, checked."""

    def new(self, definition: Any, input: Any, options: dict[str, Any]) -> NewInstance:
        """A start as data; raises InvalidInput if it is malformed."""

    def call(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Call a synchronous function in a thread."""


class StepFunction(Struct, frozen=True):
    function: Callable[..., Any]
    is_async: bool


class StepProgram(Struct, eq=False):
    """A machine, as the interpreter needs it."""

    name: str
    version: int
    queue: str
    initial: str
    codec: json.Codec[Any]
    steps: dict[str, StepFunction]
    machine: Any
    handle: Callable[..., Any] | None
    kind: str = "machine"
    traits: Traits = _TRAITS
    source: str | None = None
    digest: str | None = None
    on_cancel: str | None = None

    @property
    def code(self) -> type:
        return type(self.machine)

    def run(self, claim: Claim, services: StepServices) -> Coroutine[Any, Any, Decision]:
        return run(self, claim, services)

    def recover(self, claim: Claim, services: StepServices, error: BaseException) -> Coroutine[Any, Any, Decision]:
        return recover(self, claim, services, error)


class Context(Generic[S]):
    """The context passed to a step of a machine: its state, its signals, and the effects it can request.

    Write `ctx: Context[State]` to let type checkers know the type of `ctx.state`.

    Effects (`signal`, `broadcast`, `start`, `resolve`, `reject`) commit together with the outcome the step returns; if
    the step raises, they are dropped. An effect that cannot be applied at the commit (the target has finished, the
    awakeable is settled) is recorded as an event of this instance and does not fail it.

    Attributes:
        id: The id of the instance.
        step: The name of this step.
        attempt: How often this step was retried, from 0.
        correlation_key: The correlation key the instance was started with, or None.
        scheduled_at: The tick of the schedule that started the instance, or the time of the trigger; else None.
        cancel_reason: Why the instance is being cancelled, in the steps of its undo (`on_cancel=`); else None.
        state: The state. Change it in place or replace it: it is stored with the outcome.
    """

    __slots__ = (
        "_all",
        "_awaited",
        "_children",
        "_claim",
        "_effects",
        "_progress",
        "_services",
        "attempt",
        "cancel_reason",
        "correlation_key",
        "id",
        "scheduled_at",
        "state",
        "step",
    )  # fmt: skip

    def __init__(self, claim: Claim, services: StepServices, state: S) -> None:
        self.id = claim.id
        self.step = claim.step
        self.attempt = claim.attempt
        self.correlation_key = claim.correlation_key
        self.scheduled_at = None if claim.scheduled_at is None else from_micros(claim.scheduled_at)
        self.cancel_reason = claim.cancel_reason
        self.state: S = state
        self._claim = claim
        self._services = services
        self._effects: list[Effect] = []
        self._progress: str | None = None
        self._awaited: list[Signal] | None = None
        self._all: list[Signal] | None = None
        self._children: list[ChildView] | None = None

    @property
    def awaited(self) -> list[Signal]:
        """The signals that match the `Await` that led to this step, oldest first. `Next` and `Spawn` consume them."""
        if self._awaited is None:
            handed = set(_handed(self._claim))
            self._awaited = [signal for signal in self.all if signal.id in handed]
        return self._awaited

    @property
    def all(self) -> list[Signal]:
        """All signals and broadcasts in the inbox, oldest first, also those that were not awaited."""
        if self._all is None:
            self._all = [
                Signal(row.seq, row.kind, row.name, json.load_for_code(row.payload), from_micros(row.at))
                for row in self._claim.inbox
                if row.kind in SIGNALS
            ]
        return self._all

    @property
    def timed_out(self) -> bool:
        """Return True if the timeout or deadline of the `Await` that led to this step has passed."""
        return any(row.kind == "timer" for row in self._claim.inbox)

    @property
    def children(self) -> list[ChildView]:
        """All children of the `Spawn` that led to this step, finished or not."""
        if self._children is None:
            self._children = [
                ChildView(
                    child.id,
                    child.definition,
                    child.status,
                    json.load(child.state),
                    None if child.result is None else json.load_for_code(child.result),
                    child.error,
                )
                for child in self._claim.children
            ]
        return self._children

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger `hark.workflow`; its records have the attributes `instance`, `definition`, `step`, `attempt`."""
        return InstanceLog(self._claim)

    def now(self) -> datetime:
        """The time of the database.

        Returns:
            A timezone-aware datetime in UTC.
        """
        return self._services.now()

    def progress(self, value: Any) -> None:
        """Set `Instance.progress`, for people and queries, in the same commit as the outcome of this step.

        The last value of a step counts. If the step raises, it is dropped.

        Args:
            value: A JSON value of up to 16 KiB.

        Raises:
            InvalidInput: The value is not JSON.
            PayloadTooLarge: It is over 16 KiB.

        Example:
            ctx.progress({"sent": 120, "of": 500})
        """
        self._progress = effects.progress(value)

    def signal(self, target: Any, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """Send a signal, in the same commit as the outcome of this step.

        Args:
            target: The id or correlation key of the instance, or a Handle.
            name: The name of the signal.
            payload: A JSON value.
            dedup_key: If the target has already received a signal with this key, this one is dropped.

        Raises:
            InvalidInput: An argument is malformed.
        """
        effect = effects.send_signal(target, name, payload, dedup_key, self._services.max_payload)
        self._effects.append(effect)

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """Send a broadcast to all current subscribers, in the same commit as the outcome of this step.

        Args:
            name: The name of the broadcast.
            payload: A JSON value.
            dedup_key: A broadcast with a key that was already used is not sent again.

        Raises:
            InvalidInput: An argument is malformed.
        """
        self._effects.append(effects.send_broadcast(name, payload, dedup_key, self._services.max_payload))

    def start(self, definition: Any, input: Any = None, **options: Unpack[StartOptions]) -> str:
        """Start an independent instance, in the same commit as the outcome of this step.

        Args:
            definition: A Machine class, a `@workflow` function, or the name of one.
            input: Its input.
            **options: The options of `Hark.start`.

        Returns:
            The id of the new instance.

        Raises:
            InvalidInput: The input does not match the definition, or an option is malformed.
        """
        item = self._services.new(definition, input, dict(options))
        self._effects.append(item)
        return item.id

    def resolve(self, awakeable_id: str, payload: Any = None, *, by: str | None = None) -> None:
        """Resolve an awakeable, in the same commit as the outcome of this step.

        Args:
            awakeable_id: The id of the awakeable.
            payload: The answer, a JSON value that matches the schema of the awakeable.
            by: The answerer's name; the default is the id of this instance.

        Raises:
            InvalidInput: An argument is malformed.
        """
        answerer = self.id if by is None else by
        self._effects.append(effects.resolve(awakeable_id, payload, answerer, self._services.max_payload))

    def reject(self, awakeable_id: str, error: str = "rejected", *, by: str | None = None) -> None:
        """Reject an awakeable, in the same commit as the outcome of this step.

        Args:
            awakeable_id: The id of the awakeable.
            error: The reason, as text.
            by: The answerer's name; the default is the id of this instance.

        Raises:
            InvalidInput: An argument is malformed.
        """
        self._effects.append(effects.reject(awakeable_id, error, self.id if by is None else by))


def _handed(claim: Claim) -> list[int]:
    """The seqs of the signals in `ctx.awaited`."""
    asked = {(wait.kind, wait.name) for wait in claim.waits}
    return [row.seq for row in claim.inbox if row.kind in SIGNALS and (row.kind, row.name) in asked]


async def run(program: StepProgram, claim: Claim, services: StepServices) -> Decision:
    """Run the step the instance was claimed for."""
    context: Context[Any] = Context(claim, services, None)
    begun = False
    try:
        try:
            context.state = program.codec.load(claim.state)
            step = program.steps.get(claim.step) or _no_step(program, claim.step)
        except HarkError as error:
            if not claim.has_run:
                raise
            return hold(claim, _misfit(program, claim, error))
        begun = True
        if step.is_async:
            outcome = await step.function(program.machine, context)
        else:
            outcome = await services.call(step.function, program.machine, context)
        return decide(program, claim, context, outcome)
    except Exception as error:
        if is_cancelled():
            raise asyncio.CancelledError from error
        decision = await recover(program, claim, services, error)
        if not begun and isinstance(decision.move, Finish) and decision.move.status == "failed":
            decision.move.keeps_undo = True  # the code has changed: an undo that has not begun is not lost
        return decision


def _no_step(program: StepProgram, name: str) -> NoReturn:
    raise InvalidOutcome(
        f"{program.name} version {program.version} has no step {name!r}. It has: {', '.join(program.steps)}."
    )


def misfit_of(program: StepProgram, claim: Claim) -> NonDeterministic | None:
    """Return why this machine would be held when it runs next, or its undo (V2); None if its code fits."""
    try:
        program.codec.load(claim.state)
        if claim.step not in program.steps:
            _no_step(program, claim.step)
    except HarkError as error:
        return _misfit(program, claim, error)
    if claim.on_cancel is None or claim.on_cancel in program.steps:
        return None
    has = ", ".join(program.steps)
    text = f"{program.name} version {program.version} has no step {claim.on_cancel!r}, its on_cancel. It has: {has}."
    return NonDeterministic(text, expected=f"step {claim.on_cancel!r}", found=f"the steps {has}")


def _misfit(program: StepProgram, claim: Claim, error: HarkError) -> NonDeterministic:
    """The reason to hold a machine whose code has lost its step, or cannot read the state that was committed."""
    has_step = claim.step in program.steps
    raised = error.__cause__ or error
    cause = f"{type(raised).__name__}: {raised}" if has_step else str(error)
    misfit = NonDeterministic(
        f"{str(error).rstrip('.')}. {HELD}",
        cause=cause,
        expected=claim.state[:_SHOWN] if has_step else f"step {claim.step!r}",
        found=f"{program.codec.name}: {cause}" if has_step else f"the steps {', '.join(program.steps)}",
    )
    misfit.__cause__ = error.__cause__
    return misfit


async def recover(program: StepProgram, claim: Claim, services: StepServices, error: BaseException) -> Decision:
    """Let `handle` decide about an error. It gets the state as it was before the step."""
    failure = failure_of(error)
    if program.handle is None:
        return stop(claim.step, claim.state, failure)
    try:
        context = Context(claim, services, _state_for_handle(program, claim))
        if asyncio.iscoroutinefunction(program.handle):
            outcome = await program.handle(program.machine, error, context)
        else:
            outcome = await services.call(program.handle, program.machine, error, context)
        return _with_failure(decide(program, claim, context, outcome), claim, failure)
    except BaseException as second:
        if exit_in(second) is not None or (isinstance(second, asyncio.CancelledError) and is_cancelled()):
            raise
        return stop(claim.step, claim.state, failure.then_raised("handle", error, second))


def _with_failure(decision: Decision, claim: Claim, failure: Failure) -> Decision:
    """The decision of `handle`, with the error it was given: nothing fails silently (X9)."""
    if decision.label in ("retry", "stop"):
        decision.failure = failure
        if isinstance(decision.move, Finish):
            decision.move.traceback = failure.traceback
    else:
        decision.failed_attempts = (FailedAttempt("error", claim.step, failure, claim.attempt),)
    return decision


def _state_for_handle(program: StepProgram, claim: Claim) -> Any:
    try:
        return program.codec.load(claim.state)
    except HarkError:
        return json.load(claim.state)  # the state does not match its type any more: `handle` gets it as plain JSON


def decide(program: StepProgram, claim: Claim, context: Context[Any], outcome: Outcome) -> Decision:
    """Translate an outcome into a decision. Raises when it cannot be committed."""
    services = context._services
    handed: list[int] = []
    directed: list[int] = []
    if claim.inbox:
        handed = _handed(claim)
        directed = [row.seq for row in claim.inbox if row.kind not in SIGNALS]
    label: OutcomeType
    failure = None
    match outcome:
        case Next():
            step = _checked_step(program, outcome.step)
            rate = None
            move: Move = _ADVANCE
            if outcome.rate_limit is not None or outcome.weight != 1:
                rate = services.rate_limit(outcome.rate_limit, outcome.weight)
                move = Advance(rate, float(outcome.weight))
            if outcome.concurrency_key is not KEEP and outcome.concurrency_key != claim.concurrency_key:
                key = services.concurrency_key(outcome.concurrency_key)  # type: ignore[arg-type]
                move = Advance(rate, float(outcome.weight), rekey=True, concurrency_key=key)
            label, consume = "next", (*handed, *directed)
        case Retry():
            label, step, move, consume = "retry", claim.step, Redo(outcome.delay), ()
        case Await():
            step = _checked_step(program, outcome.then)
            arms = [
                Arm(kind, new_id(), name=name, timeout=outcome.timeout, deadline=outcome.deadline)
                for kind, name in outcome.names
            ] or [Arm("timer", new_id(), timeout=outcome.timeout, deadline=outcome.deadline)]
            label, move, consume = "await", Park(tuple(arms)), tuple(directed)
        case Spawn():
            step = _checked_step(program, outcome.then)
            children = tuple(services.new(c.definition, c.input, c.options) for c in outcome.children)
            move = Park((Arm("children", new_id(), children=children, join=outcome.join),))
            label, consume = "spawn", (*handed, *directed)
        case Done():
            result = json.dump_unchecked(outcome.result, limit=services.max_payload, what="result")
            label, step, move, consume = "done", claim.step, Finish("done", result=result), ()
        case Stop():
            label, step, consume, failure = "stop", claim.step, (), failure_of(outcome.reason)
            move = Finish("failed", error=failure.text, traceback=failure.traceback)
        case _ as other:
            raise _not_an_outcome(program, claim, other)
    state = context.state if outcome.state is KEEP else outcome.state
    return Decision(
        label,
        step,
        program.codec.dump(state, services.max_payload),
        move,
        consume,
        tuple(handed),
        context._effects,
        progress=context._progress,
        failure=failure,
    )


def _checked_step(program: StepProgram, step: str) -> str:
    if step not in program.steps:
        raise InvalidOutcome(f"{program.name} has no step {step!r}. It has: {', '.join(program.steps)}.")
    return step


def _not_an_outcome(program: StepProgram, claim: Claim, returned: Never) -> InvalidOutcome:
    """The error of a step that returned something else. `Never`: mypy reports an outcome that `decide` forgets."""
    return InvalidOutcome(
        f"Step {claim.step!r} of {program.name} returned {returned!r}, which is not an outcome. "
        "Return Next, Retry, Await, Spawn, Done or Stop."
    )
