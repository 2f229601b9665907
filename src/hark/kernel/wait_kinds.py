"""The kinds of waits: one class per kind, with everything that differs between them.

Park, sweep, claim, finish and `hark instance why` look up the class of a wait in `WAIT_KINDS` and contain no test for a
kind. A new kind is a class here, its name in `values.WaitKind`, and the verb that answers it (see deliver.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from msgspec import Struct

from hark.kernel import children, settle
from hark.kernel.requests import Commit, StartInstances
from hark.kernel.rows import LockedRow
from hark.kernel.runs import run_signals
from hark.model.activation import WaitRow
from hark.model.decisions import Arm, Settle
from hark.model.values import Status, WaitKind

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class UnfinishedChild(NamedTuple):
    """A child that has not ended."""

    id: str
    status: str
    step: str
    lane: str = ""
    queue: str = ""


class WaitContext(Struct):
    """The data that an explanation of a wait may refer to."""

    target: str  # the instance that waits, as people address it
    unfinished: Sequence[UnfinishedChild] = ()  # the children it waits for
    question: str | None = None  # the question of its awakeable
    example: str | None = None  # JSON with the shape of an answer, if its awakeable has a schema


class WaitBehaviour:
    """A kind of wait. By default, a wait is answered by the inbox rows of its kind and name."""

    status: ClassVar[Status] = "awaiting_signal"
    """The status of an instance that is parked on such a wait."""
    has_one_answer: ClassVar[bool] = False
    """True when an inbox row of its kind and name settles it for good: kept after that, it must not time out."""
    has_awakeable: ClassVar[bool] = False
    """True when an awakeable belongs to it, which the end of the instance cancels."""
    has_children: ClassVar[bool] = False
    """True when children belong to it, which a claim needs."""
    shares_deadline: ClassVar[bool] = True
    """True when one answer at a place is enough for all its waits there that time out together."""

    # -- in a turn --------------------------------------------------------------------------------

    def plan(self, turn: Turn, arm: Arm, sender: Commit) -> None:
        """Reserve names before the lock, or add the requests that the arming brings along."""

    def remaining(self, turn: Turn, arm: Arm) -> int | None:
        """The number of ends that the wait counts down, or None if it does not count."""
        return None

    def armed(self, turn: Turn, row: LockedRow, wait: WaitRow) -> None:
        """Post an answer that exists already, after the wait was armed."""

    def on_deadline(self, turn: Turn, row: LockedRow, waits: list[WaitRow]) -> Settle | None:
        """Post the answer to waits whose deadline has passed: several at one place, or one that is alone. Returns the
        awakeable to settle with it, if any."""
        turn.inbox.post(row, "timer", waits[0].place, "null", wait_id=waits[0].id)
        turn.history.timed_out(row.id, waits)
        return None

    # -- for people -------------------------------------------------------------------------------

    def describe(self, wait: WaitRow) -> str:
        """The end of the sentence "It waits for"."""
        return f"{wait.kind} {wait.name!r}"

    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...] | None:
        """The words of the `hark` command that answers the wait, or that shows what it depends on."""
        return None

    def note(self, wait: WaitRow, context: WaitContext) -> str | None:
        """A remark for the person who reads the explanation, or None."""
        return None


class SignalWait(WaitBehaviour):
    """Receives signals: of its own instance, or of the run whose id is its key (run_signals.py)."""

    def plan(self, turn: Turn, arm: Arm, sender: Commit) -> None:
        if arm.run is not None:
            turn.locks.ids.add(arm.run)

    def armed(self, turn: Turn, row: LockedRow, wait: WaitRow) -> None:
        if wait.key is not None:
            run_signals.queues(turn).armed.append((row, wait))

    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...]:
        return "signal", wait.key or context.target, wait.name or ""


class BroadcastWait(WaitBehaviour):
    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...]:
        return "broadcast", wait.name or ""


class MessageWait(WaitBehaviour):
    """Has one receiver per name and key: turns that arm it reserve both."""

    def plan(self, turn: Turn, arm: Arm, sender: Commit) -> None:
        turn.locks.reserve_message(arm.name or "", arm.key or "")
        turn.batch.message_waits.append((sender, arm))

    def describe(self, wait: WaitRow) -> str:
        return f"message {wait.name!r} with key {wait.key!r}"

    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...]:
        return "message", wait.name or "", wait.key or ""


class TimerWait(WaitBehaviour):
    """Has nothing but a deadline."""

    def describe(self, wait: WaitRow) -> str:
        return "a time"

    def note(self, wait: WaitRow, context: WaitContext) -> str:
        return "it wakes by itself when the time has come, as long as a worker runs"


class AwakeableWait(WaitBehaviour):
    """Stands for an awakeable, whose id is its name. Its deadline settles the awakeable."""

    has_one_answer = True
    has_awakeable = True
    shares_deadline = False

    def on_deadline(self, turn: Turn, row: LockedRow, waits: list[WaitRow]) -> Settle:
        [wait] = waits
        assert wait.name is not None
        timeout = Settle(wait.name, "TIMEOUT")
        settle.post_answer(turn, row, timeout)
        return timeout

    def describe(self, wait: WaitRow) -> str:
        return f"an answer to {wait.name}"

    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...]:
        payload = () if context.example is None else ("--payload", context.example)
        return "awakeable", "resolve", wait.name or "", *payload

    def note(self, wait: WaitRow, context: WaitContext) -> str | None:
        return context.question


class ChildrenWait(WaitBehaviour):
    """Counts down the ends of the children that start with it (M8); see children.py."""

    status = "awaiting_children"
    has_children = True

    def plan(self, turn: Turn, arm: Arm, sender: Commit) -> None:
        if arm.children:
            turn.batch.add(StartInstances(items=list(arm.children), parent_wait=arm.id, sender=sender))

    def remaining(self, turn: Turn, arm: Arm) -> int:
        return 0 if arm.answers_each else arm.join - len(turn.children.failed_to_start.get(arm.id, ()))

    def armed(self, turn: Turn, row: LockedRow, wait: WaitRow) -> None:
        if wait.answers_each:
            for end in turn.children.failed_to_start.get(wait.id, ()):
                children.post_end(turn, row, end)
        elif wait.remaining is not None and wait.remaining <= 0:
            turn.inbox.post(row, "children", "", "null", wait_id=wait.id)

    def describe(self, wait: WaitRow) -> str:
        return "its children"

    def wake_command(self, wait: WaitRow, context: WaitContext) -> tuple[str, ...] | None:
        return ("instance", "why", context.unfinished[0].id) if context.unfinished else None

    def note(self, wait: WaitRow, context: WaitContext) -> str:
        children = ", ".join(f"{child.id} ({child.status} at {child.step})" for child in context.unfinished)
        if wait.answers_each:
            return f"these have not ended: {children}" if children else "it wakes when one of them ends"
        return f"{wait.remaining} still to end of: {children}" if children else f"{wait.remaining} still to end"


WAIT_KINDS: Final[dict[WaitKind, WaitBehaviour]] = {
    "signal": SignalWait(),
    "broadcast": BroadcastWait(),
    "message": MessageWait(),
    "timer": TimerWait(),
    "awakeable": AwakeableWait(),
    "children": ChildrenWait(),
}
