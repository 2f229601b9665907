"""TaskProgram: runs the tasks of one handler, one activation at a time.

It calls the handler with its context and turns what becomes of it into a decision: an outcome, a failed attempt, or a
park. An activation that was cancelled, reclaimed or handed back has no decision: its `CancelledError` goes on to the
worker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from hark.model import json
from hark.model.activation import TASK_TRAITS, Claim
from hark.model.decisions import Decision, stop
from hark.model.errors import BpmnError, InvalidInput
from hark.model.exits import exit_in
from hark.model.failures import failure_of, storable
from hark.model.names import check_name
from hark.programs.cancellation import is_cancelled
from hark.programs.functions.branches import Suspended
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_services import TaskServices
from hark.programs.jobs.tasks.task_context import TaskContext
from hark.programs.jobs.tasks.task_data import dump_variables, load_data
from hark.programs.jobs.tasks.task_outcomes import Complete, Continue, Fail, TaskActivation, as_outcome
from hark.programs.jobs.tasks.task_session import TaskSession
from hark.programs.jobs.tasks.task_state import load_task_state
from hark.programs.misfits import hold


class TaskProgram:
    def __init__(self, name: str, handler: Callable[[TaskContext], Any]) -> None:
        self.name = name
        self.handler = handler
        self.traits = TASK_TRAITS
        self.code = handler
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is `async def`
        )

    async def run(self, claim: Claim, services: TaskServices) -> Decision:
        graph = await services.job_graph(claim.definition, claim.version)
        activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
        was_retried = activation.state.ended
        activation.begin(claim.now)
        session = claim.session = TaskSession(activation, services)
        decide: Callable[[], Decision]
        try:
            if was_retried:
                await session.start_over()
            if (reached := activation.bound_reached(claim.now)) is not None:
                decide = partial(activation.failed, reached, final=True)
            else:
                outcome = as_outcome(await self._call(session, await self._context(session, graph)))
                output = "null"
                if isinstance(outcome, Fail) and isinstance(outcome.error, BpmnError) and graph.spec.is_bpmn:
                    raise outcome.error  # returned or raised, it is the same
                if isinstance(outcome, Complete | Continue):
                    what = f"output of task {claim.step!r}"
                    output = json.dump_unchecked(outcome.output, limit=services.max_payload, what=what)
                decide = partial(activation.outcome, outcome, output, services.micros())
        except Suspended:
            decide = activation.suspended
        except BaseException as error:
            if exit_in(error) is not None:
                raise
            if is_cancelled():
                session.close()
                raise asyncio.CancelledError from error
            session.close_runs()  # of a handler that has failed beside them
            decide = _failed(activation, error, services.max_payload)
        return await self._decide(session, decide)

    async def _context(self, session: TaskSession, graph: JobGraph) -> TaskContext:
        return TaskContext(session, await load_data(session.state, graph, session.services))

    async def _call(self, session: TaskSession, context: TaskContext) -> Any:
        """Call the handler, and end it when its time is over."""
        clock, value = session.clock, None
        cause: BaseException | None = None
        try:
            async with clock.limit:
                clock.start()
                if self._is_async:
                    value = await self.handler(context)
                else:
                    value = await session.services.call_handler(self.handler, context)
                    if inspect.isawaitable(value):
                        value = await value
        except (TimeoutError, asyncio.CancelledError) as error:
            if not clock.limit.expired() or is_cancelled():
                raise  # of the handler itself, or the activation is cancelled
            cause = error.__cause__
        finally:
            clock.stop()
        if session.is_suspended:  # whatever the handler made of it
            raise Suspended
        if clock.limit.expired():  # also when the handler ignored that it was cancelled
            raise clock.why_expired() from cause
        return value

    async def _decide(self, session: TaskSession, decide: Callable[[], Decision]) -> Decision:
        try:
            await session.finish()
        except asyncio.CancelledError:
            session.close()
            raise
        activation = session.activation
        if session.misfit is not None:
            return hold(session.claim, session.misfit)
        activation.consume = session.waits.received()
        activation.handed = session.waits.handed()
        activation.effects = list(session.withdrawn())
        if session.is_suspended:
            return activation.suspended()
        return decide()

    async def recover(self, claim: Claim, services: TaskServices, error: BaseException) -> Decision:
        """Fail the attempt: the store refused its outcome, or what it needs could not be read. It has used up what it
        received, as any other attempt that fails."""
        session: TaskSession | None = claim.session
        if session is not None:
            session.close()
        try:
            graph = await services.job_graph(claim.definition, claim.version)
            activation = TaskActivation(claim, load_task_state(claim.state), graph.spec)
        except Exception:
            return stop(claim.step, claim.state, failure_of(error))
        if session is not None:
            activation.consume, activation.effects = session.waits.received(), list(session.withdrawn())
        return activation.failed(failure_of(error))


def _failed(activation: TaskActivation, error: BaseException, max_payload: int) -> Callable[[], Decision]:
    """The decision for what the handler raised. In a job, a BPMN error is an exception like any other."""
    if not isinstance(error, BpmnError) or not activation.job.is_bpmn:
        return partial(activation.failed, failure_of(error))
    try:
        code = check_name(error.code, "code of a BPMN error")
        variables = dump_variables(error.variables, max_payload)
    except InvalidInput as problem:
        return partial(activation.failed, failure_of(problem))
    return partial(activation.thrown, code, storable(str(error.message)), variables, failure_of(error))
