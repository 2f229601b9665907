"""OpenTelemetry spans (X6): one trace from the caller's span through the start, the steps, runs, waits and answers.

An instance keeps the `traceparent` of its start, so every process that runs or answers it continues the same trace.
Tracing is on when a tracer provider is configured before the app is opened. Without one, `find_tracing` returns None
and nothing of OpenTelemetry is imported: this module imports it only when it is loaded already.

    start Checkout              from the call to its commit; a child of the caller's span
      step Checkout.start       of a machine: one for each step
      workflow deploy           of a function: from its claim to its park or end
        run build               one for each attempt of `ctx.run`
        undo build              one for each attempt of its undo
      wait signal paid          from the commit that began to wait to the arrival of the answer
      signal paid               from the call to its commit; linked to the caller's span
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from hark.engine.turns.reply import Reply
from hark.kernel.requests import (
    Cancel,
    Deliver,
    Message,
    Publish,
    Request,
    RetryInstance,
    SettleAwakeable,
    SignalWithStart,
    StartInstances,
)
from hark.model.activation import Claim, WaitRow
from hark.model.decisions import Advance, Decision, Finish, Hold, Park, Proceed, Redo, Release
from hark.model.errors import NotOpen
from hark.model.failures import Failure
from hark.model.values import Delivery
from hark.store import reads
from hark.store.protocol import Store, StoreFault
from hark.store.statements import AwakeableRow

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext

T = TypeVar("T")
_Traced = (
    StartInstances | SignalWithStart | Publish | Deliver | Message | SettleAwakeable | Cancel | RetryInstance
)  # the requests that have a span
_MODULE = "opentelemetry.trace"


def find_tracing() -> Tracing | None:
    """The tracing of this process, if its program has configured a tracer provider."""
    api = sys.modules.get(_MODULE)
    if api is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    return Tracing()


class Tracing:
    """Makes the spans of one app."""

    def __init__(self) -> None:
        from importlib.metadata import version

        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api = trace
        self._tracer = trace.get_tracer("hark", version("hark"))
        self._propagator = TraceContextTextMapPropagator()
        self._answers: list[_Answer] = []  # committed, not yet made a span

    # -- traceparent --------------------------------------------------------------------------------

    def current(self) -> str | None:
        """The traceparent of the current span, for an instance that is started inside of it."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent")

    def _traceparent(self, span: Span) -> str | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._api.set_span_in_context(span))
        return carrier.get("traceparent")

    def _context(self, traceparent: str | None) -> Context | None:
        return None if traceparent is None else self._propagator.extract({"traceparent": traceparent})

    @contextmanager
    def continued(self, traceparent: str) -> Iterator[None]:
        """Make calls inside of it part of the trace of a caller in another process, unless there is a span already, as
        below the middleware of an application that Hark is mounted in."""
        if self._api.get_current_span().get_span_context().is_valid:
            yield
            return
        caller = self._api.get_current_span(self._context(traceparent))
        with self._api.use_span(caller, record_exception=False, set_status_on_exception=False):
            yield

    # -- calls --------------------------------------------------------------------------------------

    def reply(self, request: Request, convert: Callable[[Any], T] | None, spawn: Callable[..., None]) -> Reply[T]:
        """The reply to a call, which makes the span of the call when it is answered.

        Args:
            request: The request; a start gets the traceparent of its span.
            convert: See `Reply`.
            spawn: Runs a coroutine function with the store, on the clerk's loop.
        """
        match request:
            case StartInstances() | SignalWithStart() | Publish():
                return _TracedReply(convert, self._start_or_broadcast(request))
            case Deliver() | Message() | SettleAwakeable() | Cancel() | RetryInstance():
                caller = self._api.get_current_span().get_span_context()
                answer = _Answer(_name(request), caller, time.time_ns())
                return _TracedReply(convert, lambda result: self._answered(answer, result, spawn))
            case _:
                return Reply(convert)

    def _start_or_broadcast(self, request: StartInstances | SignalWithStart | Publish) -> Callable[[Any], None]:
        span = self._tracer.start_span(_name(request), kind=self._api.SpanKind.PRODUCER)
        if isinstance(request, StartInstances):
            traceparent = self._traceparent(span)
            for item in request.items:
                item.trace = traceparent
            if len(request.items) == 1:
                [item] = request.items
                span.set_attributes({"hark.instance": item.id, "hark.definition": item.definition})
            else:
                span.set_attribute("hark.instances", len(request.items))
        elif isinstance(request, SignalWithStart):
            request.item.trace = self._traceparent(span)
            span.set_attribute("hark.definition", request.item.definition)

        def end(result: Any) -> None:
            failed = result[0] if isinstance(result, list) and len(result) == 1 else result
            if isinstance(failed, BaseException):
                self._fail(span, failed)
            elif isinstance(request, Publish):
                span.set_attribute("hark.reached", result)
            elif isinstance(request, SignalWithStart):
                span.set_attribute("hark.instance", result)
            span.end()

        return end

    def _fail(self, span: Span, error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(self._api.StatusCode.ERROR, str(error))

    def _answered(self, answer: _Answer, result: Any, spawn: Callable[..., None]) -> None:
        """End the span of a call about an instance that is committed, or was refused. Its span belongs to the trace of
        the instance, which is read once for all calls that were committed meanwhile."""
        answer.ended = time.time_ns()
        answer.instance = _instance_of(result)
        if isinstance(result, BaseException):
            answer.error = result
        if answer.instance is None:
            self._end_answer(answer, None)
            return
        self._answers.append(answer)
        if len(self._answers) == 1:
            try:
                spawn(self._end_answers)
            except NotOpen:  # the app is closing
                self._answers.remove(answer)
                self._end_answer(answer, None)

    async def _end_answers(self, store: Store) -> None:
        while self._answers:
            answers, self._answers = self._answers[:], []
            ids = sorted({answer.instance for answer in answers if answer.instance is not None})
            try:
                traces = dict(await store.read(reads.traces_of, ids=ids))
            except StoreFault:  # a span is not worth an error: it gets the trace of its caller
                traces = {}
            for answer in answers:
                self._end_answer(answer, traces.get(answer.instance))

    def _end_answer(self, answer: _Answer, traceparent: str | None) -> None:
        api = self._api
        context = self._context(traceparent)
        caller = answer.caller
        links = []
        if context is None or api.get_current_span(context).get_span_context().trace_id == caller.trace_id:
            context = api.set_span_in_context(api.NonRecordingSpan(caller))
        elif caller.is_valid:
            links = [api.Link(caller)]
        span = self._tracer.start_span(
            answer.name, context, kind=api.SpanKind.PRODUCER, links=links, start_time=answer.started
        )
        if answer.instance is not None:
            span.set_attribute("hark.instance", answer.instance)
        if answer.error is not None:
            self._fail(span, answer.error)
        span.end(answer.ended)

    # -- activations --------------------------------------------------------------------------------

    @contextmanager
    def activation(self, claim: Claim) -> Iterator[None]:
        """Run code of an instance inside the span of its activation, which `decided` ends."""
        if claim.span is None:
            claim.span = self._begin(claim)
        activation: ActivationSpan = claim.span
        activation.running = True
        try:
            with self._api.use_span(activation.span, record_exception=False, set_status_on_exception=False):
                yield
        finally:
            if activation.running:  # no outcome: it was cancelled, reclaimed or handed back, or the process exits
                activation.end()

    def _begin(self, claim: Claim) -> ActivationSpan:
        parent = self._context(claim.trace)
        self._end_waits(claim, parent)
        machine = claim.kind == "machine"
        name = f"step {claim.definition}.{claim.step}" if machine else f"{claim.kind} {claim.definition}"
        span = self._tracer.start_span(name, parent, kind=self._api.SpanKind.CONSUMER, attributes=_about(claim))
        return ActivationSpan(span)

    def _end_waits(self, claim: Claim, parent: Context | None) -> None:
        """Make the spans of the waits that were answered: only now are both ends known."""
        for wait in claim.waits:
            for row in claim.inbox:
                timed_out = row.kind == "timer" and wait.kind != "timer" and row.wait_id == wait.id
                if row.at < wait.since or not (timed_out or wait.answered_by(row.kind, row.name, row.wait_id)):
                    continue
                name, more = _about_wait(wait)
                span = self._tracer.start_span(
                    f"wait {name}", parent, attributes=_about(claim) | more, start_time=wait.since * 1000
                )
                if timed_out:
                    span.set_attribute("hark.timed_out", True)
                span.end(row.at * 1000)
                break

    def decided(self, claim: Claim, decision: Decision) -> None:
        """End the span of code that has returned an outcome, unless a function goes on after the commit."""
        activation: ActivationSpan = claim.span
        activation.running = False
        if not decision.move.ends_step and decision.failure is None:
            return  # a function continues, or the step runs again because its loop has ended
        activation.span.set_attribute("hark.outcome", decision.label)
        if decision.failure is not None:
            self._record(activation.span, decision.failure)
        else:
            match decision.move:
                case Finish(status="failed", error=error):
                    activation.span.set_status(self._api.StatusCode.ERROR, error)
                case Hold(error=error):
                    activation.span.set_status(self._api.StatusCode.ERROR, error)
                case Advance() | Proceed() | Redo() | Park() | Finish() | Release():
                    pass
                case _ as never:
                    assert_never(never)
        activation.end()
        claim.span = None

    @contextmanager
    def run(self, claim: Claim, label: str, attempt: int) -> Iterator[Callable[[Failure], None]]:
        about = _about(claim) | {"hark.step": label, "hark.attempt": attempt}
        with self._tracer.start_as_current_span(label, attributes=about, record_exception=False) as span:
            yield partial(self._record, span)

    def _record(self, span: Span, failure: Failure) -> None:
        about = {"exception.type": failure.type or "", "exception.message": failure.message}
        span.add_event("exception", about | {"exception.stacktrace": failure.traceback or ""})
        span.set_attribute("error.type", failure.type or "")
        span.set_status(self._api.StatusCode.ERROR, failure.text)


@dataclass(slots=True, eq=False)
class ActivationSpan:
    """The span of an activation. `running`: its code runs; False while its outcome is committed."""

    span: Span
    running: bool = False

    def end(self) -> None:
        self.running = False
        self.span.end()


@dataclass(slots=True, eq=False)
class _Answer:
    """A call about an instance that exists: a signal, a message, an answer, a cancel, a retry."""

    name: str
    caller: SpanContext
    started: int  # ns since 1970
    ended: int = 0
    instance: str | None = None
    error: BaseException | None = None


class _TracedReply(Reply[T]):
    """A reply that reports when it is answered."""

    __slots__ = ("_answered",)

    def __init__(self, convert: Callable[[Any], T] | None, answered: Callable[[Any], None]) -> None:
        super().__init__(convert)
        self._answered = answered

    def _settle(self, value: Any) -> Any:
        first = not self._done
        waiters = super()._settle(value)
        if first:
            self._answered(value)
        return waiters


def _name(request: _Traced) -> str:
    match request:
        case StartInstances(items=items):
            return f"start {items[0].definition}" if len(items) == 1 else "start instances"
        case SignalWithStart(item=item):
            return f"signal_with_start {item.definition}"
        case Publish(name=name):
            return f"broadcast {name}"
        case Deliver(name=name):
            return f"signal {name}"
        case Message(name=name):
            return f"message {name}"
        case SettleAwakeable(settle=settle):
            return "resolve awakeable" if settle.status == "RESOLVED" else "reject awakeable"
        case Cancel():
            return "cancel"
        case RetryInstance():
            return "retry"
        case _ as never:
            assert_never(never)


def _instance_of(result: Any) -> str | None:
    """The instance that a call was about, from its result."""
    if isinstance(result, Delivery | AwakeableRow):
        return result.instance_id
    return result if isinstance(result, str) else None


def _about(claim: Claim) -> dict[str, str | int | Sequence[str]]:
    return {
        "hark.instance": claim.id,
        "hark.definition": claim.definition,
        "hark.version": claim.version,
        "hark.step": claim.step,
        "hark.attempt": claim.attempt,
    }


def _about_wait(wait: WaitRow) -> tuple[str, dict[str, str | int | Sequence[str]]]:
    """The name and the attributes of the span of a wait: few names, so not with the id of an awakeable."""
    match wait.kind:
        case "signal" | "broadcast" | "message" | "timer" | "children":
            return wait.kind if wait.name is None else f"{wait.kind} {wait.name}", {}
        case "awakeable":
            return wait.kind, {"hark.awakeable": wait.name or ""}
        case _ as never:
            assert_never(never)
