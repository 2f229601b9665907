"""What a step returns: Next, Retry, Await, Spawn, Done or Stop.

A closed union, checked where it is made: a negative delay or an empty name raises in the step that
wrote it, with a reason, and never reaches the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from hark.model.errors import InvalidInput
from hark.model.names import check_name, micros, moment

Duration = int | float | timedelta
Step = str | Callable[..., Any]


class _Keep:
    """Left out: keep what is there. (None is a value.)"""

    def __repr__(self) -> str:
        return "…"


KEEP: Final = _Keep()


class Broadcast:
    """A name that only a broadcast answers: `Await(Broadcast("market-open"), then=…)`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = check_name(name, "broadcast name")

    def __repr__(self) -> str:
        return f"Broadcast({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Broadcast) and other.name == self.name

    def __hash__(self) -> int:
        return hash(("broadcast", self.name))


def step_name(step: Step, what: str) -> str:
    """A step by its method or its name."""
    named = getattr(step, "__hark_step__", None)
    if named is not None:
        return str(named)
    if not isinstance(step, str):
        raise InvalidInput(f"{what} takes a step method or its name, not {step!r}. Is @step missing on it?")
    return check_name(step, "step name")


class Next:
    """Go to another step at once."""

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
        self.step = step_name(step, "Next")
        self.state = state
        self.rate_limit = rate_limit
        self.weight = weight
        self.concurrency_key = concurrency_key


class Retry:
    """Run the same step again after a delay; `attempt` grows by one. The policy is yours."""

    __slots__ = ("delay", "state")

    def __init__(self, delay: Duration = 0, state: Any = KEEP) -> None:
        self.delay = micros(delay, "Retry delay", zero=True)
        self.state = state


class Await:
    """Park until a signal with one of these names is there, or the time is up."""

    __slots__ = ("deadline", "names", "state", "then", "timeout")

    def __init__(
        self,
        *names: str | Broadcast,
        then: Step,
        state: Any = KEEP,
        timeout: Duration | None = None,
        deadline: datetime | None = None,
    ) -> None:
        self.names = waited_names(names)
        self.then = step_name(then, "Await(then=…)")
        self.state = state
        self.timeout = None if timeout is None else micros(timeout, "Await timeout", zero=False)
        self.deadline = None if deadline is None else moment(deadline, "Await deadline")
        if not names and timeout is None and deadline is None:
            raise InvalidInput("Await() would wait for nothing, forever. Give it a name, a timeout= or a deadline=.")


def waited_names(names: Iterable[str | Broadcast]) -> tuple[tuple[Literal["signal", "broadcast"], str], ...]:
    """What is waited for, as (kind, name), each once."""
    kinds: list[tuple[Literal["signal", "broadcast"], str]] = []
    for name in names:
        if isinstance(name, Broadcast):
            kinds.append(("broadcast", name.name))
        else:
            kinds.append(("signal", check_name(name, "signal name")))
    return tuple(dict.fromkeys(kinds))


class Child:
    """One child of a Spawn: a definition, its input and the options of `start`."""

    __slots__ = ("definition", "input", "options")

    def __init__(self, definition: Any, input: Any = None, **options: Any) -> None:
        self.definition = definition
        self.input = input
        self.options = options


class Spawn:
    """Start children and park until all of them (or `join` of them) have ended."""

    __slots__ = ("children", "join", "state", "then")

    def __init__(
        self, children: Iterable[Child], then: Step, state: Any = KEEP, join: int | Literal["all"] = "all"
    ) -> None:
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
    """The end: `done`, with a result."""

    __slots__ = ("result", "state")

    def __init__(self, result: Any = None, state: Any = KEEP) -> None:
        self.result = result
        self.state = state


class Stop:
    """The end: `failed`, with a reason (text or an exception)."""

    __slots__ = ("reason", "state")

    def __init__(self, reason: Any, state: Any = KEEP) -> None:
        self.reason = reason
        self.state = state


Outcome = Next | Retry | Await | Spawn | Done | Stop
