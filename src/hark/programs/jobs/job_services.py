"""The services of the worker for the interpreter of jobs and the programs of tasks. The worker implements them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from hark.model.lingering import Lingering
from hark.model.notes import AnyNote
from hark.model.values import Delivery
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.services import FunctionServices

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class TaskOutput(NamedTuple):
    """The row of a task or of a called process: its status as stored, its state, its output and error. JSON as text."""

    id: str
    status: str
    state: str
    result: str | None
    error: str | None


class TaskReply(Protocol[T_co]):
    """The result of a call: `await` it, or call `.result()` in a thread."""

    def __await__(self) -> Generator[Any, None, T_co]: ...
    def result(self, timeout: float | None = None) -> T_co: ...


class RunningHandler(Protocol):
    """A handler that runs, as the worker sees it when it stops."""

    def suspend_if_waiting(self) -> None:
        """Park its task if it waits for a signal or an answer."""


class JobServices(FunctionServices, Protocol):
    """The services of the worker for the lane `job`, in addition to FunctionServices."""

    def job_graph(self, definition: str, version: int) -> Awaitable[JobGraph]:
        """The spec of a job, with its indexes: from the store on first use, then from memory."""

    def outputs(self, ids: Iterable[str]) -> Awaitable[dict[str, TaskOutput]]:
        """The rows of these tasks, in one read. A task that never started has none."""

    def inputs(self, job: str) -> Awaitable[str]:
        """The inputs of a job as JSON text, with the defaults of the spec."""

    def variables(self, process: str, count: int, since: int) -> Awaitable[Mapping[str, Any]]:
        """The variables that a process has once its epoch has this count; it had not yet at `since`, µs. They
        are not to be changed: its tasks share them."""

    def unknown_gates(self, names: Iterable[str]) -> Awaitable[list[str]]:
        """The gates that neither this process nor a worker on this store has registered."""

    def note(self, note: AnyNote) -> TaskReply[Any]:
        """Submit a note of an executing task (model/notes.py). Its result is there after the commit."""


class TaskServices(JobServices, Protocol):
    """The services of the worker for the handler of a task, in addition to JobServices."""

    linger: float
    """Seconds that a handler may wait for a signal in its slot, before its task parks."""
    max_signal_wait: float
    """The longest timeout of `wait_for_signal`, in seconds."""
    running: set[RunningHandler]
    """The handlers that run."""
    stopping: bool
    """True if the worker stops: a handler that begins to wait parks its task at once."""

    def begin_linger(self, handler: Lingering) -> None:
        """Note that a handler begins to wait in its slot: it is asked to leave when other work wants the slot."""

    def end_linger(self, handler: Lingering, *, leaves: bool, was_asked: bool) -> None:
        """Note that it goes on, or has ended. `leaves`: its slot comes free with the park of its task. `was_asked`: it
        has been asked to leave."""

    def begin(self, work: Coroutine[Any, Any, T], *, given_up: Callable[[], None] | None = None) -> TaskReply[T]:
        """Run a coroutine on the worker's loop. From any thread. `given_up` marks a wait: it ends when the asyncio task
        that awaits the reply is cancelled, and this is called."""

    def call_handler(self, handler: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Call a handler, or a function that it runs, that is not async in a thread."""

    def done(self) -> TaskReply[None]:
        """Return the result of a call that need not be waited for."""

    def stream_delay(self, size: int) -> float:
        """Seconds to wait after a note with this many chunks, so that others have room for their work."""

    def signal(self, target: str, name: str, payload: str, dedup_key: str | None) -> TaskReply[Delivery]:
        """Send a signal, in a commit of its own. From any thread."""
