"""Every error Hark raises on purpose, in one tree.

    HarkError
    ├── InvalidInput (ValueError)      what was handed over cannot be taken
    │   ├── MalformedJson              .line .column
    │   ├── PayloadTooLarge            .size .limit
    │   ├── InvalidState
    │   └── InvalidAnswer              .problems
    │       └── NotAssigned            .problems
    ├── InvalidDefinition              .problems
    ├── InvalidOutcome (TypeError)
    ├── NotFound (LookupError)
    ├── NoTarget (LookupError)         .target
    ├── Duplicate                      .holder
    ├── Conflict                       .status
    │   └── AlreadySettled             .status .by .at
    ├── InstanceFailed                 .id .error
    ├── InstanceCancelled              .id .reason
    ├── SignalTimeout (TimeoutError)
    ├── AwakeableTimedOut (TimeoutError)
    ├── AwakeableRejected
    ├── RunFailed                      .type .message
    ├── CallFailed                     .id .error
    ├── NonDeterministic               .entry .expected .found
    ├── StoreUnavailable
    ├── StoreTooNew
    ├── NotOpen
    ├── MissingExtra (ImportError)     .extra
    └── WouldBlockEventLoop (RuntimeError)

The first argument is the message: what was wrong, then what to do. Data follows by keyword and is kept
as attributes. Errors travel between processes: they can be pickled and copied. Exit codes and HTTP
codes are not decided here: see doors/.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any


class HarkError(Exception):
    """Something Hark refused or could not do."""

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default calls cls(*args), which fails for every error with required keyword data.
        return _revive, (type(self), self.args), self.__dict__


def _revive(kind: type[HarkError], args: tuple[Any, ...]) -> HarkError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class InvalidInput(HarkError, ValueError):
    """What was handed over is malformed: nothing was stored, and the same call would fail again."""


class MalformedJson(InvalidInput):
    """Text that is not JSON Hark takes; line and column count from 1 and are None when unknown."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class PayloadTooLarge(InvalidInput):
    """A payload, state or result is larger than `max_payload` allows, in bytes of JSON."""

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class InvalidState(InvalidInput):
    """A machine's state has the wrong type, or cannot be written as JSON and read back."""


class InvalidAnswer(InvalidInput):
    """The answer to an awakeable does not fit its schema; the awakeable stays open."""

    def __init__(self, message: str, *, problems: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class NotAssigned(InvalidAnswer):
    """The awakeable was put to others than who answered; it stays open."""


class InvalidDefinition(HarkError):
    """A machine, workflow, job or process cannot be accepted as written."""

    def __init__(self, message: str, *, problems: Iterable[Any] = ()) -> None:
        super().__init__(message)
        self.problems = list(problems)


class InvalidOutcome(HarkError, TypeError):
    """A step returned something that is not an outcome."""


class NotFound(HarkError, LookupError):
    """No instance, awakeable or definition of this name is known to the store."""


class NoTarget(HarkError, LookupError):
    """Nobody can receive this: the target is missing or finished. No row was left behind."""

    def __init__(self, message: str, *, target: str) -> None:
        super().__init__(message)
        self.target = target


class Duplicate(HarkError):
    """The id or correlation key is taken; `holder` is the id of the instance that has it."""

    def __init__(self, message: str, *, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class Conflict(HarkError):
    """What was asked does not go with the present status."""

    def __init__(self, message: str, *, status: str) -> None:
        super().__init__(message)
        self.status = status


class AlreadySettled(Conflict):
    """The awakeable was answered before: how, by whom and when."""

    def __init__(self, message: str, *, status: str, by: str | None = None, at: datetime | None = None) -> None:
        super().__init__(message, status=status)
        self.by = by
        self.at = at


class InstanceFailed(HarkError):
    """The instance whose result was asked for has failed; `error` is its recorded error."""

    def __init__(self, message: str, *, id: str, error: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.error = error


class InstanceCancelled(HarkError):
    """The instance whose result was asked for was cancelled."""

    def __init__(self, message: str, *, id: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.reason = reason


class SignalTimeout(HarkError, TimeoutError):
    """No signal of the awaited names came in time."""


class AwakeableTimedOut(HarkError, TimeoutError):
    """Nobody settled the awakeable in time."""


class AwakeableRejected(HarkError):
    """The awakeable was answered with a no."""


class RunFailed(HarkError):
    """A function given to `ctx.run` raised; `type` is the bare name of what it raised."""

    def __init__(self, text: str, *, type: str, message: str) -> None:
        super().__init__(text)
        self.type = type
        self.message = message


class CallFailed(HarkError):
    """A child started with `ctx.call` failed, was cancelled, or could not start."""

    def __init__(self, message: str, *, id: str | None = None, error: str | None = None) -> None:
        super().__init__(message)
        self.id = id
        self.error = error


class NonDeterministic(HarkError):
    """A replay took another road than its journal: at `entry`, `found` stands where `expected` did."""

    def __init__(self, message: str, *, entry: int, expected: str, found: str) -> None:
        super().__init__(message)
        self.entry = entry
        self.expected = expected
        self.found = found


class StoreUnavailable(HarkError):
    """The database is gone or its disk is full: nothing was stored, try again."""


class StoreTooNew(HarkError):
    """The store was migrated by a newer Hark: upgrade this one."""


class NotOpen(HarkError):
    """The app is not open: use `async with app:`, or `with app:` in synchronous code."""


class MissingExtra(HarkError, ImportError):
    """A feature needs a package that is not installed; `pip install 'hark[extra]'` installs it."""

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class WouldBlockEventLoop(HarkError, RuntimeError):
    """`.result()` was called on a thread whose event loop is running: say `await`."""
