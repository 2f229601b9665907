"""The errors that Hark raises on purpose, in one tree.

    HarkError
    ├── InvalidInput (ValueError)      an argument or payload is malformed
    │   ├── MalformedJson              .line .column
    │   ├── PayloadTooLarge            .size .limit
    │   ├── InvalidState
    │   └── InvalidAnswer              .problems .examples
    │       └── NotAssigned            .problems .examples
    ├── InvalidDefinition              .problems
    ├── InvalidMigration               .problems
    ├── InvalidOutcome (TypeError)
    ├── NotFound (LookupError)
    ├── NoTarget (LookupError)         .target
    ├── Duplicate                      .holder
    ├── Conflict                       .status
    │   ├── AlreadyClaimed             .status .by
    │   ├── AlreadySettled             .status .by .at
    │   └── TaskLost                   .status
    ├── InstanceFailed                 .id .error
    ├── InstanceCancelled              .id .reason
    ├── SignalTimeout (TimeoutError)
    ├── AwakeableTimedOut (TimeoutError)
    ├── AwakeableRejected
    ├── BpmnError                      .code .message .variables
    ├── RunFailed                      .type .message .traceback
    ├── CallFailed                     .id .error
    ├── NonDeterministic               .cause .entry .expected .found .line
    ├── InstanceHeld                   .id .error
    ├── StoreUnavailable
    ├── StoreTooNew
    ├── NotOpen
    ├── MissingExtra (ImportError)     .extra
    └── WouldBlockEventLoop (RuntimeError)

The first argument is the message: what went wrong, then what to do next. Data follows by keyword and is kept
as attributes. Errors can be pickled and copied, so that they can cross process boundaries. Exit codes and HTTP
codes are not decided here: see doors/.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final


class HarkError(Exception):
    """Base class of all errors that Hark raises on purpose. `str(error)` says what went wrong and what to do next."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls cls(*args), which fails for every error with required keyword data.
        return _rebuild, (type(self), self.args), self.__dict__


def _rebuild(kind: type[HarkError], args: tuple[Any, ...]) -> HarkError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class InvalidInput(HarkError, ValueError):
    """An argument, payload or input is malformed. Nothing was stored; the same call would fail again.

    Raised by every verb and every `ctx` method that checks its arguments. Correct the argument the message names.
    """


class MalformedJson(InvalidInput):
    """Text from outside is not JSON that Hark accepts: broken syntax, a repeated key, NUL, NaN, deep nesting.

    Raised where JSON text is read: the HTTP API, the command line, files. Correct the text and send it again.

    Attributes:
        line: The line of the problem, from 1; None if unknown.
        column: The column of the problem, from 1; None if unknown.
    """

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class PayloadTooLarge(InvalidInput):
    """A payload, input, state or result is larger than `max_payload`, or text such as a title or a reason over 64 KiB.

    Store the data elsewhere and send a reference, or raise `Hark(max_payload=…)`; shorten the text.

    Attributes:
        size: Its size in bytes of JSON.
        limit: The limit in bytes.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class InvalidState(InvalidInput):
    """The state of a machine does not match its type, or cannot be written as JSON and read back.

    Raised in the step that set the state, or when stored state no longer matches changed code; `handle` gets it. Change
    `ctx.state` in place or return `state=` of the right type; give new fields a default, or raise the version.
    """


class InvalidAnswer(InvalidInput):
    """The answer to an awakeable does not match its schema. The awakeable stays open.

    Raised by `resolve`. Correct the answer and send it again.

    Attributes:
        problems: What is wrong, one text each, with the path: `items[2].amount: "x" is not of type "integer"`.
        examples: Answers of the right shape, to copy: those of the schema, or one that is made from it.
    """

    def __init__(self, message: str, *, problems: Iterable[str] = (), examples: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)
        self.examples = list(examples)


class NotAssigned(InvalidAnswer):
    """The awakeable has assignees, and the answerer (`by=`) is not one of them. The awakeable stays open.

    Raised by `resolve` and `reject`. Let one of the assignees answer.

    Attributes:
        problems: Why the answer was refused.
        examples: Empty.
    """


class InvalidDefinition(HarkError):
    """A machine, workflow, job or process has a mistake that is found when it is defined or registered.

    Correct the definition: the message names what is wrong.

    Attributes:
        problems: The mistakes that were found.
    """

    def __init__(self, message: str, *, problems: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class InvalidMigration(HarkError):
    """An instance cannot be moved to another version of its definition. It is as it was.

    Raised by `migrate` for one instance. Correct the map or the function that the message names, or let the instance
    finish with the version that it has.

    Attributes:
        problems: The reasons, each a `Problem`.
    """

    def __init__(self, message: str, *, problems: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class InvalidOutcome(HarkError, TypeError):
    """A step returned something that is not an outcome, or a durable function did something a replay cannot repeat.

    In a machine, `handle` gets it: return Next, Retry, Await, Spawn, Done or Stop. In a function, it is raised when the
    code awaits something that does not come from `ctx`, or uses `ctx` from elsewhere: move that code into `ctx.run`.
    """


class NotFound(HarkError, LookupError):
    """The store has no instance, awakeable, token or definition with this id, key or name.

    Check the spelling. A definition must have been registered once by a process with its code; finished instances are
    deleted after `retention`.
    """


def no_instance(target: str) -> NotFound:
    return NotFound(
        f"There is no instance {target!r}. Check the id or key; retention removes finished instances after a time."
    )


class NoTarget(HarkError, LookupError):
    """A signal or message has no receiver: the target does not exist or has finished. Nothing was stored.

    Raised by `signal` and `message`. To start the receiver if there is none, use `signal_with_start`.

    Attributes:
        target: The id or key it was sent to.
    """

    def __init__(self, message: str, *, target: str) -> None:
        super().__init__(message)
        self.target = target


class Duplicate(HarkError):
    """The id or correlation key of a start or retry is taken by another instance.

    Use the instance that holds it, or another id or key.

    Attributes:
        holder: The id of the instance that holds it.
    """

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class Conflict(HarkError):
    """The status of the instance does not allow this: `cancel` of a finished one, `retry` of one that has not failed.

    Read the status; there may be nothing left to do.

    Attributes:
        status: The present status.
    """

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class AlreadyClaimed(Conflict):
    """Another person has claimed the awakeable.

    Raised by `claim`. Leave it to that person, or unclaim it first.

    Attributes:
        status: The status of the awakeable, PENDING.
        by: The name of the person who has claimed it.
    """

    def __init__(self, message: str, *, status: str, by: str) -> None:
        super().__init__(message, status=status)
        self.by = by


class AlreadySettled(Conflict):
    """The awakeable is already settled; the first answer counts.

    Raised by `resolve` and `reject`. Show the answerer who was first.

    Attributes:
        status: RESOLVED, REJECTED, TIMEOUT or CANCELLED.
        by: The name of the first answerer, if known.
        at: When it was settled.
    """

    def __init__(self, message: str, *, status: str, by: str | None = None, at: datetime | None = None) -> None:
        super().__init__(message, status=status)
        self.by = by
        self.at = at


class TaskLost(Conflict):
    """The task does not belong to this handler any more: it was cancelled, or its lease was lost and another worker has
    it. Nothing was stored.

    Raised by what a `TaskContext` does, and by the calls of task workers over HTTP. End the handler.

    Attributes:
        status: The present status of the task, `executing` if another worker runs it; "lost" if it is not known.
    """

    def __init__(self, message: str, *, status: str = "lost") -> None:
        super().__init__(message, status=status)


class InstanceFailed(HarkError):
    """The instance whose result was requested has failed.

    Raised by `result`. Fix the cause, then `app.retry(id)`.

    Attributes:
        id: The id of the instance.
        error: Its error, as text.
    """

    def __init__(self, message: str, *, id: str, error: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.error = error


class InstanceCancelled(HarkError):
    """The instance whose result was requested was cancelled. Raised by `result`.

    Attributes:
        id: The id of the instance.
        reason: The reason given to `cancel`, or None.
    """

    def __init__(self, message: str, *, id: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.reason = reason


class SignalTimeout(HarkError, TimeoutError):
    """No signal with one of the awaited names arrived in time.

    Raised by awaiting `ctx.wait_for_signal(…, timeout=…)`. Catch it to decide what happens then; a signal that arrives
    later stays in the inbox for the next wait.
    """


class AwakeableTimedOut(HarkError, TimeoutError):
    """The awakeable was not settled in time.

    Raised by awaiting an AwakeableHandle with a timeout. Catch it to decide what happens then. A late answer is
    refused.
    """


class AwakeableRejected(HarkError):
    """The awakeable was rejected; the message is the reason.

    Raised by awaiting an AwakeableHandle. Catch it to decide what happens then.
    """


class BpmnError(HarkError):
    """A BPMN error: raise it in the handler of a process's task, which then ends at once, without another attempt.

    The nearest error event that catches its code continues the process; one that nothing catches is an incident. In a
    task of a job, this is an exception like any other.

    Attributes:
        code: The code, as in the error definitions of the file.
        message: A text for people.
        variables: An object that is merged into the variables where the error is caught, or None.

    Example:
        raise BpmnError("card-declined", "The card has expired.", {"expired": "2024-05"})
    """

    def __init__(self, code: str, message: str = "", variables: dict[str, Any] | None = None) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code
        self.message = message
        self.variables = variables


class RunFailed(HarkError):
    """A function given to `ctx.run` raised, and no retry is left. The same error is raised live and on replay.

    Catch it to compensate. If it is not caught, the instance fails; `app.retry` runs the function again.

    Attributes:
        type: The bare class name of the exception, such as "ValueError".
        message: The text of the exception.
        traceback: Where it was raised, as text; None if that is not known.
    """

    def __init__(self, text: str, *, type: str, message: str, traceback: str | None = None) -> None:
        super().__init__(text)
        self.type = type
        self.message = message
        self.traceback = traceback


class CallFailed(HarkError):
    """A child started with `ctx.call` failed, was cancelled, or could not start.

    Catch it to compensate. If it is not caught, the instance fails; `app.retry` starts a new child.

    Attributes:
        id: The id of the child.
        error: The error of the child, as text.
    """

    def __init__(self, message: str, *, id: str | None = None, error: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.error = error


class NonDeterministic(HarkError):
    """The code of an instance does not fit what was committed: a replay diverged from its journal, or the code cannot
    read a stored input, state or result, or has no such step.

    The instance is `held` with it, and loses nothing. It goes on by itself when a worker registers other code for it.
    Give changed code a new `version=`, or guard the change with `ctx.patched`; `hark check` finds such instances
    before a deploy.

    Attributes:
        cause: What does not fit; if the code raised, the class and the text of that exception.
        entry: The entry of the journal at which they differ; None if it is none.
        expected: What was committed, such as the operation in the journal; or None.
        found: What the code has or asks for; or None.
        line: The line of the code, as "FILE:LINE"; or None.
    """

    def __init__(
        self,
        message: str,
        *,
        cause: str | None = None,
        entry: int | None = None,
        expected: str | None = None,
        found: str | None = None,
        line: str | None = None,
    ) -> None:
        super().__init__(message)
        self.cause = message if cause is None else cause
        self.entry = entry
        self.expected = expected
        self.found = found
        self.line = line


class InstanceHeld(HarkError):
    """The instance is held: its code does not fit what was committed. Raised in tests, by `drain` and `result`.

    Outside of tests `result` waits on: the instance goes on when a worker registers code that fits.

    Attributes:
        id: The instance.
        error: Its error, which says what does not fit.
    """

    def __init__(self, message: str, *, id: str, error: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.error = error


class StoreUnavailable(HarkError):
    """The database cannot be reached or cannot write (its disk is full, for example).

    The message says whether anything may have been stored. Try again when the database is back.
    """


class StoreTooNew(HarkError):
    """A newer Hark has migrated this store. Upgrade this installation; it cannot work with the store as it is."""


class NotOpen(HarkError):
    """A verb was called before the app was opened or after it was closed.

    Use `async with app:`, or `with app:` in synchronous code, around the call.
    """


class MissingExtra(HarkError, ImportError):
    """A feature needs a package that is not installed.

    Install it with `pip install 'hark[NAME]'`; the message has the whole command.

    Attributes:
        extra: The name of the extra, such as "postgres".
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class WouldBlockEventLoop(HarkError, RuntimeError):
    """A blocking call was made in a thread whose event loop is running: `.result()`, `with app:`, `with app.worker():`.

    It would block the loop. Use `await` and `async with` there.
    """


def task_lost(task: str, status: str) -> TaskLost:
    """The error of a call about a task that its caller does not hold any more; `status` is what the task is now."""
    why = "another worker has it" if status == "executing" else f"it is {status}"
    return TaskLost(f"Task {task} was lost: {why}. Nothing was stored; end the work on it.", status=status)


def end_without_result(id: str, status: str, error: str | None) -> InstanceFailed | InstanceCancelled:
    """The error for the result of an instance that has failed or was cancelled."""
    if status == "cancelled":
        reason = "." if error in (None, "cancelled") else f": {error}"  # "cancelled" is stored without a reason
        return InstanceCancelled(f"Instance {id} was cancelled{reason}", id=id, reason=error)
    text = f"Instance {id} failed: {str(error).rstrip('.')}. Fix the cause, then retry it."
    return InstanceFailed(text, id=id, error=error)


def unfinished_undo(reason: str) -> str:
    """The addition to the error of an instance whose undo could not finish, after a cancel for this reason."""
    return f"It was being cancelled ({reason}), and its undo has not finished: a retry continues the undo."


EXIT_ADVICE: Final = (
    "Code that a worker runs must not exit; most often argparse in a library does. Catch SystemExit there, or run that "
    "code as a process of its own."
)
