"""Run the user's functions: one at a time in the activation, or several in asyncio tasks beside each other.

Also waits until one of them has ended, a deadline is due, or a row has arrived in the inbox. Writing the
result to the journal is the session's part: see function_session.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from inspect import CO_COROUTINE
from typing import Any

from hark.model import json
from hark.model.activation import Claim, WaitRow
from hark.model.error_codec import encode_error
from hark.model.errors import RunFailed
from hark.model.exits import exit_in
from hark.model.failures import failure_of
from hark.model.names import SECOND
from hark.model.retry_policy import allows_retry
from hark.programs.cancellation import cancel, is_cancelled
from hark.programs.functions.operations import Result, Run
from hark.programs.services import FunctionServices, InboxListener


class Runs:
    """The functions of one activation that run in tasks, and the listener that interrupts waiting for them."""

    __slots__ = ("_call_thread", "_raises", "_services", "claim", "listener", "tasks")

    def __init__(
        self,
        claim: Claim,
        services: FunctionServices,
        *,
        call: Callable[..., Awaitable[Any]] | None = None,
        raises: tuple[type[Exception], ...] = (),
    ) -> None:
        """`call`: how a function that is not async is called, instead of in a thread of steps. `raises`: errors of the
        functions that are not results, but go on to the caller."""
        self.listener: InboxListener | None = None
        self.claim = claim
        self._services = services
        self._call_thread = call or services.call
        self._raises = raises
        self.tasks: dict[int, tuple[Run, asyncio.Task[Result | BaseException]]] = {}

    def execute(self, run: Run) -> Coroutine[Any, Any, Result]:
        """Call the user's function; its return value or its error as text."""
        return self._execute(run) if self._services.tracing is None else self._execute_traced(run)

    async def _execute(self, run: Run) -> Result:
        try:
            if run.timeout is not None:
                result = await self._call_within(run, run.timeout)
            elif run.kwargs is None and _is_async(run.function):  # the usual case, without another call
                result = await run.function(*run.args)
            else:
                result = await self._call(run)
            if result is None or not run.keeps_result:
                return "null", None
            return json.dump_unchecked(result, limit=self._services.max_payload, what=f"result of {run.name}"), None
        except self._raises:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if is_cancelled():  # the activation is cancelled: its outcome is not used any more (X8)
                raise asyncio.CancelledError from error
            run.may_retry = run.policy is not None and allows_retry(run.policy, run.attempt + 1, error)
            failure = run.failure = failure_of(error)
            failed = RunFailed(
                f"{run.name} raised {failure.text}",
                type=type(error).__name__, message=failure.message, traceback=failure.traceback,
            )  # fmt: skip
            return None, encode_error(failed)

    def _call(self, run: Run) -> Awaitable[Any]:
        function = run.function if run.kwargs is None else partial(run.function, **run.kwargs)
        return function(*run.args) if _is_async(run.function) else self._call_in_thread(function, run.args)

    async def _call_in_thread(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        result = await self._call_thread(function, *args)
        return await result if asyncio.iscoroutine(result) or isinstance(result, asyncio.Future) else result

    async def _call_within(self, run: Run, timeout: int) -> Any:
        """Cancel the call when its time is over. A thread cannot be ended: it runs on, and its result is dropped."""
        limit = asyncio.timeout(timeout / SECOND)
        cause: BaseException | None = None
        result = None
        try:
            async with limit:
                result = await self._call(run)
        except (TimeoutError, asyncio.CancelledError) as error:
            if not limit.expired() or is_cancelled():
                raise  # of the function itself, or the activation is cancelled
            cause = error.__cause__
        if limit.expired():  # also when the function ignored that it was cancelled
            raise TimeoutError(f"it did not end within its timeout of {timeout / SECOND:g} s") from cause
        return result

    async def _execute_traced(self, run: Run) -> Result:
        assert self._services.tracing is not None
        with self._services.tracing.run(self.claim, run.label, run.attempt) as fail:
            result = await self._execute(run)
            if result[1] is not None and run.failure is not None:
                fail(run.failure)
            return result

    def start(self, runs: Iterable[Run]) -> None:
        """Execute each of these in a task of its own."""
        loop = asyncio.get_running_loop()
        for run in runs:
            run.started = True
            self.tasks[run.entry] = (run, loop.create_task(self._execute_in_task(run)))

    async def _execute_in_task(self, run: Run) -> Result | BaseException:
        # Of several that exit at once only one is raised: asyncio would log that the others were not read.
        try:
            return await self.execute(run)
        except BaseException as error:
            if exit_in(error) is None:
                raise
            return error

    async def wait(self, waits: Sequence[WaitRow]) -> list[tuple[Run, Result]]:
        """Wait until a function has ended, a deadline is due or a row has arrived in the inbox.

        Returns the functions that have ended; none when it is the store that has to be read.
        """
        assert self.tasks
        listener = self.listener
        deadlines = [wait.deadline for wait in waits if wait.deadline is not None and wait.fired_at is None]
        timeout = None
        if deadlines and listener is not None:
            timeout = max(0.0, (min(deadlines) - self._services.micros()) / 1_000_000)
        tasks: set[asyncio.Task[Any]] = {task for _, task in self.tasks.values()}
        notified = None
        if listener is not None and not listener.is_notified():
            notified = asyncio.get_running_loop().create_task(listener.wait())
            tasks.add(notified)
        try:
            if listener is None or not listener.is_notified():
                await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if notified is not None:
                notified.cancel()
        ended = [entry for entry, (_, task) in self.tasks.items() if task.done()]
        results: list[tuple[Run, Result]] = []
        for entry in ended:
            run, task = self.tasks.pop(entry)
            result = task.result()
            if isinstance(result, BaseException):
                raise result
            results.append((run, result))
        return results

    def listen(self, id: str) -> None:
        """Be notified of rows in the inbox of this instance."""
        if self.listener is None:
            self.listener = self._services.listen(id)

    def cancel(self, entry: int) -> None:
        """Cancel the task of a run that was withdrawn."""
        _, task = self.tasks.pop(entry, (None, None))
        if task is not None:
            cancel(task)

    def close(self) -> None:
        """Cancel everything."""
        for _, task in self.tasks.values():
            cancel(task)
        self.tasks.clear()
        if self.listener is not None:
            self.listener.close()
            self.listener = None


def plan_retry(run: Run) -> bool:
    """Decide after a failed attempt whether another one follows. It then waits for its delay."""
    if not run.may_retry:
        return False
    run.attempt += 1
    run.awaits_retry, run.started = True, False
    return True


def _is_async(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)  # enough for nearly all functions, at a tenth of the cost
    return bool(code.co_flags & CO_COROUTINE) if code is not None else asyncio.iscoroutinefunction(function)
