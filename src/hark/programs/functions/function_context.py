"""FunctionContext: the calls of a durable function. Each gets an entry in the journal; awaiting it gives the result."""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from types import FunctionType
from typing import Any, Literal, Protocol, TypeVar, TypeVarTuple, Unpack, overload

from hark.model import json
from hark.model.decisions import NewAwakeable
from hark.model.errors import InvalidInput
from hark.model.log import InstanceLog
from hark.model.names import awakeable_id, check_name, from_micros, micros, version_problem
from hark.model.outcomes import Broadcast, Duration, StartOptions, waited_names
from hark.model.retry_policy import RetryPolicy, retry_policy
from hark.model.values import Delivery, Signal
from hark.programs import effects
from hark.programs.awakeable_handle import AwakeableHandle
from hark.programs.functions.branches import First, Gather, Promise, as_promise
from hark.programs.functions.function_session import ContinueAsNew
from hark.programs.functions.operations import (
    AwakeableAnswer,
    ChildCall,
    EffectOperation,
    Operation,
    Run,
    Sleep,
    WaitForSignal,
    checked_kwargs,
    name_of_run,
)
from hark.programs.functions.replay import Replay

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Ts = TypeVarTuple("Ts")

_Any = Awaitable[Any]


class TypedDefinition(Protocol[R_co]):
    """A definition whose result type is known to type checkers: what `@workflow` returns."""

    @property
    def __hark_program__(self) -> Any: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R_co]: ...


class FunctionContext:
    """The context passed to a durable function: the only way it may wait, act or read the time.

    Every call gets an entry in the journal of the instance, so a replay gives the code the same results in the same
    order. Most methods return a promise: `await` it, or pass it to `gather` or `first`. When the function returns,
    effects (`signal`, `broadcast`, `start`, `resolve`, `reject`) happen even if they were not awaited; of the other
    operations that are still open, runs and awakeables are cancelled, waits end, and children that were started keep
    running. A run that was never awaited and is not done, and a child that was never awaited and not started, fail the
    function with InvalidOutcome, which names the line; other operations that were never awaited are a warning in the
    log.

    Only the code of the function itself may use the context. Using it in a function given to `run`, in another
    thread or after the function ended raises InvalidOutcome.

    Attributes:
        id: The id of the instance.
        correlation_key: The correlation key the instance was started with, or None.
        scheduled_at: The tick of the schedule that started the instance, or the time of the trigger; else None.

    Example:
        @workflow
        async def deploy(ctx: FunctionContext, ref: str) -> str:
            image = await ctx.run(build, ref)
            approval = await ctx.awakeable(timeout=7200, title=f"Deploy {ref}?", schema=Verdict)
            await ctx.run(ask_reviewer, approval.url)
            verdict = await approval
            return await ctx.run(release, image) if verdict.approved else "not deployed"
    """

    __slots__ = ("_session", "correlation_key", "id", "scheduled_at")

    def __init__(self, session: Replay) -> None:
        self._session = session
        self.id = session.claim.id
        self.correlation_key = session.claim.correlation_key
        tick = session.claim.scheduled_at
        self.scheduled_at = None if tick is None else from_micros(tick)

    # -- functions and effects --------------------------------------------------------------------

    # The arguments of `function` are checked by their positions; with kwargs= only its result type is known.
    @overload
    def run(
        self,
        function: Callable[[*Ts], Awaitable[R]],
        *args: *Ts,
        kwargs: None = None,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> Promise[R]: ...
    @overload
    def run(
        self,
        function: Callable[[*Ts], R],
        *args: *Ts,
        kwargs: None = None,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> Promise[R]: ...
    @overload
    def run(
        self,
        function: Callable[..., Awaitable[R]],
        *args: Any,
        kwargs: Mapping[str, Any],
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> Promise[R]: ...
    @overload
    def run(
        self,
        function: Callable[..., R],
        *args: Any,
        kwargs: Mapping[str, Any],
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        undo: Callable[[R], Any] | None = None,
    ) -> Promise[R]: ...
    def run(  # type: ignore[misc]  # mypy compares *args: Any with *args: *Ts and finds them different
        self,
        function: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        retries: int | RetryPolicy = 0,
        backoff: Duration = 1.0,
        timeout: Duration | None = None,
        undo: Callable[[Any], Any] | None = None,
    ) -> Promise[Any]:
        """Run a function and record its result in the journal; a replay reads the result there.

        An `async def` runs on the worker's event loop, a `def` in a thread. If the process dies while the function
        runs, it runs again: make its side effects idempotent, for example with `ctx.uuid()` as a key.

        Args:
            function: The function to call. It must not use `ctx`.
            *args: Its positional arguments.
            kwargs: Its keyword arguments.
            name: The name in the journal and in `why`; the default is the name of the function.
            retries: How often to call it again when it raises, 0 to 1000; or a RetryPolicy.
            backoff: Seconds or timedelta before the first retry; doubled before each further one. A RetryPolicy has
                a `delay` instead.
            timeout: Seconds or timedelta that one call may take. An `async def` that takes longer is cancelled. A
                `def` cannot be ended: its thread runs to its end, and its result is dropped. Either way the call has
                failed with a TimeoutError, and is retried like any other.
            undo: A function that undoes what this one did; it is called with its result. If the workflow later fails
                or is cancelled, the undos of all runs that have a result are called, the latest first, each recorded
                in the journal and retried as its run. One that fails is recorded as an event, and the others still
                run. A run without a result has nothing to undo: not when it failed, and not when the cancel came
                while it was running.

        Returns:
            A promise of the result. It is JSON, live and on replay alike, read as the type that the function is
            annotated to return: a dataclass, a `datetime`, a `list[Order]`. Without an annotation it is plain JSON.

        Raises:
            RunFailed: When awaited, if the function raised and no retry is left, or its result is not JSON. Its `.type`
                is the name of the error's class, `TimeoutError` after a timeout.
            InvalidInput: `function` is not callable, or an option is malformed.

        Example:
            receipt = await ctx.run(charge, order, retries=3, backoff=2.0, timeout=30, undo=refund)
        """
        # The usual case without a call: a replay does this for every line.
        label = function.__name__ if type(function) is FunctionType and name is None else ""
        run = Run(function, args, label or name_of_run(function, name))
        # Only what differs from the default is checked: the conversions would cost every run.
        if kwargs is not None:
            run.kwargs = checked_kwargs(kwargs)
        if type(retries) is not int or retries or backoff != 1.0:
            run.policy = retry_policy(retries, backoff)
        if timeout is not None:
            run.timeout = micros(timeout, "timeout", zero=False)
        session = self._session
        if undo is not None:
            if not callable(undo):
                raise InvalidInput(f"undo={undo!r}: give a function that takes the result of the run.")
            run.undo = undo
        if not session.read_ahead.expect(run):
            session.ask(run)
        if undo is not None:
            session.undoable[run.entry] = run
        return run

    def signal(self, target: Any, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Promise[Delivery]:
        """Send a signal to an instance, exactly once.

        Args:
            target: The id or correlation key of the instance, or a Handle.
            name: The name of the signal.
            payload: A JSON value.
            dedup_key: If the target has already received a signal with this key, this one is dropped.

        Returns:
            A promise of a Delivery; its status is "woke", "stored" or "duplicate".

        Raises:
            NoTarget: When awaited, if the target does not exist or has finished.
            InvalidInput: An argument is malformed.
        """
        effect = effects.send_signal(target, name, payload, dedup_key, self._session.services.max_payload)
        return self._session.ask(EffectOperation("signal", name, effect))

    def broadcast(self, name: str, payload: Any = None, *, dedup_key: str | None = None) -> Promise[int]:
        """Send a broadcast to all current subscribers, exactly once.

        Args:
            name: The name of the broadcast.
            payload: A JSON value.
            dedup_key: A broadcast with a key that was already used is not sent again.

        Returns:
            A promise of the number of subscribers reached.

        Raises:
            InvalidInput: An argument is malformed.
        """
        effect = effects.send_broadcast(name, payload, dedup_key, self._session.services.max_payload)
        return self._session.ask(EffectOperation("broadcast", name, effect))

    def start(self, definition: Any, input: Any = None, **options: Unpack[StartOptions]) -> Promise[str]:
        """Start an independent instance, exactly once. To wait for its result, use `call`.

        Args:
            definition: A Machine class, a `@workflow` function, or the name of one.
            input: Its input.
            **options: The options of `Hark.start`.

        Returns:
            A promise of the id of the new instance.

        Raises:
            Duplicate: When awaited, if the id or correlation key is taken.
            NotFound: When awaited, if the store does not know the definition.
            InvalidInput: The input does not match the definition, or an option is malformed.
        """
        item = self._session.services.new(definition, input, dict(options))
        return self._session.ask(EffectOperation("start", item.definition, item))

    @overload
    def call(
        self, definition: TypedDefinition[R], input: Any = None, **options: Unpack[StartOptions]
    ) -> Promise[R]: ...
    @overload
    def call(self, definition: str | type[Any], input: Any = None, **options: Unpack[StartOptions]) -> Promise[Any]: ...
    def call(self, definition: Any, input: Any = None, **options: Unpack[StartOptions]) -> Promise[Any]:
        """Start a child instance and wait for its result.

        The child is cancelled when the function is cancelled, or when `first` withdraws the call.

        Args:
            definition: A Machine class, a `@workflow` function, or the name of one.
            input: Its input.
            **options: The options of `Hark.start`.

        Returns:
            A promise of the result of the child, as JSON.

        Raises:
            CallFailed: When awaited, if the child failed, was cancelled or could not start.
            InvalidInput: The input does not match the definition, or an option is malformed.

        Example:
            invoice = await ctx.call(create_invoice, {"order": order_id})
        """
        return self._session.ask(ChildCall(self._session.services.new(definition, input, dict(options))))

    def resolve(self, awakeable_id: str, payload: Any = None, *, by: str | None = None) -> Promise[None]:
        """Resolve an awakeable of any instance.

        Args:
            awakeable_id: The id of the awakeable.
            payload: The answer, a JSON value that matches the schema of the awakeable.
            by: The answerer's name; the default is the id of this instance.

        Returns:
            A promise of None.

        Raises:
            NotFound: When awaited, if there is no such awakeable.
            AlreadySettled: When awaited, if it is settled.
            InvalidAnswer: When awaited, if the payload does not match its schema.
            InvalidInput: An argument is malformed.
        """
        max_payload = self._session.services.max_payload
        settle = effects.resolve(awakeable_id, payload, self.id if by is None else by, max_payload)
        return self._session.ask(EffectOperation("resolve", settle.awakeable, settle))

    def reject(self, awakeable_id: str, error: str = "rejected", *, by: str | None = None) -> Promise[None]:
        """Reject an awakeable of any instance.

        Args:
            awakeable_id: The id of the awakeable.
            error: The reason, as text.
            by: The answerer's name; the default is the id of this instance.

        Returns:
            A promise of None.

        Raises:
            NotFound: When awaited, if there is no such awakeable.
            AlreadySettled: When awaited, if it is settled.
            InvalidInput: An argument is malformed.
        """
        settle = effects.reject(awakeable_id, error, self.id if by is None else by)
        return self._session.ask(EffectOperation("reject", settle.awakeable, settle))

    def patched(self, name: str) -> bool:
        """Guard a change of the code, so that instances of the earlier code continue as they began.

        Each call decides for itself, also in a loop, and the answer is the same in every replay: an answer of True is
        recorded in the journal. Once `hark check` reports the patch as unneeded, no live instance needs the branch of
        the earlier code: remove it together with the call.

        Args:
            name: The name of the change. One name belongs to one call in the code.

        Returns:
            True if the code comes here for the first time, False if an earlier version has been here before.

        Raises:
            InvalidInput: The name is empty or over 255 bytes.

        Example:
            if ctx.patched("check stock"):
                await ctx.run(check_stock, order)
            await ctx.run(charge, order)
        """
        return self._session.patched(check_name(name, "patch name"))

    # -- waiting ----------------------------------------------------------------------------------

    @overload
    async def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        *,
        schema: type[T],
        assignees: Iterable[str] | None = None,
    ) -> AwakeableHandle[T]: ...
    @overload
    async def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        assignees: Iterable[str] | None = None,
    ) -> AwakeableHandle[Any]: ...
    async def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        assignees: Iterable[str] | None = None,
    ) -> AwakeableHandle[Any]:
        """Create an awakeable: a question to a person or program outside, with an id and a link for the answer.

        Args:
            timeout: Seconds or timedelta until it times out; without it, it stays open.
            title: One line for the answerer.
            description: More text for the answerer.
            schema: What the answer must look like: a dataclass, msgspec Struct, pydantic model or another type, or a
                JSON Schema as a dict. Without it, any JSON is accepted.
            assignees: Names of those who may answer; None or empty means anyone with access.

        Returns:
            An AwakeableHandle with `.id` and `.url`. Await the handle to get the answer: an object of the type given
            as `schema`, otherwise JSON. Awaiting it raises AwakeableRejected or AwakeableTimedOut.

        Raises:
            InvalidInput: The schema cannot be used, or another argument is malformed.

        Example:
            approval = await ctx.awakeable(timeout=7200, title="Refund 200 EUR?", schema=Verdict)
            await ctx.run(send_mail, approval.url)
            verdict = await approval
        """
        session = self._session
        fields, decode = effects.question(timeout, title, description, schema, assignees)
        asked = Operation("awakeable")
        nonce = json.load(await session.ask_known(asked, lambda: json.dump(secrets.token_urlsafe(12))))
        id = awakeable_id(self.id, asked.entry)
        answer = AwakeableAnswer(id, decode, fields["title"])
        answer.new = NewAwakeable(id=id, entry_index=asked.entry, place=str(asked.entry), nonce=nonce, **fields)
        answer.asked = asked.asked
        session.open_answer(answer, asked.entry)
        deadline = session.awakeable_deadline(asked.entry, fields["timeout"])
        return AwakeableHandle(id, lambda: session.services.link(id, nonce, deadline), answer)

    def wait_for_signal(
        self, *names: str | Broadcast | Collection[str | Broadcast], timeout: Duration | None = None
    ) -> Promise[Signal]:
        """Wait for the next signal with one of these names. A signal that is already in the inbox counts.

        Args:
            *names: Names of signals; `Broadcast("name")` waits for a broadcast. One list, tuple or set of names is
                accepted too.
            timeout: Seconds or timedelta to wait at most; without it, forever.

        Returns:
            A promise of the Signal.

        Raises:
            SignalTimeout: When awaited, if no signal arrives in time.
            InvalidInput: No name is given, or an argument is malformed.

        Example:
            paid = await ctx.wait_for_signal("paid", "cancelled", timeout=86400)
        """
        wanted = waited_names(names)
        if not wanted:
            raise InvalidInput("wait_for_signal() without a name would wait forever. Give it at least one name.")
        timeout_micros = None if timeout is None else micros(timeout, "timeout", zero=False)
        return self._session.ask(WaitForSignal(wanted, timeout_micros))

    def sleep(self, seconds: Duration) -> Promise[None]:
        """Sleep without a slot, a thread or memory; for seconds or for years.

        Args:
            seconds: Seconds or timedelta.

        Returns:
            A promise of None.

        Raises:
            InvalidInput: The duration is negative, not a number or over 100 years.
        """
        return self._session.ask(Sleep(micros(seconds, "sleep", zero=True)))

    # Operations of different types must give Any: with their common base (`object`) or union, correct code such as
    # `image, report = await ctx.gather(…)` would be refused. Promise[R] does not match different types, because its
    # type variable is invariant; for coroutines, which are covariant, there is an overload of a few arguments.
    @overload
    def gather(self, *awaitables: Promise[R], return_exceptions: Literal[False] = False) -> Promise[list[R]]: ...
    @overload
    def gather(
        self, *awaitables: AwakeableHandle[R], return_exceptions: Literal[False] = False
    ) -> Promise[list[R]]: ...
    @overload
    def gather(
        self,
        a: _Any,
        b: _Any,
        c: _Any = ...,
        d: _Any = ...,
        e: _Any = ...,
        /,
        *,
        return_exceptions: Literal[False] = False,
    ) -> Promise[list[Any]]: ...
    @overload
    def gather(
        self, *awaitables: Coroutine[Any, Any, R], return_exceptions: Literal[False] = False
    ) -> Promise[list[R]]: ...
    @overload
    def gather(self, *awaitables: Promise[R], return_exceptions: bool) -> Promise[list[R | Exception]]: ...
    @overload
    def gather(self, *awaitables: Awaitable[Any], return_exceptions: bool = False) -> Promise[list[Any]]: ...
    def gather(self, *awaitables: Any, return_exceptions: bool = False) -> Promise[Any]:
        """Wait for all of several operations, which proceed at the same time.

        Args:
            *awaitables: What methods of `ctx` return, awakeable handles, or coroutines that await these.
            return_exceptions: Whether to wait for all of them also if one fails. Its exception is then in the list,
                in the place of its result, and nothing is withdrawn.

        Returns:
            A promise of the list of results, in the order of the arguments. The first error fails it and withdraws
            the other operations, unless `return_exceptions` is True: a run is cancelled, a child too, an awakeable
            becomes CANCELLED.

        Raises:
            InvalidOutcome: An argument is something else that can be awaited, such as `asyncio.sleep(1)`.

        Example:
            image, report = await ctx.gather(ctx.run(build, ref), ctx.run(test, ref))
        """
        return Gather([as_promise(one, self._session.branch) for one in awaitables], return_exceptions)

    @overload
    def first(self, *awaitables: Promise[R]) -> Promise[tuple[int, R]]: ...
    @overload
    def first(self, *awaitables: AwakeableHandle[R]) -> Promise[tuple[int, R]]: ...
    @overload
    def first(self, a: _Any, b: _Any, c: _Any = ..., d: _Any = ..., e: _Any = ..., /) -> Promise[tuple[int, Any]]: ...
    @overload
    def first(self, *awaitables: Coroutine[Any, Any, R]) -> Promise[tuple[int, R]]: ...
    @overload
    def first(self, *awaitables: Awaitable[Any]) -> Promise[tuple[int, Any]]: ...
    def first(self, *awaitables: Any) -> Promise[Any]:
        """Wait for the first of several operations and withdraw the others.

        A withdrawn run or child is cancelled, a withdrawn awakeable becomes CANCELLED, a withdrawn wait leaves its
        signals in the inbox.

        Args:
            *awaitables: What methods of `ctx` return, awakeable handles, or coroutines that await these.

        Returns:
            A promise of (index, value): the position of the first one among the arguments, and its result. If the
            first one ends with an error, awaiting raises that error.

        Raises:
            InvalidInput: There are no arguments.
            InvalidOutcome: An argument is something else that can be awaited, such as `asyncio.sleep(1)`.

        Example:
            index, value = await ctx.first(ctx.wait_for_signal("paid"), ctx.sleep(86400))
            paid = index == 0
        """
        if not awaitables:
            raise InvalidInput("first() without arguments would wait forever. Give it at least one operation.")
        return First([as_promise(one, self._session.branch) for one in awaitables])

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger `hark.workflow`, silent during a replay: a line is not logged again when the function resumes.

        Its records have the attributes `instance`, `definition`, `step` and `attempt`. After a crash, lines since the
        last commit are logged again. In functions given to `run`, use ordinary loggers.
        """
        return InstanceLog(self._session.claim, self._session.is_silent)

    # -- values that are the same in every replay -------------------------------------------------

    async def now(self) -> datetime:
        """The time of the database, the same in every replay.

        Returns:
            A timezone-aware datetime in UTC.
        """
        session = self._session
        return from_micros(int(await session.ask_known(Operation("now"), lambda: str(session.services.micros()))))

    def random(self) -> float:
        """A pseudo-random number, the same in every replay. A plain call: nothing to await.

        Returns:
            A float from 0 up to, but not including, 1.
        """
        self._session.check_caller()
        return self._session.random.random()

    def uuid(self) -> uuid.UUID:
        """A random UUID, the same in every replay: an idempotency key. A plain call: nothing to await.

        Returns:
            A UUID of version 4.
        """
        self._session.check_caller()
        return uuid.UUID(int=self._session.random.getrandbits(128), version=4)

    def progress(self, value: Any) -> None:
        """Set `Instance.progress`, for people and queries, with the next commit. A plain call: nothing to await.

        It is committed before the next run starts, when the function parks, or when it ends. In a replay the call does
        nothing: what it said then is stored.

        Args:
            value: A JSON value of up to 16 KiB.

        Raises:
            InvalidInput: The value is not JSON.
            PayloadTooLarge: It is over 16 KiB.

        Example:
            ctx.progress({"sent": 120, "of": 500})
        """
        self._session.set_progress(effects.progress(value))

    def continue_as_new(self, input: Any = None, *, version: int | Literal["newest", "same"] = "newest") -> Any:
        """Begin again with new input and an empty journal: `return ctx.continue_as_new(input)`.

        For loops without an end, whose journal would otherwise grow forever. The instance keeps its id and key, and
        its inbox keeps the signals that its code has not taken yet. Open operations end as when the function returns:
        effects happen, runs are cancelled, waits are disarmed, awakeables that are still pending become CANCELLED.
        Children that have started keep running, without an effect on the next visit. What this visit could undo is
        done: a later failure or cancel undoes runs of its own visit only.

        The call alone does nothing: without `return`, the function continues and ends as done.

        Args:
            input: The input of the next visit, as for `Hark.start`.
            version: The version of the definition that goes on: "newest", as a start by name chooses it; "same"; or its
                number.

        Returns:
            The value that the function must return. It is typed as Any, so that it fits every result type.

        Raises:
            InvalidInput: `version` is malformed. A version that was never registered fails the function.

        Example:
            return ctx.continue_as_new({"page": page + 1})
        """
        if version != "newest" and version != "same" and (problem := version_problem(version)):
            raise InvalidInput(f"{problem}, or 'newest', or 'same'.")
        return ContinueAsNew(input, None if version == "same" else version)
