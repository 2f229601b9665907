"""Operations: what a function asks for through its context, each numbered by its entry.

An operation is a promise that a line of the journal resolves, live and in a replay by the same code. It
knows which waits represent it in the store and how to read its line. When a line is read is decided in
replay.py.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from hark.model import json
from hark.model.activation import InboxRow
from hark.model.answers import load_answer
from hark.model.byte_values import MARK
from hark.model.decisions import Arm, Effect, NewAwakeable, NewInstance
from hark.model.error_codec import decode_error, encode_error
from hark.model.errors import AwakeableRejected, CallFailed, InvalidInput, InvalidState, SignalTimeout
from hark.model.failures import Failure
from hark.model.names import check_name, from_micros, new_id
from hark.model.retry_policy import RetryPolicy, delay_before
from hark.model.values import Delivery, Signal, WaitKind
from hark.programs.functions.branches import Promise

if TYPE_CHECKING:
    from hark.programs.functions.read_ahead import ReadAhead

_MAX_STEP_BYTES = 255

Result = tuple[str | None, str | None]
"""The value and the error of a line of the journal, as JSON text; one of them is None."""


class OperationOwner(Protocol):
    """The session an operation belongs to."""

    def read_next_line(self, operation: Operation) -> bool:
        """Resolve the operation if the next line of the journal is its own, in a replay."""

    def resolved_early(self, operation: Operation) -> None:
        """Note that the operation is resolved, and the code has not awaited it yet."""

    def cannot_read(self, operation: Operation, value: str, error: Exception) -> None:
        """Note that the stored value of the operation does not match the types of the code: it is not resolved."""

    def awaited_late(self, operation: Operation) -> None:
        """Note that the code awaits an operation that was resolved before."""

    def withdraw(self, operation: Operation) -> None:
        """Withdraw the operation: its wait, child or asyncio task is not needed any more."""


class Operation(Promise[Any]):
    """A request of a function, at an entry."""

    entry = -1
    session: OperationOwner | None = None  # set together with the entry
    asked: tuple[CodeType, int] | None = None  # where the code asked for it: the code object and the instruction

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind = kind
        self.name = name

    def __await__(self) -> Generator[Any, None, Any]:
        if self.done:
            self.mark_awaited()
        else:
            self.awaited = True
            if self.session is None or not self.session.read_next_line(self):
                yield self
        return self.value if self.error is None else self.value_or_raise()

    @property
    def label(self) -> str:
        """The operation in messages and in the step of the instance."""
        return label_of(self.kind, self.name)

    @property
    def place(self) -> str:
        """The `place` of the waits that represent it."""
        return str(self.entry)

    @property
    def needs_wait(self) -> bool:
        """Return True if waits in the store represent the operation."""
        return True

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        """Return True if a stored wait at its entry can be its own; if not, the code has diverged from its journal."""
        return kind == self.kind and not attempt

    def waits_to_arm(self) -> list[Arm]:
        """The waits that represent it while it is open."""
        return []

    def read_line(self, value: str | None, error: str | None) -> None:
        """Resolve it with the value or the error of its line."""
        if not self.awaited and self.session is not None:
            self.session.resolved_early(self)
        if error is not None:
            failure = decode_error(error)
            failure.entry = self.entry  # type: ignore[attr-defined]  # a retry starts again at this entry
            self.resolve(error=failure)
            return
        try:
            decoded = self.decode(value or "null")
        except Exception as failure:
            assert self.session is not None
            self.session.cannot_read(self, value or "null", failure)
            return
        if self.callbacks:
            self.resolve(decoded)
        else:  # the same as resolve(), without the call
            self.done, self.value = True, decoded

    def mark_awaited(self) -> None:
        if not self.awaited and self.done and self.session is not None:
            self.session.awaited_late(self)
        self.awaited = True

    def withdraw(self) -> None:
        if not self.done:
            super().withdraw()
            if self.session is not None:
                self.session.withdraw(self)

    def decode(self, value: str) -> Any:
        """The Python value of the JSON text in its line."""
        return json.load_for_code(value)


class Run(Operation):
    """A user's function, run once; again only for its retries."""

    kind = "run"
    attempt = 0
    awaits_retry = False  # the delay before its next attempt is not over
    started = False
    may_retry = False  # its last attempt failed, and its policy allows another one
    # Most runs have none of these: the values on the class cost nothing.
    kwargs: Mapping[str, Any] | None = None
    policy: RetryPolicy | None = None
    timeout: int | None = None  # µs
    failure: Failure | None = None  # of the attempt that has just ended, until the session has recorded it
    undo: Callable[[Any], Any] | None = None
    ahead: ReadAhead | None = None
    keeps_result = True

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        self.name = name
        self.function = function
        self.args = args

    def __await__(self) -> Generator[Any, None, Any]:
        ahead = self.ahead
        if ahead is not None and ahead.pending is self:  # the next line is its own
            ahead.pending = None
            self.awaited = True
            line = ahead.unread.popleft()
            if line.error is None:
                try:
                    value = self.value = self.decode(line.value or "null")
                    self.done = True
                    return value
                except Exception:  # the session reads the line once more, and holds the instance
                    ahead.unread.appendleft(line)
                    ahead.pending, self.done = self, False
                    yield self
            else:
                self.read_line(None, line.error)
        elif self.done:
            self.mark_awaited()
        else:
            self.awaited = True
            if self.session is None or not self.session.read_next_line(self):
                yield self
        return self.value if self.error is None else self.value_or_raise()

    @property
    def place(self) -> str:
        return f"{self.entry}+{self.attempt}" if self.attempt else str(self.entry)

    @property
    def needs_wait(self) -> bool:
        return self.attempt > 0  # also while an attempt runs: the place of the wait stores the number of attempts

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        return kind == "timer" and attempt != ""

    def waits_to_arm(self) -> list[Arm]:
        assert self.policy is not None
        return [Arm("timer", new_id(), self.place, timeout=delay_before(self.policy, self.attempt))]

    def decode(self, value: str) -> Any:
        function, ahead = self.function, self.ahead
        if ahead is not None and type(function) is FunctionType and (decode := ahead.decoders.get(function)):
            # The most frequent line of a replay, spared a call.
            return _load(value) if decode is _load_for_code and MARK not in value else decode(value)
        # Not cached for functions without the annotation: the cache would keep a lambda, and what it captures, alive.
        if "return" not in getattr(function, "__annotations__", ()):
            return json.load_for_code(value)
        decode = _decoder_for(function)
        if ahead is not None:
            ahead.decoders[function] = decode
        return decode(value)


def name_of_run(function: Any, name: str | None) -> str:
    """The name of a run: the one given, or that of its function. Raises InvalidInput."""
    if not callable(function):
        raise InvalidInput(f"run() takes a function and its arguments, not {function!r}. Leave out the ().")
    if name is not None:
        return check_name(name, "name of a run")
    return getattr(function, "__name__", None) or type(function).__name__


def checked_kwargs(kwargs: Any) -> Mapping[str, Any]:
    """The keyword arguments of a run. Raises InvalidInput if they are not a dict of names."""
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise InvalidInput(f"kwargs={kwargs!r}: give the keyword arguments as a dict with their names as keys.")
    return dict(kwargs)


class Sleep(Operation):
    """`ctx.sleep`."""

    def __init__(self, micros: int) -> None:
        super().__init__("sleep")
        self.micros = micros

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        return kind == "timer" and not attempt

    def waits_to_arm(self) -> list[Arm]:
        return [Arm("timer", new_id(), self.place, timeout=self.micros)]


class WaitForSignal(Operation):
    """`ctx.wait_for_signal`: one wait per name, all at the same place."""

    def __init__(self, names: tuple[tuple[Literal["signal", "broadcast"], str], ...], micros: int | None) -> None:
        super().__init__("wait", "|".join(name for _, name in names))
        self.names = names
        self.micros = micros

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        return (kind, name) in self.names

    def waits_to_arm(self) -> list[Arm]:
        return [Arm(kind, new_id(), self.place, name=name, timeout=self.micros) for kind, name in self.names]

    def decode(self, value: str) -> Any:
        row = json.load_for_code(value)
        return Signal(row["id"], row["kind"], row["name"], row["payload"], from_micros(row["at"]))

    def result_of(self, row: InboxRow) -> Result:
        if row.kind == "timer":
            seconds = (self.micros or 0) / 1_000_000
            names = " or ".join(f'"{name}"' for _, name in self.names)
            return None, encode_error(SignalTimeout(f"signal {names} timed out after {seconds:g} s"))
        payload = msgspec.Raw(row.payload.encode())
        body = {"id": row.seq, "kind": row.kind, "name": row.name, "payload": payload, "at": row.at}
        return msgspec.json.encode(body).decode(), None


class AwakeableAnswer(Operation):
    """The answer to an awakeable; open from the creation of the awakeable."""

    told = False  # an event says that the code awaits it

    def __init__(self, id: str, decoder: Callable[[str], Any], title: str | None) -> None:
        super().__init__("awakeable")
        self.id = id
        self.title = title
        self.new: NewAwakeable | None = None
        self._decoder = decoder

    def waits_to_arm(self) -> list[Arm]:
        return [Arm("awakeable", new_id(), self.place, name=self.id, timeout=self.new.timeout if self.new else None)]

    def decode(self, value: str) -> Any:
        return self._decoder(value)

    def result_of(self, row: InboxRow) -> Result:
        answer = load_answer(row.payload)
        error = answer.failure(self.id, self.title)
        return (answer.text, None) if error is None else (None, encode_error(error))

    def withdrawn_error(self) -> BaseException:
        return AwakeableRejected(
            f"Awakeable {self.id} was withdrawn: ctx.first was decided by another operation, or another one of "
            "ctx.gather failed. Create a new awakeable if you still need an answer."
        )


class ChildCall(Operation):
    """`ctx.call`: a child instance and its result."""

    def __init__(self, child: NewInstance) -> None:
        super().__init__("call", child.definition)
        self.child = child

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        return kind == "children"

    def waits_to_arm(self) -> list[Arm]:
        return [Arm("children", new_id(), self.place, children=(self.child,), join=1)]

    def result_of(self, id: str, status: str, result: str | None, error: str | None) -> Result:
        if status == "done":
            return result, None
        text = f"{self.name} {id} {'was cancelled' if status == 'cancelled' else 'failed'}"
        if error and error != status:  # a cancel without a reason has the error "cancelled"
            text = f"{text}: {error}"
        return None, encode_error(CallFailed(text, id=id, error=error))


class EffectOperation(Operation):
    """An effect (a signal, a start, …): applied in the turn that commits its line, which also fills in the line."""

    def __init__(self, kind: str, name: str, effect: Effect) -> None:
        super().__init__(kind, name)
        self.effect = effect

    @property
    def needs_wait(self) -> bool:
        return False

    def matches_wait(self, kind: WaitKind, name: str | None, attempt: str) -> bool:
        return False  # `ctx.signal` is of the same kind as the wait for a signal

    def decode(self, value: str) -> Any:
        if self.kind == "signal":
            return Delivery(*json.load(value))
        return json.load_for_code(value)


def label_of(kind: str, name: str | None) -> str:
    """An operation as text: "run build"."""
    return kind if name is None else f"{kind} {name}"


def shortened(label: str) -> str:
    """A label as the step of an instance, at most 255 bytes."""
    return label if len(label) <= _MAX_STEP_BYTES // 4 else label.encode()[:_MAX_STEP_BYTES].decode(errors="ignore")


def entry_of(place: str) -> int:
    """The entry a wait belongs to. A place is `ENTRY`, or `ENTRY+ATTEMPT` for the retry of a run."""
    return int(place.partition("+")[0])


_load, _load_for_code = json.load, json.load_for_code
_PLAIN_TYPES = (None, type(None), Any, object, str, int, float, bool, dict, list)


@lru_cache(maxsize=4096)
def _decoder_for(function: Callable[..., Any]) -> Callable[[str], Any]:
    """The decoder of the results of a function: as the type it is annotated to return, if JSON can become that type."""
    try:
        returns = typing.get_type_hints(function).get("return")
        if returns in _PLAIN_TYPES:
            return json.load_for_code
        read = json.Codec(returns).prepare().load_for_code
    except Exception:  # hints that cannot be resolved, or a type that JSON cannot become: plain JSON
        return json.load_for_code
    if inspect.isclass(returns) and json.is_typed(returns):
        return read

    def read_or_plain(text: str) -> Any:
        try:
            return read(text)
        except InvalidState:  # it returned something else than it is annotated with
            return json.load_for_code(text)

    return read_or_plain
