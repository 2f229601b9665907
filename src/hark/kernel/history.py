"""History: the events that a turn writes, and the signals and messages that were not stored (near misses, D7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, assert_never

import msgspec
from msgspec import Struct

from hark.kernel.result import Failed
from hark.model.activation import Claim, WaitRow
from hark.model.decisions import Advance, Decision, Finish, Hold, Park, Proceed, Redo, Release
from hark.model.events import EventType
from hark.model.failures import Failure
from hark.model.names import from_micros
from hark.store import statements as sql
from hark.store.protocol import Tx

_encode = msgspec.json.Encoder().encode
_MAX_WAITS = 20  # of one event


class History:
    """The events and near misses of one turn, written by its last statements."""

    __slots__ = ("_written", "events", "failures", "near_misses", "now", "retries", "timeouts")

    def __init__(self, now: int) -> None:
        self.now = now
        self.events: list[tuple[str, EventType, str | None, str | None]] = []
        self.near_misses: list[tuple[str, str, str, str, str | None, str | None]] = []
        self.failures: list[Failed] = []
        self.retries = 0  # events of this type
        self.timeouts = 0
        self._written = 0  # the number of events that are in the store

    def event(self, id: str, type: EventType, step: str | None = None, /, **data: Any) -> None:
        self.events.append((id, type, step, _encode(data).decode() if data else None))

    def outcome(self, claim: Claim, decision: Decision) -> None:
        """Record the event of a committed outcome; `parked` records that of a park."""
        match decision.move:
            case Redo(delay) if decision.label == "retry":
                self._retried(claim, decision, self.now + delay if delay else None)
            case Finish(status="failed", error=error):
                self._stopped(claim, decision, error)
            case Hold() as move:
                self.events.append((claim.id, "held", decision.step, move.details))
                failure = Failure(None, move.error, move.traceback)
                failed = Failed(claim.id, claim.definition, decision.step, claim.attempt, "held", failure)
                self.failures.append(failed)
            case Advance() | Proceed() | Redo() | Park() | Finish() | Release():
                self.events.append((claim.id, decision.label, decision.step, None))
            case _ as never:
                assert_never(never)

    def _retried(self, claim: Claim, decision: Decision, until: int | None) -> None:
        failure, attempt = decision.failure, claim.attempt
        self.retries += 1
        if failure is None:  # the step returned `Retry`
            self.event(claim.id, "retry", decision.step, attempt=attempt, until=_time(until))
            return
        self.event(
            claim.id, "retry", decision.step,
            type=failure.type, message=failure.message, traceback=failure.traceback, attempt=attempt,
            until=_time(until),
        )  # fmt: skip
        self.failures.append(Failed(claim.id, claim.definition, decision.step, attempt, "retry", failure, until))

    def _stopped(self, claim: Claim, decision: Decision, error: str | None) -> None:
        failure = decision.failure or Failure(None, error or "")
        self.event(
            claim.id, "stop", decision.step,
            type=failure.type, message=failure.message, traceback=failure.traceback, error=error,
        )  # fmt: skip
        thrown = any(event.type == "thrown" for event in decision.events)
        type: Literal["thrown", "stop"] = "thrown" if thrown else "stop"
        self.failures.append(Failed(claim.id, claim.definition, decision.step, claim.attempt, type, failure))

    def failed(
        self, id: str, definition: str, step: str | None, attempt: int, error: str, failure: Failure | None = None
    ) -> None:
        """Record the event of an instance that the engine fails, or whose undo could not finish."""
        failure = failure or Failure(None, error)
        self.event(
            id, "failed", step,
            type=failure.type, message=failure.message, traceback=failure.traceback, error=error,
        )  # fmt: skip
        self.failures.append(Failed(id, definition, step, attempt, "failed", failure))

    def undo_failed(self, claim: Claim, decision: Decision, error: str) -> None:
        failure = decision.failure or Failure(None, error)
        self.event(
            claim.id, "undo_failed", decision.step,
            type=failure.type, message=failure.message, traceback=failure.traceback, attempt=claim.attempt, error=error,
        )  # fmt: skip
        self.failures.append(Failed(claim.id, claim.definition, decision.step, claim.attempt, "undo_failed", failure))

    def failed_attempts(self, claim: Claim, decision: Decision) -> None:
        """Record the failed attempts that the event of an outcome does not show, before that event."""
        for failed in decision.failed_attempts:
            failure, until = failed.failure, None
            limit = {} if failed.retries is None else {"retries": failed.retries}
            match failed.type:
                case "retry":
                    self.retries += 1
                    until = self._next_attempt(decision, failed.place)
                    self.event(
                        claim.id, "retry", failed.step,
                        type=failure.type, message=failure.message, traceback=failure.traceback, attempt=failed.attempt,
                        until=_time(until), place=failed.place, **limit,
                    )  # fmt: skip
                case "undo_failed":
                    self.event(
                        claim.id, "undo_failed", failed.step,
                        type=failure.type, message=failure.message, traceback=failure.traceback, attempt=failed.attempt,
                        error=failure.text, **limit,
                    )  # fmt: skip
                case "error" | "undoing":
                    self.event(
                        claim.id, "error", failed.step,
                        type=failure.type, message=failure.message, traceback=failure.traceback, attempt=failed.attempt,
                        **limit,
                    )  # fmt: skip
                case _ as never:
                    assert_never(never)
            self.failures.append(
                Failed(
                    claim.id, claim.definition, failed.step, failed.attempt, failed.type, failure, until, failed.retries
                )
            )

    def _next_attempt(self, decision: Decision, place: str | None) -> int | None:
        """The deadline of the wait that the outcome arms at this place."""
        arms = () if place is None else decision.move.arm
        return next((arm.due(self.now) for arm in arms if arm.place == place), None)

    def parked(self, claim: Claim, decision: Decision, move: Park, waits: Iterable[WaitRow]) -> None:
        """Record the event of an instance that begins to wait, with its waits and the first deadline."""
        until, listed, more = _listed([wait for wait in waits if wait.fired_at is None], move.unawaited)
        self.event(claim.id, decision.label, decision.step, until=until, waits=listed, **more)

    def waits_executing(self, id: str, wait: WaitRow) -> None:
        """Record the event of a task that begins to wait for an awakeable, and keeps its slot for now."""
        until, listed, _ = _listed([wait])
        self.event(id, "await", None, until=until, waits=listed)

    def asked(self, id: str, awakeable: str, *, awaited: bool = False) -> None:
        """Record the event of an awakeable that an instance has created, or asks again."""
        begun = {"awaited": True} if awaited else {}
        self.event(id, "awakeable", None, awakeable=awakeable, status="PENDING", **begun)

    def withdrawn(self, awakeables: Iterable[sql.AskedRow]) -> None:
        """Record the events of awakeables that were cancelled with the instance or the attempt that had asked."""
        for row in sorted(awakeables):
            self.event(row.task_id or row.instance_id, "awakeable", None, awakeable=row.id, status="CANCELLED")

    def timed_out(self, id: str, waits: list[WaitRow]) -> None:
        self.timeouts += 1
        until, listed, more = _listed(waits)
        self.event(id, "timeout", None, until=until, waits=listed, **more)

    def near_miss(
        self, kind: str, target: str, name: str, reason: str, id: str | None = None, detail: str | None = None
    ) -> None:
        """Record a signal or message that was not stored: no inbox has it, and `hark instance why` reads it here.
        `detail` says why it was refused."""
        self.near_misses.append((kind, target, name, reason, id, detail))

    async def write(self, tx: Tx) -> None:
        """Write the events and near misses that were recorded since the last call."""
        if self.near_misses:
            near_misses, self.near_misses = self.near_misses, []
            await tx.fetch(sql.insert_misses, near_misses)
        events = self.events[self._written :] if self._written else self.events
        if events:
            self._written = len(self.events)
            await tx.fetch(sql.insert_events, events, tx=tx.xid)


class _Wait(Struct, frozen=True, gc=False, omit_defaults=True):
    """A wait in the data of an event. Not a dict: every park writes one."""

    kind: str
    name: str | None = None
    key: str | None = None
    remaining: int | None = None
    awaited: bool = True


def _listed(waits: list[WaitRow], unawaited: Sequence[str] = ()) -> tuple[datetime | None, list[_Wait], dict[str, int]]:
    """The first deadline of these waits, the waits as the data of an event lists them, and how many are not listed."""
    until: int | None = None
    listed: list[_Wait] = []
    for wait in waits:
        if wait.deadline is not None and (until is None or wait.deadline < until):
            until = wait.deadline
        if len(listed) < _MAX_WAITS:
            # With `answers_each` nothing is counted down: the number that is left is not known here.
            remaining = None if wait.answers_each else wait.remaining
            listed.append(_Wait(wait.kind, wait.name, wait.shown_key, remaining, wait.place not in unawaited))
    return _time(until), listed, {"more": len(waits) - _MAX_WAITS} if len(waits) > _MAX_WAITS else {}


def _time(at: int | None) -> datetime | None:
    """A time in the data of an event: ISO 8601 in UTC, as everywhere in JSON."""
    return None if at is None else from_micros(at)
