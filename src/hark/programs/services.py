"""The services of the worker for interpreters, and the codec of the input."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from hark.model.activation import Arrived, Claim
from hark.model.failures import Failure
from hark.programs.machines.steps import StepServices


class InboxListener(Protocol):
    """Notifies an executing activation of new rows in its inbox.

    Attributes:
        seen: Rows of the inbox up to this seq need no notification.
    """

    seen: int

    def is_notified(self) -> bool: ...
    async def wait(self) -> None:
        """Wait until the listener is notified."""

    def reset(self, seen: int) -> None:
        """Forget earlier notifications. Called before the inbox is read; `seen` as above."""

    def notify(self) -> None:
        """End the `wait`, the present one or the next."""

    def close(self) -> None: ...


class RunTracing(Protocol):
    def run(self, claim: Claim, label: str, attempt: int) -> AbstractContextManager[Callable[[Failure], None]]:
        """A span around one attempt of a run or an undo; the function it gives is called if the attempt fails."""


class FunctionServices(StepServices, Protocol):
    """The services of the worker for a durable function, in addition to StepServices."""

    running_session: Any  # (session,) while its code runs on the event loop; the watchdog reads it
    current_thread: Callable[[], int]  # the number of the thread that calls it

    @property
    def tracing(self) -> RunTracing | None:
        """The tracing of runs; None unless a tracer provider is configured."""

    @property
    def link(self) -> Callable[[str, str, int | None], str]:
        """The signed link to an awakeable, from its id, its nonce and its deadline."""

    def micros(self) -> int:
        """The time of the database, in µs."""

    def watch(self) -> None:
        """Start the watchdog of this thread's event loop, if it is not running."""

    def listen(self, id: str, take: Callable[[Arrived], bool] | None = None) -> InboxListener:
        """A listener to the inbox of this instance. `take` is given the rows that a turn of this process has added to
        the inbox of a task; if it refuses them, with False, the listener is notified, as without it."""


class InputCodec(Protocol):
    """Checks the input of a new instance and writes it as the text of its state.

    Machines use `json.Codec`, durable functions `ArgumentsCodec` (programs/functions/workflow.py).
    """

    def prepare(self) -> Any:
        """Resolve type hints; raises InvalidDefinition when that is not possible."""

    def build(self, value: object = None, *, limit: int | None = None, what: str = "input") -> Any:
        """The checked input; raises InvalidInput when it does not match the definition."""

    def dump(self, value: Any, limit: int | None = None) -> str:
        """The value that `build` returned, as JSON text."""
