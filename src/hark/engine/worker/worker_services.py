"""WorkerServices: gives steps and functions what they use of their process. Implements programs/services.py."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hark.engine.commands.lease_relay import LeaseRelay
from hark.engine.tasks.definition_sources import DefinitionSources
from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply
from hark.engine.worker.handler_support import HandlerSupport
from hark.engine.worker.listeners import Listeners
from hark.engine.worker.watchdog import LoopWatchdog
from hark.kernel.limits import Limits
from hark.kernel.requests import CommitNote
from hark.model.decisions import NewInstance
from hark.model.exits import TaskExited, end_if_forked
from hark.model.failures import error_text
from hark.model.names import check_name, from_micros
from hark.model.notes import AnyNote

if TYPE_CHECKING:
    from hark.engine.observe.tracing import Tracing

_THREADS = 64  # for steps and functions that are not async
_HANDLER_THREADS = 1000  # for handlers that are not async: one that waits holds its thread until its task parks


class WorkerServices(HandlerSupport):
    def __init__(
        self,
        clerk: Clerk,
        limits: Limits,
        max_payload: int,
        new: Callable[[Any, Any, dict[str, Any]], NewInstance],
        link: Callable[[str, str, int | None], str],
        sources: DefinitionSources,
    ) -> None:
        """Take `new`, which makes a start of a definition, an input and options, `link`, which makes the signed address
        of an awakeable, and `sources`, which reads what jobs and processes need."""
        super().__init__(clerk)
        self.max_payload = max_payload
        self.new = new
        self.rate_limit = limits.check
        self.micros = clerk.now
        self._submit = clerk.submit
        self.listeners = Listeners()
        self.lease_relay = LeaseRelay()
        self.listen = self.listeners.listen
        self.running_session: Any = None
        self.current_thread = threading.get_ident
        self.tracing: Tracing | None = None
        self.link = link
        self.job_graph = sources.job_graph
        self.outputs = sources.outputs
        self.inputs = sources.inputs
        self.unknown_gates = sources.unknown_gates
        self.bpmn_graph = sources.bpmn_graph
        self.variables = sources.variables
        self._threads: ThreadPoolExecutor | None = None
        self._handler_threads: ThreadPoolExecutor | None = None
        self._watchdog: LoopWatchdog | None = None

    def now(self) -> datetime:
        return from_micros(self.micros())

    def note(self, note: AnyNote) -> Reply[Any]:
        """Commit what a task does while its handler runs (model/notes.py). From any thread."""
        reply: Reply[Any] = Reply()
        self._submit(CommitNote(note=note), reply)
        return reply

    def watch(self) -> None:
        """Watch this thread, which runs durable functions, from now on."""
        if self._watchdog is None:
            self._watchdog = LoopWatchdog(self, threading.get_ident())

    def concurrency_key(self, key: str | None) -> str | None:
        return None if key is None else check_name(key, "concurrency key")

    def call(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Call a function in a thread, in the context of the caller."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hark-step")
        return _run_in(self._threads, function, args)

    def call_handler(self, handler: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        """Call a handler in a thread, in the context of the caller. The threads are not those of steps."""
        if self._handler_threads is None:
            self._handler_threads = ThreadPoolExecutor(_HANDLER_THREADS, thread_name_prefix="hark-task")
        return _run_in(self._handler_threads, handler, args)

    def close(self) -> None:
        for threads in (self._threads, self._handler_threads):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)
        self._threads = self._handler_threads = None
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None


def _run_in(threads: ThreadPoolExecutor, function: Callable[..., Any], args: tuple[Any, ...]) -> Awaitable[Any]:
    work = functools.partial(contextvars.copy_context().run, _call_for_a_future, os.getpid(), function, *args)
    return asyncio.get_running_loop().run_in_executor(threads, work)


def _call_for_a_future(process: int, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function whose future could not carry these errors: a StopIteration would never end the step, and a
    GeneratorExit would close the coroutine that is to run `handle`. No signal raises an exit in a thread."""
    try:
        return function(*args)
    except (SystemExit, KeyboardInterrupt) as error:
        end_if_forked(process, error)
        raise TaskExited(error_text(error)) from error
    except (StopIteration, GeneratorExit) as error:
        name = getattr(function, "__qualname__", function)
        raise RuntimeError(f"{name} raised {type(error).__name__}") from error
