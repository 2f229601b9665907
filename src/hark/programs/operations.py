"""Operations: what a function asks for, each at its entry.

An operation is a promise that is kept by a line of the journal. It knows which waits stand for it in
the store and how to read its line, live and in a replay by the same road. When it is kept is decided
in replay.py.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import Any, Literal, Protocol

import msgspec

from hark.model import json
from hark.model.activation import InboxRow
from hark.model.decisions import Arm, Effect, NewAwakeable, NewInstance
from hark.model.error_codec import decode_error, encode_error
from hark.model.errors import AwakeableRejected, AwakeableTimedOut, CallFailed, SignalTimeout
from hark.model.names import from_micros, new_id
from hark.model.values import Delivery, Signal
from hark.programs.branches import Promise

Fact = tuple[str | None, str | None]  # value and error, as a line of the journal has them


class Asked(Protocol):
    """Whom an operation was asked of."""

    def catch_up(self, operation: Operation) -> bool:
        """Is it known already, from the journal?"""
        ...

    def forget(self, operation: Operation) -> None:
        """It was withdrawn."""
        ...


class Operation(Promise):
    """Something asked for at an entry."""

    entry = -1
    session: Asked | None = None  # once it has an entry

    def __init__(self, kind: str, name: str | None = None) -> None:
        self.kind = kind
        self.name = name

    def __await__(self) -> Generator[Any, None, Any]:
        if not self.done and (self.session is None or not self.session.catch_up(self)):
            yield self
        return self.value if self.error is None else self.outcome()

    @property
    def label(self) -> str:
        """For people, and for the check that a replay takes the same road."""
        return named(self.kind, self.name)

    @property
    def place(self) -> str:
        return str(self.entry)

    @property
    def waits(self) -> bool:
        """Is there something in the store that stands for it?"""
        return True

    def stands(self, kind: str, name: str | None, attempt: str) -> bool:
        """Can a wait of this kind and name be its own?"""
        return kind == self.kind and not attempt

    def arms(self) -> list[Arm]:
        """The waits that stand for it while it is open."""
        return []

    def learn(self, value: str | None, error: str | None) -> None:
        """Its line is there."""
        if error is not None:
            failure = decode_error(error)
            failure.entry = self.entry  # type: ignore[attr-defined]  # a retry begins again there
            self.keep(error=failure)
            return
        try:
            known = self.read(value or "null")
        except Exception as failure:  # the code has changed: what it reads does not fit its types any more
            self.keep(error=failure)
            return
        if self.watchers:
            self.keep(known)
        else:  # the same: nobody has to hear of it
            self.done, self.value = True, known

    def withdraw(self) -> None:
        if not self.done:
            super().withdraw()
            if self.session is not None:
                self.session.forget(self)

    def read(self, value: str) -> Any:
        return json.load(value)


class Run(Operation):
    """A function of the user's, to be run once."""

    kind = "run"
    attempt = 0
    waiting = False  # for its next attempt
    begun = False

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], name: str, retries: int, backoff: int):
        self.name = name
        self.function = function
        self.args = args
        self.retries = retries
        self.backoff = backoff

    @property
    def place(self) -> str:
        return f"{self.entry}+{self.attempt}" if self.attempt else str(self.entry)

    @property
    def waits(self) -> bool:
        return self.attempt > 0  # also while it is tried again: the wait is where the attempts are counted

    def stands(self, kind: str, name: str | None, attempt: str) -> bool:
        return kind == "timer" and attempt != ""

    def arms(self) -> list[Arm]:
        return [Arm("timer", new_id(), self.place, timeout=min(self.backoff << (self.attempt - 1), 1 << 50))]

    def read(self, value: str) -> Any:
        function = self.function
        if "return" in getattr(function, "__annotations__", ()):  # a lambda is not kept, nor what it holds
            return _reader_of(function)(value)
        return json.load(value)


class Sleep(Operation):
    def __init__(self, micros: int) -> None:
        super().__init__("sleep")
        self.micros = micros

    def stands(self, kind: str, name: str | None, attempt: str) -> bool:
        return kind == "timer" and not attempt

    def arms(self) -> list[Arm]:
        return [Arm("timer", new_id(), self.place, timeout=self.micros)]


class WaitForSignal(Operation):
    def __init__(self, names: tuple[tuple[Literal["signal", "broadcast"], str], ...], micros: int | None) -> None:
        super().__init__("wait", "|".join(name for _, name in names))
        self.names = names
        self.micros = micros

    def stands(self, kind: str, name: str | None, attempt: str) -> bool:
        return (kind, name) in self.names

    def arms(self) -> list[Arm]:
        return [Arm(kind, new_id(), self.place, name=name, timeout=self.micros) for kind, name in self.names]

    def read(self, value: str) -> Any:
        row = json.load(value)
        return Signal(row["id"], row["kind"], row["name"], row["payload"], from_micros(row["at"]))

    def fact(self, row: InboxRow) -> Fact:
        if row.kind == "timer":
            seconds = (self.micros or 0) / 1_000_000
            return None, encode_error(SignalTimeout(f'signal "{self.name}" timed out after {seconds:g} s'))
        body = {"id": row.seq, "kind": row.kind, "name": row.name, "payload": _raw(row.payload), "at": row.at}
        return msgspec.json.encode(body).decode(), None


class AwakeableAnswer(Operation):
    """The answer to an awakeable, open from its creation."""

    def __init__(self, id: str, decode: Callable[[str], Any], title: str | None) -> None:
        super().__init__("awakeable")
        self.id = id
        self.decode = decode
        self.title = title
        self.new: NewAwakeable | None = None

    def arms(self) -> list[Arm]:
        return [Arm("awakeable", new_id(), self.place, name=self.id, timeout=self.new.timeout if self.new else None)]

    def read(self, value: str) -> Any:
        return self.decode(value)

    def fact(self, row: InboxRow) -> Fact:
        body = msgspec.json.decode(row.payload, type=_Settled)
        what = f"awakeable {self.id}" + (f" ({self.title})" if self.title else "")
        if body.status == "RESOLVED":
            return bytes(body.payload).decode(), None
        if body.status == "TIMEOUT":
            return None, encode_error(AwakeableTimedOut(f"Nobody answered {what} in time."))
        return None, encode_error(AwakeableRejected(body.error or "rejected"))

    def gone(self) -> BaseException:
        return AwakeableRejected(f"awakeable {self.id} was withdrawn: another of ctx.first came before it")


class _Settled(msgspec.Struct):
    status: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None


class ChildCall(Operation):
    """A child, and its result."""

    def __init__(self, child: NewInstance) -> None:
        super().__init__("call", child.definition)
        self.child = child

    def stands(self, kind: str, name: str | None, attempt: str) -> bool:
        return kind == "children"

    def arms(self) -> list[Arm]:
        return [Arm("children", new_id(), self.place, children=(self.child,), join=1)]

    def fact(self, id: str, status: str, result: str | None, error: str | None) -> Fact:
        if status == "done":
            return result, None
        text = f"{self.name} {id} {'was cancelled' if status == 'cancelled' else 'failed'}: {error}"
        return None, encode_error(CallFailed(text, id=id, error=error))


class Do(Operation):
    """An effect: done in the turn that commits its line."""

    def __init__(self, kind: str, name: str, effect: Effect) -> None:
        super().__init__(kind, name)
        self.effect = effect

    @property
    def waits(self) -> bool:
        return False

    def read(self, value: str) -> Any:
        if self.kind == "signal":
            return Delivery(*json.load(value))
        return json.load(value)


def named(kind: str, name: str | None) -> str:
    return kind if name is None else f"{kind} {name}"


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


@lru_cache(maxsize=4096)
def _reader_of(function: Callable[..., Any]) -> Callable[[str], Any]:
    """A function that says it returns a dataclass, Struct or model gets that back; any other plain JSON."""
    try:
        returns = typing.get_type_hints(function).get("return")
    except Exception:  # hints that cannot be resolved promise nothing
        return json.load
    if inspect.isclass(returns) and json.is_typed(returns):
        return json.Codec(returns).load
    return json.load
