"""What an interpreter decides, in the kernel's words.

The border between programs/ (which know what a step means) and kernel/ (which knows what a commit
means). One parking outcome, `Park`, carries any number of waits of every kind; `Await` and `Spawn`
are sugar for it. Values are JSON text by now: nothing here can fail to be stored.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field


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
    status: Literal["RESOLVED", "REJECTED", "CANCELLED"]  # cancelled: withdrawn by the one who asked
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

    kind: Literal["signal", "broadcast", "message", "timer", "awakeable", "children"]
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
    """On to another step. With nothing but a step it runs straight on, on the claim it holds."""

    rate_limit: str | None = None
    weight: float = 1
    rekey: bool = False
    concurrency_key: str | None = None


class Proceed(Advance, gc=False):
    """On, with waits: a function between two entries of its journal. `disarm` names the waits that go."""

    arm: tuple[Arm, ...] = ()
    disarm: tuple[str, ...] = ()
    awakeables: tuple[NewAwakeable, ...] = ()
    hold: bool = False  # something of it is running: it cannot make room for others
    expire: bool = False  # a deadline of its own has come while it ran
    anew: bool = False  # from the beginning: another visit, a journal of its own


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

    label: str  # the event's type, and what a drain tallies
    step: str
    state: str
    move: Advance | Redo | Park | Finish
    consume: tuple[int, ...] = ()
    handed: tuple[int, ...] = ()  # answers this activation saw and left: a park does not wake on them
    effects: list[Effect] = field(default_factory=list)
    data: str | None = None
    journal: list[Entry] | None = None
    cut: int | None = None  # lines of the journal from this one on go first
    restore: tuple[int, ...] = ()  # signals those lines had consumed
