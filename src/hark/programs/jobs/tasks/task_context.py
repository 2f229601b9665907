"""TaskContext: the argument of a handler."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple, overload

from msgspec import UNSET

from hark.model import json
from hark.model.errors import InvalidInput
from hark.model.log import InstanceLog
from hark.model.names import SECOND, check_awakeable_id, check_name, from_micros, micros
from hark.model.outcomes import Duration
from hark.model.values import Delivery
from hark.programs import effects
from hark.programs.awakeable_handle import AwakeableHandle
from hark.programs.functions.operations import Run, checked_kwargs, name_of_run
from hark.programs.jobs.job_services import TaskReply
from hark.programs.jobs.tasks.task_data import TaskData, dump_variables
from hark.programs.jobs.tasks.task_outcomes import Complete, Continue, Fail, Pause
from hark.programs.jobs.tasks.task_session import TaskSession

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class TaskContext:
    """The context passed to the handler of a task.

    `complete`, `fail`, `continue_` and `pause` make the outcome that the handler returns. Everything else that is done
    takes effect at once, in a commit of its own, and is awaited, or blocked on with `.result()` in a handler that is
    not `async`.

    A handler that runs again before its next checkpoint (its task was parked, its worker died or stopped) gets the same
    answers to the same waits, in the same order, with the original deadlines. `checkpoint`, and every outcome, ends
    that: what was received is dealt with.

    Attributes:
        id: The id of the task.
        run_id: The id of the job or process: signals of the run are sent to it.
        name: The name of the task; in a process, the id of the element.
        attempt: Which attempt this is, from 1.
        iteration: Which iteration of a loop this is, from 0.
        input: The input of the job, or the output of the one task that this one needs, or `{need: output}`; what
            `input:` says; the item of a map. In a process, the variables that the task sees.
        inputs: The inputs of the job; in a process, the same as `input`.
        outputs: The outputs of the tasks that this one needs, by name; in a process, nothing.
        previous: What the last iteration of the loop gave to `continue_`; None in the first.
        headers: In a process, the texts that the file has for the handler of this element; in a job, nothing.
        scheduled_at: The time of the schedule that started the job, or None.

    Example:
        @app.handler("wait-for-review")
        async def wait_for_review(task):
            review = await task.wait_for_signal("review-done", timeout=1800)
            return task.complete(review)
    """

    def __init__(self, session: TaskSession, data: TaskData) -> None:
        claim, state = session.claim, session.state
        self.id: str = claim.id
        self.run_id: str = state.run
        self.name: str = claim.step
        self.attempt: int = state.attempt
        self.iteration: int = state.iteration
        self.input: Any = data.input
        self.inputs: Any = data.inputs
        self.outputs: dict[str, Any] = data.outputs
        self.previous: Any = None if state.previous is UNSET else json.load_for_code(bytes(state.previous).decode())
        self.headers: dict[str, str] = dict(session.activation.task.headers)
        self.scheduled_at: datetime | None = None if claim.scheduled_at is None else from_micros(claim.scheduled_at)
        self._session = session
        self._services = session.services

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger `hark.workflow`; its records have the attributes `instance`, `definition`, `step`, `attempt`."""
        return InstanceLog(self._session.claim)

    def now(self) -> datetime:
        """The time of the database.

        Returns:
            A timezone-aware datetime in UTC.
        """
        return self._services.now()

    # -- outcomes: to be returned -----------------------------------------------------------------

    def complete(self, output: Any = None) -> Complete:
        """Complete the task. Returning the output itself does the same.

        Args:
            output: A JSON value or bytes: the input of tasks that need this one, and a part of the job's result.

        Returns:
            The outcome, to be returned by the handler.
        """
        return Complete(output)

    def fail(self, error: Any, *, retry: bool = True, delay: Duration | None = None) -> Fail:
        """Fail this attempt. Raising an exception does the same.

        Args:
            error: The reason: text, a JSON value or an exception.
            retry: Whether the retry policy of the task may follow with another attempt.
            delay: Seconds, or a timedelta, until that attempt; by default what the policy says.

        Returns:
            The outcome, to be returned by the handler.

        Raises:
            InvalidInput: The delay is malformed.
        """
        return Fail(error, retry, None if delay is None else micros(delay, "delay", zero=True))

    def continue_(self, output: Any = None) -> Continue:
        """End this iteration of a loop: the handler runs again after `loop_delay`, with `iteration` one higher.

        The task fails if that would exceed `max_iterations` or `max_duration`, or if it is not a loop.

        Args:
            output: A JSON value or bytes: `previous` in the next iteration.

        Returns:
            The outcome, to be returned by the handler.
        """
        return Continue(output)

    def pause(self, name: str, delay: Duration) -> Pause:
        """Give up the slot, and run the handler again after a delay, in the same attempt and iteration.

        Args:
            name: What it waits for, for people: `why` shows it.
            delay: Seconds or a timedelta.

        Returns:
            The outcome, to be returned by the handler.

        Raises:
            InvalidInput: The name or the delay is malformed.
        """
        return Pause(check_name(name, "name of the pause"), micros(delay, "delay", zero=True))

    # -- checkpoints, streams, heartbeats ---------------------------------------------------------

    def checkpoint(self, value: Any) -> TaskReply[None]:
        """Store a value that the handler can load when it runs again: in later attempts and iterations too.

        What was received so far is dealt with: the handler does not get it again.

        Args:
            value: A JSON value or bytes; it replaces the one before.

        Returns:
            A reply without a value: it is there when the checkpoint is stored.

        Raises:
            InvalidInput: The value is not JSON.
            PayloadTooLarge: The value is larger than `max_payload`.
        """
        text = json.dump_unchecked(value, limit=self._services.max_payload, what="checkpoint")
        return self._session.begin(self._session.checkpoint(text))

    def load_checkpoint(self) -> TaskReply[Any]:
        """The value of the last checkpoint.

        Returns:
            The value, or None before the first checkpoint. A regression of the job clears it.
        """
        return self._session.begin(self._session.load_checkpoint())

    def put_stream(self, chunk: Any) -> TaskReply[None]:
        """Add a chunk to the stream of the run: `hark job logs` and the browser show it live.

        Awaiting it does not wait for the disk, unless 1,000 chunks of the task are not written yet. The outcome of the
        handler is committed after its chunks.

        Args:
            chunk: Text, bytes, or another JSON value. Bytes that are UTF-8 are shown as text.

        Returns:
            A reply without a value.

        Raises:
            InvalidInput: The chunk is not JSON.
            PayloadTooLarge: The chunk is larger than `max_payload`.
        """
        return self._session.stream(
            json.dump_unchecked(_as_text(chunk), limit=self._services.max_payload, what="chunk")
        )

    def heartbeat(self, details: Any = None) -> TaskReply[None]:
        """Say that the handler is alive. With `heartbeat_sec` on the task, missing heartbeats end the attempt.

        The lease of the task is kept without it.

        Args:
            details: A JSON value of up to 16 KiB: `why` and `Instance.progress` show it.

        Returns:
            A reply without a value.

        Raises:
            TaskLost: When awaited, if the task was cancelled or another worker has it.
            PayloadTooLarge: The details are over 16 KiB.
        """
        return self._session.begin(self._session.heartbeat(None if details is None else effects.progress(details)))

    # -- runs -------------------------------------------------------------------------------------

    @overload
    def run(
        self,
        function: Callable[[*Ts], Awaitable[R]],
        *args: *Ts,
        kwargs: None = None,
        name: str | None = None,
    ) -> TaskReply[R]: ...
    @overload
    def run(
        self,
        function: Callable[[*Ts], R],
        *args: *Ts,
        kwargs: None = None,
        name: str | None = None,
    ) -> TaskReply[R]: ...
    @overload
    def run(
        self,
        function: Callable[..., Awaitable[R]],
        *args: Any,
        kwargs: Mapping[str, Any],
        name: str | None = None,
    ) -> TaskReply[R]: ...
    @overload
    def run(
        self,
        function: Callable[..., R],
        *args: Any,
        kwargs: Mapping[str, Any],
        name: str | None = None,
    ) -> TaskReply[R]: ...
    def run(  # type: ignore[misc]  # mypy compares *args: Any with *args: *Ts and finds them different
        self,
        function: Callable[..., Any],
        *args: Any,
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> TaskReply[Any]:
        """Run a function once, and record its result: a call of a model, a payment.

        A handler that runs again before its next checkpoint or outcome (its task was parked, its worker died or
        stopped) gets the recorded result, and the function is not called. An `async def` runs on the worker's event
        loop, a `def` in a thread. The result is committed as soon as the function has ended; if the process dies before
        that, the function runs again: make its side effects idempotent.

        The runs between two checkpoints are numbered in the order in which the handler asks for them. If changed code
        asks for others, or in another order, the task is held. A task with a function that runs is not parked.

        Args:
            function: The function to call. It may use `task.put_stream` and `task.heartbeat`; it must not wait or run.
            *args: Its positional arguments.
            kwargs: Its keyword arguments.
            name: The name in the journal of the task; the default is the name of the function.

        Returns:
            The result: JSON, as it is recorded, or read as the type that the function is annotated to return.

        Raises:
            RunFailed: When awaited, if the function raised, or its result is not JSON. That is recorded too: only
                another attempt, or another run, calls the function again. A `BpmnError` is raised as it is, and is not
                recorded.
            InvalidInput: `function` is not callable, or an option is malformed.
            TaskLost: When awaited, if the task was cancelled or another worker has it.

        Example:
            answer = await task.run(call_model, history)
            feedback = await task.wait_for_signal("user-feedback", timeout=1800)
            await task.checkpoint([*history, answer, feedback])
        """
        run = Run(function, args, name_of_run(function, name))
        if kwargs is not None:
            run.kwargs = checked_kwargs(kwargs)
        return self._session.begin_run(run)

    # -- processes --------------------------------------------------------------------------------

    def escalate(self, code: str, variables: dict[str, Any] | None = None) -> TaskReply[bool]:
        """Throw an escalation to the process of this task, and go on. An attempt that runs again throws it again.

        The nearest escalation event that catches the code continues the process; an interrupting one cancels this task.
        An escalation that nothing catches has no effect. To throw an error, which ends the task, raise `BpmnError`.

        Args:
            code: The code, as in the escalation definitions of the file.
            variables: An object that is merged into the variables where the escalation is caught.

        Returns:
            Whether the process still waits for this task: False if it is about to cancel it.

        Raises:
            InvalidInput: The task belongs to a job, which catches nothing; or an argument is malformed.
            TaskLost: When awaited, if the task was cancelled or another worker has it.

        Example:
            await task.escalate("late", {"expected": "2024-05-01"})
        """
        checked = check_name(code, "code of an escalation")
        text = dump_variables(variables, self._services.max_payload)
        escalation = self._session.activation.escalation(checked, text)
        return self._session.begin(self._session.escalate(escalation))

    # -- signals ----------------------------------------------------------------------------------

    def wait_for_signal(self, name: str, timeout: Duration | None = None) -> TaskReply[Any]:
        """Wait for the next signal of this run with this name. One that was sent before counts.

        The signals of a run form one queue per name: each goes to exactly one wait, the oldest wait first. The
        lease is kept meanwhile. After `linger` seconds, or as soon as other work waits for its slot, the task
        parks and frees the slot; when the signal arrives, the handler runs again from its start, and this call
        returns the signal. In the handler that is suspended, the call raises an exception that is not an
        `Exception`: let it pass. A task whose handler works while such a wait is open is suspended too: wait
        first, then work; or cancel the wait.

        Args:
            name: The name of the signal.
            timeout: Seconds or a timedelta: above 0, and at most `max_signal_wait` of the app, 1 hour unless the app
                says otherwise. Without it, as long as that.

        Returns:
            The payload of the signal.

        Raises:
            SignalTimeout: When awaited, if no signal arrives in time.
            ValueError: The timeout is outside these bounds.
            InvalidInput: The name is malformed.

        Example:
            feedback = await task.wait_for_signal("user-feedback", timeout=1800)
        """
        longest = self._services.max_signal_wait
        span = _checked_timeout(longest if timeout is None else timeout, longest)
        checked = check_name(name, "signal name")
        return self._session.begin_wait(lambda call: self._session.wait_for_signal(checked, span, call))

    def send_signal(
        self, run_id: Any, name: str, data: Any = None, *, dedup_key: str | None = None
    ) -> TaskReply[Delivery]:
        """Send a signal to any run, or another instance, as `Hark.signal` does. A handler that runs again sends again.

        Args:
            run_id: The id or correlation key of the run, or a Handle; `task.run_id` is this run.
            name: The name of the signal.
            data: A JSON value or bytes.
            dedup_key: If the run has already received a signal with this key, this one is dropped.

        Returns:
            The `Delivery`.

        Raises:
            NoTarget: When awaited, if there is no such run or it has finished.
            InvalidInput: An argument is malformed.
        """
        sent = effects.send_signal(run_id, name, data, dedup_key, self._services.max_payload)
        self._session.check()
        return self._services.signal(sent.target, sent.name, sent.payload, sent.dedup_key)

    # -- awakeables -------------------------------------------------------------------------------

    @overload
    def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        *,
        schema: type[T],
        assignees: Iterable[str] | None = None,
    ) -> TaskReply[AwakeableHandle[T]]: ...
    @overload
    def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        assignees: Iterable[str] | None = None,
    ) -> TaskReply[AwakeableHandle[Any]]: ...
    def awakeable(
        self,
        timeout: Duration | None = None,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        assignees: Iterable[str] | None = None,
    ) -> TaskReply[AwakeableHandle[Any]]:
        """Create an awakeable of the run: a question to a person or program outside, with an id and a link.

        A handler that runs again before its next checkpoint gets the same awakeable. One that a failed attempt leaves
        open is cancelled, unless it was created before a checkpoint.

        Args:
            timeout: Seconds or timedelta until it times out; without it, it stays open.
            title: One line for the answerer.
            description: More text for the answerer.
            schema: What the answer must look like: a type, or a JSON Schema as a dict.
            assignees: Names of those who may answer; None or empty means anyone with access.

        Returns:
            An AwakeableHandle with `.id` and `.url`. Await the handle, or `await_awakeable(handle.id)`, to get the
            answer.

        Raises:
            InvalidInput: The schema cannot be used, or another argument is malformed.

        Example:
            approval = await task.awakeable(title="Deploy?", timeout=7200)
            answer = await task.await_awakeable(approval.id)
        """
        return self._session.begin(self._awakeable(*effects.question(timeout, title, description, schema, assignees)))

    async def _awakeable(self, asked: dict[str, Any], decode: Callable[[str], Any]) -> AwakeableHandle[Any]:
        session, link = self._session, self._services.link
        made = await session.ask(asked)
        return AwakeableHandle(
            made.id,
            lambda: link(made.id, made.nonce, made.timeout_at),
            _AnswerWhenAwaited(
                lambda: session.begin_wait(lambda call: session.await_awakeable(made.id, decode, asked["title"], call))
            ),
        )

    def await_awakeable(self, id: str) -> TaskReply[Any]:
        """Wait for the answer to an awakeable of this task. After `linger` seconds the task parks meanwhile.

        Args:
            id: The id of an awakeable that this task has created.

        Returns:
            The answer, as JSON.

        Raises:
            AwakeableRejected: When awaited, if it was rejected or cancelled.
            AwakeableTimedOut: When awaited, if it was not answered in time.
            NotFound: When awaited, if the task has no such awakeable.
            InvalidInput: The id is malformed.
        """
        checked = check_awakeable_id(id)
        return self._session.begin_wait(
            lambda call: self._session.await_awakeable(checked, json.load_for_code, call=call)
        )


class _AnswerWhenAwaited:
    """The answer to an awakeable, asked for when it is awaited."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def __await__(self) -> Any:
        return self._ask().__await__()


def _as_text(chunk: Any) -> Any:
    """A chunk of a stream, which people read: UTF-8 as text, any other bytes as bytes."""
    if not isinstance(chunk, bytes | bytearray | memoryview):
        return chunk
    try:
        text = bytes(chunk).decode()
    except UnicodeDecodeError:
        return chunk
    return chunk if "\0" in text else text


def _checked_timeout(timeout: Duration, longest: float) -> int:
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= longest:
        raise InvalidInput(
            f"wait_for_signal(timeout={timeout!r}): give seconds above 0 and up to {longest:g}, or raise "
            "Hark(max_signal_wait=…)."
        )
    return max(1, round(seconds * SECOND))
