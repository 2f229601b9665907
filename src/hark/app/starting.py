"""The verbs that start instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from hark.app.arguments import optional_name
from hark.app.core import Core
from hark.app.handle import Handle
from hark.app.new_instances import Definition, Start, starts_of
from hark.app.registered_jobs import gates_of, unknown_gates
from hark.engine.turns.reply import Reply
from hark.kernel.requests import Request, SignalWithStart, StartInstances
from hark.model import json
from hark.model.errors import Duplicate
from hark.model.lanes import gate_lane
from hark.model.names import check_name
from hark.model.outcomes import Duration, StartOptions, Step
from hark.programs.machines.machine import Machine
from hark.store.protocol import Store

if TYPE_CHECKING:
    from typing import Unpack

    from hark.programs.functions.workflow import Workflow
    from hark.programs.jobs.file import Dag, Job

R = TypeVar("R")
T = TypeVar("T")


class StartVerbs(Core):
    """start, start_many, signal_with_start."""

    @overload
    def start(
        self, definition: Workflow[..., R], input: Any = None, **options: Unpack[StartOptions]
    ) -> Reply[Handle[R]]: ...
    @overload
    def start(
        self, definition: type[Machine] | Job | Dag | str, input: Any = None, **options: Unpack[StartOptions]
    ) -> Reply[Handle[Any]]: ...
    def start(
        self,
        definition: Definition,
        input: Any = None,
        *,
        id: str | None = None,
        correlation_key: str | None = None,
        correlation_scope: Literal["live", "forever"] = "live",
        step: Step | None = None,
        queue: str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        at: datetime | None = None,
        concurrency_key: str | None = None,
        rate_limit: str | tuple[str, str] | None = None,
        weight: float = 1,
        version: int | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Reply[Handle[Any]]:
        """Start an instance of a definition.

        A start by name needs no code in this process: workers record in the store what they can run.

        Args:
            definition: A `@workflow`, a `Machine` class, a job (`load_job`, `Dag`), or the name of one.
            input: What the instance starts with, a JSON value, dataclass, Struct or model. For a workflow a dict is
                its keyword arguments, any other value its one argument. For a machine it is the first state, for a job
                its inputs.
            id: The id of the new instance, 1 to 128 of `A-Z a-z 0-9 _ . -`; by default a UUIDv7.
            correlation_key: A name for the instance, by which signals reach it. One live instance may hold a key.
            correlation_scope: "live" frees the key when the instance ends, "forever" never.
            step: The step a machine starts with, instead of its first one.
            queue: The queue it runs in, instead of the definition's.
            priority: Lower numbers are claimed first, within a queue.
            delay: How long to wait before the first step, in seconds or as a `timedelta`.
            at: When to run the first step, an aware `datetime`, instead of `delay`.
            concurrency_key: Of the instances that execute under one key, only so many run at once as the option
                `concurrency` of `Hark` allows; 1 if it does not name the key.
            rate_limit: The name of a limit in the option `rate_limits` of `Hark`, or `(name, partition)`.
            weight: How many tokens of the rate limit the first step takes.
            version: The version of the definition, by default the newest one that is known.
            tags: Names and values by which `list` finds the instance: up to 20, each of 1 to 255 bytes. They never
                change, and children do not inherit them.

        Returns:
            A reply with the `Handle` of the instance.

        Raises:
            Duplicate: The id or key is taken; `.holder` is the id of the instance that has it.
            NotFound: No worker has ever registered a definition of this name and version.
            InvalidInput: An argument is malformed, or `input` does not match the definition.
            InvalidDefinition: A job has mistakes, or a gate that neither this app nor a worker has registered.

        Example:
            order = await app.start(checkout, {"order": 42}, correlation_key="order:42")
        """
        options: StartOptions = {
            "id": id, "correlation_key": correlation_key, "correlation_scope": correlation_scope, "step": step,
            "queue": queue, "priority": priority, "delay": delay, "at": at, "concurrency_key": concurrency_key,
            "rate_limit": rate_limit, "weight": weight, "version": version, "tags": tags,
        }  # fmt: skip
        item = self._starts.build(definition, input, options)
        request = StartInstances(items=[item])
        return self._ask_start([definition], request, lambda answers: self._handle(_raise(answers[0])))

    def start_many(self, starts: Iterable[tuple[Definition, Any] | Start]) -> Reply[list[Handle[Any] | Duplicate]]:
        """Start many instances in one commit.

        Args:
            starts: For each instance a pair of definition and input, or a `Start` with options.

        Returns:
            A reply with a list in the same order: a `Handle`, or the `Duplicate` error if its id or key is taken.

        Raises:
            NotFound: A definition is not known. Nothing was started.
            InvalidInput: An argument is malformed. Nothing was started.

        Example:
            await app.start_many([(checkout, {"order": 1}), Start(checkout, {"order": 2}, priority=5)])
        """
        wanted = starts_of(starts)
        items = [self._starts.build(one.definition, one.input, one.options) for one in wanted]
        request = StartInstances(items=items)
        definitions = (one.definition for one in wanted)
        return self._ask_start(
            definitions, request, lambda answers: [self._handle_or_duplicate(answer) for answer in answers]
        )

    @overload
    def signal_with_start(
        self,
        definition: Workflow[..., R],
        correlation_key: str,
        name: str,
        payload: Any = None,
        *,
        input: Any = None,
        dedup_key: str | None = None,
    ) -> Reply[Handle[R]]: ...
    @overload
    def signal_with_start(
        self,
        definition: type[Machine] | Job | Dag | str,
        correlation_key: str,
        name: str,
        payload: Any = None,
        *,
        input: Any = None,
        dedup_key: str | None = None,
    ) -> Reply[Handle[Any]]: ...
    def signal_with_start(
        self,
        definition: Definition,
        correlation_key: str,
        name: str,
        payload: Any = None,
        *,
        input: Any = None,
        dedup_key: str | None = None,
    ) -> Reply[Handle[Any]]:
        """Send a signal to the live holder of a key, and start one if there is none; in one commit.

        Args:
            definition: What to start if no live instance holds the key.
            correlation_key: The key of the instance.
            name: The name of the signal.
            payload: Any JSON value.
            input: The input of the instance, if it is started.
            dedup_key: A key by which a repeated signal is recognised.

        Returns:
            A reply with the `Handle` of the instance that received the signal.

        Raises:
            NotFound: No worker has ever registered the definition.
            InvalidInput: An argument is malformed.

        Example:
            await app.signal_with_start(cart, "cart:7", "add", {"item": "tea"})
        """
        request = SignalWithStart(
            item=self._starts.build(
                definition, input, {"correlation_key": check_name(correlation_key, "correlation key")}
            ),
            name=check_name(name, "signal name"),
            payload=json.dump(payload, limit=self._max_payload),
            dedup_key=optional_name(dedup_key, "dedup key"),
        )
        return self._ask_start([definition], request, self._handle)

    def _ask_start(self, definitions: Iterable[Definition], request: Request, convert: Callable[[Any], T]) -> Reply[T]:
        """Queue a start, unless a job has an unregistered gate. The gates of other processes are in the store."""
        if not self._jobs:
            return self._ask(request, convert)
        jobs = [job for job in map(self._starts.job, definitions) if job is not None]
        lanes = self._registry.lanes()
        unsure = {job: gates for job in jobs if (gates := [g for g in gates_of(job) if gate_lane(g) not in lanes])}
        if not unsure:
            return self._ask(request, convert)

        async def checked(store: Store) -> T:
            for job, gates in unsure.items():
                if unknown := await self._sources.unknown_gates(gates):
                    raise unknown_gates(job, unknown)
            asked: Reply[T] = self._ask(request, convert)
            return await asked

        return self._read(checked)

    def _handle_or_duplicate(self, answer: Any) -> Handle[Any] | Duplicate:
        return answer if isinstance(answer, Duplicate) else self._handle(_raise(answer))


def _raise(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer
