"""The interpreter of machines: one step in, one decision out.

Loads the state, calls the step, and says in the kernel's words what its outcome means. Whatever goes
wrong on the way, also an outcome that is none or a state that cannot be stored, goes to `handle` (M4);
when that fails too the instance fails with both errors. Knows no clock, thread or database: `StepServices` is
what the worker lends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import (
    Advance,
    Arm,
    Decision,
    Effect,
    Finish,
    Move,
    NewInstance,
    Park,
    Redo,
    SendBroadcast,
    SendSignal,
    Settle,
)  # fmt: skip
from hark.model.errors import HarkError, InvalidInput, InvalidOutcome
from hark.model.names import check_awakeable_id, check_name, from_micros, new_id
from hark.model.outcomes import KEEP, Await, Done, Next, Retry, Spawn, Stop
from hark.model.values import ChildView, Signal

_ON = Advance()
_LONGEST = 1 << 14  # characters of an error that are kept: it is read by people, and listed by the page


class StepServices(Protocol):
    """What the worker lends to a step."""

    max_payload: int

    def now(self) -> datetime: ...
    def rate_limit(self, rate_limit: Any, weight: float) -> str | None: ...
    def concurrency_key(self, key: str | None) -> str | None: ...
    def new(self, definition: Any, input: Any, options: dict[str, Any]) -> NewInstance: ...
    def call(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]: ...


@dataclass(frozen=True, slots=True)
class StepFunction:
    function: Callable[..., Any]
    is_async: bool


@dataclass(slots=True)
class StepProgram:
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
    source: str | None = None
    digest: str | None = None

    def run(self, claim: Claim, services: StepServices) -> Coroutine[Any, Any, Decision]:
        return run(self, claim, services)

    def recover(self, claim: Claim, services: StepServices, error: BaseException) -> Coroutine[Any, Any, Decision]:
        return recover(self, claim, services, error)


class Context:
    """What a step sees (`ctx`)."""

    __slots__ = (
        "_all",
        "_awaited",
        "_children",
        "_claim",
        "_effects",
        "_services",
        "attempt",
        "correlation_key",
        "id",
        "state",
        "step",
    )  # fmt: skip

    def __init__(self, claim: Claim, services: StepServices, state: Any) -> None:
        self.id = claim.id
        self.step = claim.step
        self.attempt = claim.attempt
        self.correlation_key = claim.correlation_key
        self.state = state
        self._claim = claim
        self._services = services
        self._effects: list[Effect] = []
        self._awaited: list[Signal] | None = None
        self._all: list[Signal] | None = None
        self._children: list[ChildView] | None = None

    @property
    def awaited(self) -> list[Signal]:
        """The signals that match the await which led here, unconsumed, in order."""
        if self._awaited is None:
            handed = set(_handed(self._claim))
            self._awaited = [signal for signal in self.all if signal.id in handed]
        return self._awaited

    @property
    def all(self) -> list[Signal]:
        """The whole inbox."""
        if self._all is None:
            self._all = [
                Signal(row.seq, row.kind, row.name, json.load(row.payload), from_micros(row.at))
                for row in self._claim.inbox
                if row.kind in ("signal", "broadcast")
            ]
        return self._all

    @property
    def timed_out(self) -> bool:
        """The time of the await that led here was up."""
        return any(row.kind == "timer" for row in self._claim.inbox)

    @property
    def children(self) -> list[ChildView]:
        """All children of the spawn that led here, finished or not."""
        if self._children is None:
            self._children = [
                ChildView(
                    id,
                    definition,
                    status,
                    json.load(state),
                    None if result is None else json.load(result),
                    error,
                )
                for _, id, definition, status, state, result, error in self._claim.children
            ]
        return self._children

    def now(self) -> datetime:
        """The database's clock."""
        return self._services.now()

    # Effects: they commit with the outcome, or not at all.

    def signal(self, target: Any, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """Send a signal with this step's outcome."""
        self._effects.append(
            SendSignal(
                check_name(getattr(target, "id", target), "target"),
                check_name(name, "signal name"),
                json.dump(payload, limit=self._services.max_payload),
                None if dedup_key is None else check_name(dedup_key, "dedup key"),
            )
        )

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> None:
        """Broadcast with this step's outcome."""
        self._effects.append(
            SendBroadcast(
                check_name(name, "broadcast name"),
                json.dump(payload, limit=self._services.max_payload),
                None if dedup_key is None else check_name(dedup_key, "dedup key"),
            )
        )

    def start(self, definition: Any, input: Any = None, **options: Any) -> str:
        """Start another instance with this step's outcome; its id."""
        item = self._services.new(definition, input, options)
        self._effects.append(item)
        return item.id

    def resolve(self, awakeable_id: str, payload: Any = None, *, by: str | None = None) -> None:
        """Resolve an awakeable with this step's outcome."""
        text = json.dump(payload, limit=self._services.max_payload)
        self._effects.append(
            Settle(check_awakeable_id(awakeable_id), "RESOLVED", payload=text, by=by or self.id, via="step")
        )

    def reject(self, awakeable_id: str, error: str = "rejected", *, by: str | None = None) -> None:
        """Reject an awakeable with this step's outcome."""
        if not isinstance(error, str):
            raise InvalidInput(f"error must be text, not {error!r}.")
        json.dump(error, limit=self._services.max_payload, what="error")
        self._effects.append(
            Settle(check_awakeable_id(awakeable_id), "REJECTED", error=error, by=by or self.id, via="step")
        )


def _handed(claim: Claim) -> list[int]:
    """Unconsumed signals that match the await which led to this step."""
    asked = {(wait.kind, wait.name) for wait in claim.waits}
    return [row.seq for row in claim.inbox if row.kind in ("signal", "broadcast") and (row.kind, row.name) in asked]


async def run(program: StepProgram, claim: Claim, services: StepServices) -> Decision:
    context = Context(claim, services, None)
    try:
        context.state = program.codec.load(claim.state)
        step = program.steps.get(claim.step)
        if step is None:
            raise InvalidOutcome(
                f"{program.name} version {program.version} has no step {claim.step!r}. "
                f"It has: {', '.join(program.steps)}. Add the step, then retry the instance."
            )
        if step.is_async:
            outcome = await step.function(program.machine, context)
        else:
            outcome = await services.call(step.function, program.machine, context)
        return decide(program, claim, context, outcome)
    except Exception as error:
        if is_cancelled():
            raise asyncio.CancelledError from error
        return await recover(program, claim, services, error)


async def recover(program: StepProgram, claim: Claim, services: StepServices, error: BaseException) -> Decision:
    """`handle` decides what becomes of an error. It sees the state as it was before the step."""
    if program.handle is None:
        return _failed(claim, error_text(error))
    try:
        context = Context(claim, services, _state_for_handle(program, claim))
        if asyncio.iscoroutinefunction(program.handle):
            outcome = await program.handle(program.machine, error, context)
        else:
            outcome = await services.call(program.handle, program.machine, error, context)
        return decide(program, claim, context, outcome)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as second:
        if isinstance(second, asyncio.CancelledError) and is_cancelled():
            raise
        return _failed(claim, f"{error_text(error)}; then handle raised {error_text(second)}")


def is_cancelled() -> bool:
    """Then nobody waits for what comes of it (X8)."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _state_for_handle(program: StepProgram, claim: Claim) -> Any:
    try:
        return program.codec.load(claim.state)
    except HarkError:
        return json.load(claim.state)  # the state itself is the trouble: show it as it is


def _failed(claim: Claim, error: str) -> Decision:
    return Decision("stop", claim.step, claim.state, Finish("failed", error=error))


def error_text(error: object) -> str:
    """An error as text, for people."""
    if isinstance(error, BaseException):
        try:
            text = str(error)
        except Exception:
            text = "(its text cannot be read)"
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    else:
        text = error if isinstance(error, str) else json.dump(error, what="reason")
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}… ({len(text)} characters)"
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")  # what every store can keep


def decide(program: StepProgram, claim: Claim, context: Context, outcome: Any) -> Decision:
    """An outcome in the kernel's words. Raises when it cannot be committed."""
    services = context._services
    handed: list[int] = []
    served: list[int] = []
    if claim.inbox:
        handed = _handed(claim)
        served = [row.seq for row in claim.inbox if row.kind not in ("signal", "broadcast")]
    match outcome:
        case Next():
            step = _known(program, outcome.step)
            rate = None
            move: Move = _ON
            if outcome.rate_limit is not None or outcome.weight != 1:
                rate = services.rate_limit(outcome.rate_limit, outcome.weight)
                move = Advance(rate, float(outcome.weight))
            if outcome.concurrency_key is not KEEP and outcome.concurrency_key != claim.concurrency_key:
                key = services.concurrency_key(outcome.concurrency_key)  # type: ignore[arg-type]
                move = Advance(rate, float(outcome.weight), rekey=True, concurrency_key=key)
            label, consume = "next", (*handed, *served)
        case Retry():
            label, step, move, consume = "retry", claim.step, Redo(outcome.delay), ()
        case Await():
            step = _known(program, outcome.then)
            arms = [
                Arm(kind, new_id(), name=name, timeout=outcome.timeout, deadline=outcome.deadline)
                for kind, name in outcome.names
            ] or [Arm("timer", new_id(), timeout=outcome.timeout, deadline=outcome.deadline)]
            label, move, consume = "await", Park(tuple(arms)), tuple(served)
        case Spawn():
            step = _known(program, outcome.then)
            children = tuple(services.new(c.definition, c.input, c.options) for c in outcome.children)
            move = Park((Arm("children", new_id(), children=children, join=outcome.join),))
            label, consume = "spawn", (*handed, *served)
        case Done():
            result = json.dump(outcome.result, limit=services.max_payload, what="result")
            label, step, move, consume = "done", claim.step, Finish("done", result=result), ()
        case Stop():
            label, step, consume = "stop", claim.step, ()
            move = Finish("failed", error=error_text(outcome.reason))
        case _:
            raise InvalidOutcome(
                f"Step {claim.step!r} of {program.name} returned {outcome!r}, which is no outcome. "
                "Return Next, Retry, Await, Spawn, Done or Stop."
            )
    state = context.state if outcome.state is KEEP else outcome.state
    return Decision(
        label,
        step,
        program.codec.dump(state, services.max_payload),
        move,
        consume,
        tuple(handed),
        context._effects,
    )


def _known(program: StepProgram, step: str) -> str:
    if step not in program.steps:
        raise InvalidOutcome(f"{program.name} has no step {step!r}. It has: {', '.join(program.steps)}.")
    return step
