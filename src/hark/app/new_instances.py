"""Turn the arguments of a start into a `NewInstance`, for all callers: `Hark.start`, `ctx.start`, `Spawn`.

Malformed arguments are refused here. The turn decides whether an id or key is free, and whether the store knows a
name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from hark.app.arguments import check_tags, optional_name
from hark.app.registered_jobs import RegisteredJobs, job_of
from hark.engine.worker.registry import Program, Registry
from hark.kernel.limits import Limits
from hark.model import json
from hark.model.decisions import NewInstance
from hark.model.errors import InvalidInput
from hark.model.names import check_id, check_name, check_queue, micros, moment, new_id, version_problem
from hark.model.outcomes import StartOptions
from hark.programs.machines import machine
from hark.programs.machines.machine import Machine

if TYPE_CHECKING:
    from hark.programs.functions.workflow import Workflow
    from hark.programs.jobs.file import Dag, Job

Definition: TypeAlias = "Workflow[..., Any] | type[Machine] | Job | Dag | str"


class Start:
    """One start of `start_many`, with its options.

    Args:
        definition: A `@workflow`, a `Machine` class, a job, or the name of one.
        input: What the instance starts with.
        **options: The options of `Hark.start`.

    Example:
        await app.start_many([Start(Checkout, {"order": 42}, correlation_key="order:42"), …])
    """

    __slots__ = ("definition", "input", "options")

    def __init__(self, definition: Definition, input: Any = None, **options: Unpack[StartOptions]) -> None:
        self.definition = definition
        self.input = input
        self.options = options


class StartBuilder:
    """Builds the starts of one app.

    Args:
        registry: The definitions whose code is in this process: their inputs are validated.
        jobs: The jobs that this process has registered.
        limits: The configured rate limits, which a start may name.
        max_payload: How many bytes of JSON an input may have.
        register: Called with a definition that is started before it was registered.
    """

    def __init__(
        self,
        registry: Registry,
        jobs: RegisteredJobs,
        limits: Limits,
        max_payload: int,
        register: Callable[[Any], object],
    ) -> None:
        self._registry = registry
        self._jobs = jobs
        self._limits = limits
        self._max_payload = max_payload
        self._register = register
        self.trace: Callable[[], str | None] | None = None  # with a tracer: the traceparent that new instances get

    def apart(self, registry: Registry) -> StartBuilder:
        """One that registers what it does not know in another registry only, and records nothing."""
        return StartBuilder(
            registry, self._jobs, self._limits, self._max_payload, lambda one: registry.add(program_of(one))
        )

    def build(self, definition: Any, input: Any, options: Any) -> NewInstance:
        """The start of an instance as data; `options` are those of `Hark.start`."""
        item = self._build(definition, input, **options)
        if self.trace is not None:
            item.trace = self.trace()
        return item

    def _build(
        self,
        definition: Any,
        input: Any,
        *,
        id: Any = None,
        correlation_key: Any = None,
        correlation_scope: Any = "live",
        step: Any = None,
        queue: Any = None,
        priority: Any = 0,
        delay: Any = None,
        at: Any = None,
        concurrency_key: Any = None,
        rate_limit: Any = None,
        weight: Any = 1,
        version: Any = None,
        tags: Any = None,
        **unknown: Any,
    ) -> NewInstance:
        if unknown:
            raise InvalidInput(f"start has no option {', '.join(unknown)}. `help(Hark.start)` lists those it has.")
        job = self.job(definition, version)
        if job is not None:
            name = job.name
            if version is None and not isinstance(definition, str):
                version = self._jobs.version(job)
        else:
            program = None if isinstance(definition, str) else self._known(definition)
            name = definition if program is None else program.name
            if program is not None and version is None:
                version = program.version
        if version is not None and (problem := version_problem(version)):
            raise InvalidInput(f"{problem}, or leave it out for the newest.")
        known = None if job is not None else self._registry.find(check_name(name, "definition"), version)
        step = None if step is None else check_name(getattr(step, "__hark_step__", step), "step name")
        state = self._state(known, input) if job is None else self._jobs.state(job, input)
        if job is not None and step is not None:
            raise InvalidInput(f"{name!r} is a job: it starts with the tasks that need none. Leave out step=.")
        if known is not None and step is not None and step not in known.steps:
            raise InvalidInput(f"{name} has no step {step!r}. It has: {', '.join(known.steps)}.")
        if correlation_scope not in ("live", "forever"):
            raise InvalidInput(f"correlation_scope={correlation_scope!r}: give 'live' or 'forever'.")
        if type(priority) is not int or not -(2**31) <= priority < 2**31:
            raise InvalidInput(f"priority={priority!r}: give a whole number; lower numbers run first.")
        return NewInstance(
            definition=name,
            state=state,
            id=new_id() if id is None else check_id(id),
            named=id is not None,
            version=version,
            step=step,
            queue=None if queue is None else check_queue(queue),
            priority=priority,
            correlation_key=optional_name(correlation_key, "correlation key"),
            scope=correlation_scope,
            delay=None if delay is None else micros(delay, "delay", zero=True),
            at=None if at is None else moment(at, "at"),
            concurrency_key=optional_name(concurrency_key, "concurrency key"),
            rate_limit=self._limits.check(rate_limit, weight),
            weight=float(weight),
            tags=check_tags(tags),
        )

    def job(self, definition: Any, version: int | None = None) -> Job | None:
        """The job that a definition or a name means, if this process has it. One that is not registered is."""
        if isinstance(definition, str):
            return self._jobs.find(definition, version)
        job = job_of(definition)
        if job is not None and self._jobs.find(job.name, version) is not job:
            self._register(job)
        return job

    def _known(self, definition: Any) -> Program:
        """The program of a definition. Starting one that was never registered registers it."""
        program = program_of(definition)
        if self._registry.find(program.name, program.version) is not program:
            self._register(definition)
        return program

    def _state(self, program: Program | None, input: Any) -> str:
        """The first state as JSON: validated if the code is here, else by the worker that runs it."""
        if program is None:
            return json.dump({} if input is None else input, limit=self._max_payload, what="input")
        return program.codec.dump(program.codec.build(input, limit=self._max_payload), self._max_payload)


def program_of(definition: Any) -> Program:
    """The program of a `Machine` class or a `@workflow`; raises `InvalidInput` for anything else."""
    program: Program | None = machine.program_of(definition)
    # While its module is not imported, nothing can be a workflow.
    workflow = sys.modules.get("hark.programs.functions.workflow")
    if program is None and workflow is not None:
        program = workflow.program_of(definition)
    if program is None:
        raise InvalidInput(
            f"{definition!r} is not a definition. Give a Machine class, a @workflow, a job, or the name of one."
        )
    return program


def starts_of(starts: Any) -> list[Start]:
    """The argument of `start_many`, each item a `Start`."""
    if not isinstance(starts, Iterable) or isinstance(starts, str | bytes | dict):
        raise InvalidInput(f"start_many takes a list of (definition, input) or Start(…), not {starts!r}.")
    found = []
    for start in starts:
        if not isinstance(start, Start) and not (isinstance(start, tuple | list) and len(start) == 2):
            raise InvalidInput(f"start_many takes (definition, input) or Start(definition, …) for each, not {start!r}.")
        found.append(start if isinstance(start, Start) else Start(*start))
    return found
