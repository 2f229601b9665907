"""The outcomes that a step returns: Next, Retry, Await, Spawn, Done or Stop.

A closed union, checked when it is created: a negative delay or an empty name raises in the step that wrote
it, with a reason, and never reaches the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, Unpack

from hark.model.errors import InvalidInput
from hark.model.names import check_name, micros, moment

Duration = int | float | timedelta
Step = str | Callable[..., Any]


class _Keep:
    """The default of an option that was left out: keep the present value. (None is a value.)"""

    def __repr__(self) -> str:
        return "…"


KEEP: Final = _Keep()


class StartOptions(TypedDict, total=False):
    """The options of `Hark.start`, for `Child`, `Start`, `ctx.start` and `ctx.call`; see `help(Hark.start)`."""

    id: str | None
    correlation_key: str | None
    correlation_scope: Literal["live", "forever"]
    step: Step | None
    queue: str | None
    priority: int
    delay: Duration | None
    at: datetime | None
    concurrency_key: str | None
    rate_limit: str | tuple[str, str] | None
    weight: float
    version: int | None
    tags: Mapping[str, str] | None


class Broadcast:
    """The name of a broadcast, where the name of a signal could stand: `Await(Broadcast("market-open"), then=…)`.

    Attributes:
        name: The name. A signal with the same name does not match it.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Create it; raises InvalidInput if the name is empty or over 255 bytes."""
        self.name = check_name(name, "broadcast name")

    def __repr__(self) -> str:
        return f"Broadcast({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Broadcast) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("broadcast", self.name))


def step_name(step: Step, what: str) -> str:
    """The name of a step, given as its method or its name."""
    named = getattr(step, "__hark_step__", None)
    if named is not None:
        return str(named)
    if not isinstance(step, str):
        raise InvalidInput(f"{what} takes a step method or its name, not {step!r}. Is @step missing on it?")
    return check_name(step, "step name")


class Next:
    """Continue with another step. It usually runs immediately, on the same worker.

    Signals in `ctx.awaited` are consumed.

    Example:
        return Next(self.charge, rate_limit="stripe")
    """

    __slots__ = ("concurrency_key", "rate_limit", "state", "step", "weight")

    def __init__(
        self,
        step: Step,
        state: Any = KEEP,
        *,
        rate_limit: str | tuple[str, str] | None = None,
        weight: float = 1,
        concurrency_key: str | _Keep | None = KEEP,
    ) -> None:
        """Create the outcome.

        Args:
            step: The step method, or its name.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.
            rate_limit: The name of a configured rate limit, or (name, partition). The step waits for its tokens.
            weight: How many tokens it takes.
            concurrency_key: The concurrency key from here on; None removes it. If left out, it stays.

        Raises:
            InvalidInput: `step` is neither a step method nor a name.
        """
        self.step = step_name(step, "Next")
        self.state = state
        self.rate_limit = rate_limit
        self.weight = weight
        self.concurrency_key = concurrency_key


class Retry:
    """Run the same step again after a delay. `ctx.attempt` grows by one; how often to retry is up to the step.

    Signals stay in the inbox: the next attempt sees the same ones.

    Example:
        return Retry(2.0**ctx.attempt) if ctx.attempt < 5 else Stop("the bank does not answer")
    """

    __slots__ = ("delay", "state")

    def __init__(self, delay: Duration = 0, state: Any = KEEP) -> None:
        """Create the outcome.

        Args:
            delay: Seconds or timedelta before the next attempt.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.

        Raises:
            InvalidInput: The delay is negative, not a number or over 100 years.
        """
        self.delay = micros(delay, "Retry delay", zero=True)
        self.state = state


class Await:
    """Park until a signal with one of these names arrives, or the time is up.

    A parked instance holds no slot, thread or memory. If a matching signal is already in the inbox, and was not yet in
    `ctx.awaited` of this step, the instance continues immediately. In the next step, `ctx.awaited` has the matching
    signals and `ctx.timed_out` says whether the time was up.

    Example:
        return Await("paid", Broadcast("market-closed"), then=self.ship, timeout=3600)
    """

    __slots__ = ("deadline", "names", "state", "then", "timeout")

    def __init__(
        self,
        *names: str | Broadcast | Collection[str | Broadcast],
        then: Step,
        state: Any = KEEP,
        timeout: Duration | None = None,
        deadline: datetime | None = None,
    ) -> None:
        """Create the outcome. With both `timeout` and `deadline`, the earlier one counts.

        Args:
            *names: Names of signals; `Broadcast("name")` waits for a broadcast. One list, tuple or set of names is
                accepted too. Without a name it is a timer.
            then: The step to continue with: its method or its name.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.
            timeout: Seconds or timedelta, above zero, counted from the commit.
            deadline: A timezone-aware datetime; one in the past is due immediately.

        Raises:
            InvalidInput: There is neither a name nor a timeout nor a deadline, or an argument is malformed.
        """
        self.names = waited_names(names)
        self.then = step_name(then, "Await(then=…)")
        self.state = state
        self.timeout = None if timeout is None else micros(timeout, "Await timeout", zero=False)
        self.deadline = None if deadline is None else moment(deadline, "Await deadline")
        if not self.names and timeout is None and deadline is None:
            raise InvalidInput(
                "Await() without a name, timeout= or deadline= would wait forever. Give it at least one of them."
            )


def waited_names(
    names: Sequence[str | Broadcast | Collection[str | Broadcast]],
) -> tuple[tuple[Literal["signal", "broadcast"], str], ...]:
    """The names to wait for as (kind, name), without repetitions. They may be given as one list, tuple or set."""
    given: Iterable[Any] = names
    if len(names) == 1 and isinstance(names[0], list | tuple | set | frozenset):
        given = names[0]
    kinds: list[tuple[Literal["signal", "broadcast"], str]] = []
    for name in given:
        if isinstance(name, Broadcast):
            kinds.append(("broadcast", name.name))
        elif isinstance(name, list | tuple | set | frozenset):
            raise InvalidInput(
                'Give the names of signals as "a", "b" or as one list, ["a", "b"], not as several lists.'
            )
        else:
            kinds.append(("signal", check_name(name, "signal name")))
    if isinstance(given, set | frozenset):
        kinds.sort()  # the order of a set changes from process to process, and a replay compares the names
    return tuple(dict.fromkeys(kinds))


class Child:
    """A child of a `Spawn`.

    Attributes:
        definition: A Machine class, a `@workflow` function, or the name of one.
        input: Its input.
        options: The options of `Hark.start`.

    Example:
        Child(Parcel, {"order": 42}, correlation_key="parcel:42")
    """

    __slots__ = ("definition", "input", "options")

    def __init__(self, definition: Any, input: Any = None, **options: Unpack[StartOptions]) -> None:
        """Describe a child. Its input and options are checked when the step returns."""
        self.definition = definition
        self.input = input
        self.options: dict[str, Any] = dict(options)


class Spawn:
    """Start children, and park until all of them, or `join` of them, have ended.

    The next step finds all of them in `ctx.children`, finished or not. A child that cannot start counts as failed.
    Children that have not finished after `join` live on.

    Example:
        return Spawn([Child(Parcel, {"item": item}) for item in ctx.state.items], then=self.shipped)
    """

    __slots__ = ("children", "join", "state", "then")

    def __init__(
        self, children: Iterable[Child], then: Step, state: Any = KEEP, join: int | Literal["all"] = "all"
    ) -> None:
        """Create the outcome.

        Args:
            children: The children to start; none at all joins immediately.
            then: The step to continue with: its method or its name.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.
            join: How many children must have ended: a number from 1, or "all".

        Raises:
            InvalidInput: `children` contains something that is not a Child, or `join` is out of range.
        """
        if not isinstance(children, Iterable):
            raise InvalidInput(f"Spawn takes a list of Child(definition, input), not {children!r}.")
        self.children = tuple(children)
        for child in self.children:
            if not isinstance(child, Child):
                raise InvalidInput(f"Spawn takes Child(definition, input), not {child!r}.")
        self.then = step_name(then, "Spawn(then=…)")
        self.state = state
        count = len(self.children)
        if join != "all" and (type(join) is not int or not 1 <= join <= count):
            raise InvalidInput(f"join={join!r} is not possible with {count} children. Use 1…{count}, or 'all'.")
        self.join = count if join == "all" else join


class Done:
    """End the instance with a result; its status becomes `done`.

    Example:
        return Done({"order": ctx.state.order})
    """

    __slots__ = ("result", "state")

    def __init__(self, result: Any = None, state: Any = KEEP) -> None:
        """Create the outcome.

        Args:
            result: A JSON value, dataclass, msgspec Struct or pydantic model: what `handle.result()` returns.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.
        """
        self.result = result
        self.state = state


class Stop:
    """End the instance with a reason; its status becomes `failed`. `app.retry` runs the step again.

    Example:
        return Stop("the payment did not arrive")
    """

    __slots__ = ("reason", "state")

    def __init__(self, reason: Any, state: Any = KEEP) -> None:
        """Create the outcome.

        Args:
            reason: Text or an exception; it becomes the `error` of the instance.
            state: Replaces `ctx.state`; if left out, `ctx.state` is stored as the step left it.
        """
        self.reason = reason
        self.state = state


Outcome = Next | Retry | Await | Spawn | Done | Stop
"""The type of the outcomes that a step or `handle` may return."""
