"""What an interpreter decides, in the kernel's words.

The border between programs/ (which know what a step means) and kernel/ (which knows what a commit
means). One parking outcome, `Park`, carries any number of waits of every kind; `Await` and `Spawn`
are sugar for it. Values are JSON text by now: nothing here can fail to be stored.
"""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import Struct, field

from hark.model.events import OutcomeType
from hark.model.values import WaitKind


class NewInstance(Struct, gc=False):
    """A start, as data. What is None is filled in from the definition as the store knows it."""

    definition: str
    state: str
    id: str
    named: bool = False  # the id was given, not made: it may be taken
    version: int | None = None
    step: str | None = None
    queue: str | None = None
    priority: int = 0
    correlation_key: str | None = None
    scope: str = "live"
    delay: int | None = None
    at: int | None = None
    concurrency_key: str | None = None
    rate_limit: str | None = None
    weight: float = 1


class SendSignal(Struct, gc=False):
    """Effect: a signal to an id or a key."""

    target: str
    name: str
    payload: str
    dedup_key: str | None = None


class SendBroadcast(Struct, gc=False):
    """Effect: a broadcast."""

    name: str
    payload: str
    dedup_key: str | None = None


class Settle(Struct, gc=False):
    """Effect: an answer to an awakeable."""

    awakeable: str
    status: Literal["RESOLVED", "REJECTED", "TIMEOUT", "CANCELLED"]  # cancelled: withdrawn by the instance that asked
    payload: str | None = None
    error: str | None = None
    by: str | None = None
    via: str | None = None  # the door it came through


class CancelChild(Struct, gc=False):
    """Effect: nobody waits for this child any more."""

    id: str
    reason: str


Effect = SendSignal | SendBroadcast | NewInstance | Settle | CancelChild


class Arm(Struct, gc=False):
    """A wait to arm. With both, the earlier of `timeout` (from now) and `deadline` counts."""

    kind: WaitKind
    id: str
    place: str = ""
    name: str | None = None
    key: str | None = None
    timeout: int | None = None
    deadline: int | None = None
    children: tuple[NewInstance, ...] = ()
    join: int = 0


class NewAwakeable(Struct, gc=False):
    """An awakeable to create, with the wait that stands for it."""

    id: str
    entry_index: int
    wait: str
    place: str = ""
    task: str | None = None
    timeout: int | None = None
    nonce: str = ""
    title: str | None = None
    description: str | None = None
    schema: str | None = None
    assignees: str | None = None


class Advance(Struct, gc=False):
    """Go to another step. Without a rate limit and with the same concurrency key it runs ahead."""

    rate_limit: str | None = None
    weight: float = 1
    rekey: bool = False  # `concurrency_key` replaces the present one
    concurrency_key: str | None = None


class Proceed(Struct, gc=False):
    """Continue a function between two entries of its journal. `disarm` names the waits to delete."""

    arm: tuple[Arm, ...] = ()
    disarm: tuple[str, ...] = ()
    awakeables: tuple[NewAwakeable, ...] = ()
    keep_slot: bool = False  # do not give the slot to more urgent work: functions it called are still running
    fire_deadlines: bool = False  # a deadline of one of its waits passed while it was executing
    continue_as_new: bool = False  # begin the next visit, with an empty journal


class Redo(Struct, gc=False):
    """The same step again, after `delay` µs, one attempt later."""

    delay: int


class Park(Struct, gc=False):
    """Wait. `disarm` names the waits that go; None means all of them."""

    arm: tuple[Arm, ...] = ()
    disarm: tuple[str, ...] | None = None
    awakeables: tuple[NewAwakeable, ...] = ()


class Finish(Struct, gc=False):
    """The end."""

    status: Literal["done", "failed"]
    result: str | None = None
    error: str | None = None


Move = Advance | Proceed | Redo | Park | Finish


def runs_ahead(move: Move) -> bool:
    """True when the next step runs directly after the commit, on the same claim and in the same slot.

    A rate-limited step, a step under another concurrency key and a new visit are queued and claimed again: a
    claim is where tokens and slots are taken.
    """
    match move:
        case Advance():
            return move.rate_limit is None and not move.rekey
        case Proceed():
            return not move.continue_as_new
        case Redo() | Park() | Finish():
            return False
        case _ as never:
            assert_never(never)


class Entry(Struct, gc=False):
    """A line of the journal to write. What an `effect` came to is filled in by the turn that does it."""

    seq: int
    entry: int
    kind: str
    name: str | None = None
    value: str | None = None
    error: str | None = None
    effect: Effect | None = None


class Decision(Struct, gc=False):
    """An outcome and all that commits with it."""

    label: OutcomeType  # the event's type, and what a drain tallies
    step: str
    state: str
    move: Move
    consume: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()  # answers this activation saw and left: a park does not wake on them
    effects: list[Effect] = field(default_factory=list)
    data: str | None = None
    journal: list[Entry] | None = None
    cut: int | None = None  # lines of the journal from this one on go first
    restore: tuple[int, ...] = ()  # signals those lines had consumed

    def makes_work(self) -> bool:
        """True when committing this may make an instance claimable: this one or another.

        The turn that commits it then also claims, so that the work does not wait for the next turn.
        """
        move = self.move
        if not runs_ahead(move) or self.effects:
            return True
        return type(move) is Proceed and (bool(move.arm) or any(line.effect for line in self.journal or ()))

    def is_plain(self) -> bool:
        """True when this runs ahead and writes nothing but its row, its event and lines of its journal."""
        move = self.move
        if not runs_ahead(move) or self.effects or self.consume:
            return False
        if type(move) is Proceed:
            if move.arm or move.disarm or move.awakeables or move.fire_deadlines or self.restore:
                return False
            return self.cut is None and all(line.effect is None for line in self.journal or ())
        return True
