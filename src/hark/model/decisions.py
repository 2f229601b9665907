"""Decisions: the outcome of a step in the kernel's terms.

The border between programs/, which interpret the outcomes of user code, and kernel/, which commits them. A decision has
one move (`Advance`, `Proceed`, `Redo`, `Park`, `Finish`, `Hold` or `Release`) and any number of effects. A `Park` has
any number of waits of every kind; `Await` and `Spawn` both become one. Values are JSON text here, so that everything
can be stored.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from msgspec import Struct, field

from hark.model.events import EventType, OutcomeType
from hark.model.failures import Failure
from hark.model.values import SettledStatus, WaitKind

UNDO: Final = "undo"  # the step of a function that is being undone


class NewInstance(Struct, gc=False):
    """An instance to start; also an effect. Fields that are None are taken from the stored definition."""

    definition: str
    state: str
    id: str
    named: bool = False  # the caller chose the id, so another instance may have it already
    version: int | None = None
    step: str | None = None
    queue: str | None = None
    priority: int = 0
    correlation_key: str | None = None
    scope: str = "live"
    delay: int | None = None  # µs
    at: int | None = None  # µs since 1970; of both, the earlier counts
    concurrency_key: str | None = None
    rate_limit: str | None = None
    weight: float = 1
    trace: str | None = None  # the W3C traceparent of the span that starts it
    tags: dict[str, str] | None = None
    lane: str | None = None  # with `kind`: the definition is not looked up, and `version` and `step` are given too
    kind: str | None = None
    on_cancel: str | None = None  # with `lane`: the step that a cancel goes to
    scheduled_at: int | None = None  # the tick that starts it, µs since 1970
    schedule: str | None = None  # the schedule that starts it


class NewTask(Struct, gc=False):
    """Effect: start a child whose end counts against a wait of the sender, which is armed already or by this outcome.

    A child that cannot start gets a row that has failed, and its end counts."""

    item: NewInstance
    parent_wait: str


class RetryChild(Struct, gc=False):
    """Effect: run a child of the sender again, in its own row, without the waits it had; its next end counts again.

    The child keeps waits for children of its own. Fields that are given replace those of the row. A child that still
    runs begins again too. If there is no such child any more, and `parent_wait` is given, that is a failed end."""

    id: str
    step: str | None = None
    state: str | None = None
    lane: str | None = None
    queue: str | None = None
    version: int | None = None
    parent_wait: str | None = None  # the wait of the sender that its end counts against


class SendSignal(Struct, gc=False):
    """Effect: send a signal to an id or a correlation key."""

    target: str
    name: str
    payload: str
    dedup_key: str | None = None


class SendBroadcast(Struct, gc=False):
    """Effect: broadcast to all current subscribers of a name."""

    name: str
    payload: str
    dedup_key: str | None = None
    skip_sender: bool = False  # the sender does not receive it: its interpreter has handled it already (B5)


class SendMessage(Struct, gc=False):
    """Effect: send a message to the instance that waits for its name and key."""

    name: str
    key: str
    payload: str


class Settle(Struct, gc=False):
    """Effect: settle an awakeable."""

    awakeable: str
    status: SettledStatus  # CANCELLED: withdrawn by its own instance
    payload: str | None = None
    error: str | None = None
    by: str | None = None  # the person or program that answered
    via: str | None = None  # the door through which the answer was given


class CancelChild(Struct, gc=False):
    """Effect: cancel a child that its parent does not wait for any more."""

    id: str
    reason: str


class TellParent(Struct, gc=False):
    """Effect: tell the parent something before the sender ends, such as an escalation.

    The parent gets a row of kind `children` with the id of the sender as its name, directed to the wait that the end of
    the sender will count against. It does not count as an end. Without a parent that waits for each end, nothing
    happens."""

    payload: str


Effect = (
    SendSignal | SendBroadcast | SendMessage | NewInstance | NewTask | RetryChild | Settle | CancelChild | TellParent
)


class Arm(Struct, gc=False):
    """A wait to arm. Of `timeout` (µs from now) and `deadline` (µs since 1970) the earlier counts."""

    kind: WaitKind
    id: str
    place: str = ""
    name: str | None = None
    key: str | None = None
    timeout: int | None = None
    deadline: int | None = None
    children: tuple[NewInstance, ...] = ()  # to start with it
    join: int = 0  # the number of them that have to end
    # Each answer leaves the wait open for the next one. children: each end is an answer, and `join` is not used;
    # message, or broadcast with `fresh`: a second one is received too, until the wait is disarmed.
    answers_each: bool = False
    fresh: bool = False  # broadcast: rows that the inbox has already do not answer it. For messages this always holds.
    run: str | None = None  # signal: of the run with this id, instead of the instance itself

    def due(self, now: int) -> int | None:
        """The time of its timeout if it is armed now; None if it has none."""
        if self.timeout is None:
            return self.deadline
        return now + self.timeout if self.deadline is None else min(self.deadline, now + self.timeout)


class NewAwakeable(Struct, gc=False):
    """An awakeable to create."""

    id: str
    entry_index: int
    place: str = ""
    task: str | None = None
    timeout: int | None = None
    nonce: str = ""
    title: str | None = None
    description: str | None = None
    schema: str | None = None
    assignees: str | None = None
    groups: str | None = None  # JSON list: groups whose members may answer, for people; who is a member is not checked
    due_at: int | None = None  # µs since 1970, when it should be answered; nothing happens then
    awaited: bool = False  # the code has awaited it already: for the event


class Advance(Struct, gc=False):
    """Go to another step. Without a rate limit and with the same concurrency key it runs ahead."""

    rate_limit: str | None = None
    weight: float = 1
    rekey: bool = False  # `concurrency_key` replaces the present one
    concurrency_key: str | None = None

    arm: ClassVar[tuple[Arm, ...]] = ()
    keep_slot: ClassVar[bool] = False
    continue_as_new: ClassVar[bool] = False
    version: ClassVar[None] = None
    ends_step: ClassVar[bool] = True
    parks: ClassVar[bool] = False

    def runs_ahead(self) -> bool:
        # A claim is where the tokens of a rate limit and the slots of a key are taken.
        return self.rate_limit is None and not self.rekey

    def is_advance(self) -> bool:
        return self.rate_limit is None and not self.rekey


class Proceed(Struct, gc=False):
    """Continue a function between two lines of its journal. `disarm` names the waits to delete."""

    arm: tuple[Arm, ...] = ()
    disarm: tuple[str, ...] = ()
    awakeables: tuple[NewAwakeable, ...] = ()
    keep_slot: bool = False  # do not yield: a run is still executing, or it has added fewer lines than it replayed
    fire_deadlines: bool = False  # a deadline of one of its waits passed while it was executing
    continue_as_new: bool = False  # begin the next visit, with an empty journal
    version: int | Literal["newest"] | None = None  # of the next visit; None: the same

    parks: ClassVar[bool] = False

    @property
    def ends_step(self) -> bool:
        return self.continue_as_new

    def runs_ahead(self) -> bool:
        return not self.continue_as_new

    def is_advance(self) -> bool:
        return not (self.continue_as_new or self.arm or self.disarm or self.awakeables or self.fire_deadlines)


class _GivesUpClaim(Struct, gc=False):
    """A move after which the instance is claimed again, if it goes on."""

    keep_slot: ClassVar[bool] = False
    continue_as_new: ClassVar[bool] = False
    version: ClassVar[None] = None
    ends_step: ClassVar[bool] = True

    def runs_ahead(self) -> bool:
        return False

    def is_advance(self) -> bool:
        return False


class Redo(_GivesUpClaim, gc=False):
    """Run the same step again after `delay` µs, with `attempt` one higher if the label of the outcome is `retry`."""

    delay: int
    drop_waits: bool = False  # the next attempt starts without the waits and questions of this one
    asked: str = ""  # the prefix of the places of its questions: other questions of the task stay open

    arm: ClassVar[tuple[Arm, ...]] = ()
    parks: ClassVar[bool] = False


class Park(_GivesUpClaim, gc=False):
    """Wait without a slot. `disarm` names the waits to delete; None means all of them."""

    arm: tuple[Arm, ...] = ()
    disarm: tuple[str, ...] | None = None
    awakeables: tuple[NewAwakeable, ...] = ()
    has_children: bool = True  # False if the wait for children is open but no child runs
    unawaited: tuple[str, ...] = ()  # places of awakeables that the code has not awaited yet: for the event

    parks: ClassVar[bool] = True


class Finish(_GivesUpClaim, gc=False):
    """End the instance. While it is being cancelled, its status becomes `cancelled`, with the reason as its error."""

    status: Literal["done", "failed"]
    result: str | None = None
    error: str | None = None
    traceback: str | None = None
    keeps_undo: bool = False  # its undo could not finish: it is failed, also while it is cancelled, and can be retried

    arm: ClassVar[tuple[Arm, ...]] = ()
    parks: ClassVar[bool] = False


class Hold(_GivesUpClaim, gc=False):
    """Keep the instance as it is until other code is registered: its code does not fit what was committed (V3)."""

    error: str  # of the instance: what does not fit, and what to do
    traceback: str | None
    details: str  # JSON: the data of its event
    fingerprint: str = ""  # of the code, which the worker knows

    arm: ClassVar[tuple[Arm, ...]] = ()
    parks: ClassVar[bool] = False


class Release(_GivesUpClaim, gc=False):
    """Give up the claim without an outcome: the step runs again from what was committed (M5)."""

    crashed: bool  # the step has ended itself by an exit; False: it was ended with the loop it ran on

    arm: ClassVar[tuple[Arm, ...]] = ()
    ends_step: ClassVar[bool] = False
    parks: ClassVar[bool] = False


Move = Advance | Proceed | Redo | Park | Finish | Hold | Release
"""A closed union. Every move has these attributes, so that mypy reports a new move that lacks one; each is a test of a
class less on the path of every step (a `match` takes twice as long):

- `arm`: the waits it arms. `keep_slot`: it does not yield. `continue_as_new`: the next visit begins.
- `ends_step`: False while a function continues in the same step, and if the step runs again without an outcome.
  `parks`: the instance waits without a slot.
- `runs_ahead()`: the next step runs directly after the commit, on the same claim and in the same slot. A rate-limited
  step, a step under another concurrency key and a new visit are queued and claimed again.
- `is_advance()`: it runs ahead and writes nothing else.
"""


class JournalLine(Struct, gc=False):
    """A line of the journal to write. The turn that carries out its `effect` fills in the result."""

    seq: int
    entry: int
    kind: str
    name: str | None = None
    value: str | None = None
    error: str | None = None
    effect: Effect | None = None
    attempts: int = 1  # of a run: how often it was called


class FailedAttempt(Struct, gc=False):
    """A failed attempt that the outcome itself does not show: an event before that of the outcome (X9)."""

    # `retry`: another attempt follows. `undoing`: of the function itself, which is undone before it fails.
    type: Literal["retry", "error", "undoing", "undo_failed"]
    step: str  # in a function: the operation
    failure: Failure
    attempt: int  # how often it was retried before, from 0
    retries: int | None = None  # how often it may be retried, if that is known
    place: str | None = None  # of the wait for the next attempt


class DecisionEvent(Struct, gc=False):
    """An event to write before that of the outcome. `data` is JSON."""

    type: EventType
    step: str | None = None
    data: str | None = None


class Decision(Struct, gc=False):
    """An outcome, and everything that commits with it."""

    label: OutcomeType  # the type of its event, and what `drain` counts
    step: str
    state: str
    move: Move
    consume: tuple[int, ...] = ()  # seqs of inbox rows
    handed: tuple[int, ...] = ()  # seqs of inbox rows that it saw and did not consume: they do not wake its park
    effects: list[Effect] = field(default_factory=list)
    journal: list[JournalLine] | None = None
    cut_from: int | None = None  # delete the lines of the journal from this seq on, before `journal` is written
    restore: tuple[int, ...] = ()  # seqs of inbox rows that those lines had consumed
    has_undo: bool | None = None  # a function: whether a cancel has something to undo from now on; None: as before
    progress: str | None = None  # JSON; None leaves it as it is
    failure: Failure | None = None  # the reason of a retry, or of the end of the instance; the exit of a crash
    failed_attempts: tuple[FailedAttempt, ...] = ()
    events: tuple[DecisionEvent, ...] = ()
    lane: str | None = None  # of a `Park` or `Redo`: the instance continues in this lane; None: in its own
    queue: str | None = None  # and in this queue

    def makes_work(self) -> bool:
        """True when committing this may make an instance claimable: this one or another.

        The turn that commits it then also claims, so that the work does not wait for the next turn.
        """
        move = self.move
        if not move.runs_ahead() or self.effects or move.arm:
            return True
        return self.journal is not None and any(line.effect for line in self.journal)

    def is_advance(self) -> bool:
        """True when this runs ahead and writes nothing but its row, its event and lines of its journal."""
        if not self.move.is_advance() or self.effects or self.consume or self.failed_attempts or self.events:
            return False
        if self.has_undo is not None or self.progress is not None or self.restore or self.cut_from is not None:
            return False
        return self.journal is None or all(line.effect is None for line in self.journal)


def stop(step: str, state: str, failure: Failure, *, keeps_undo: bool = False) -> Decision:
    move = Finish("failed", error=failure.text, traceback=failure.traceback, keeps_undo=keeps_undo)
    return Decision("stop", step, state, move, failure=failure)


def give_up(step: str, state: str, exit: Failure | None) -> Decision:
    """Give up a claim because its code has exited; None: because its event loop has ended."""
    label: OutcomeType = "handed_back" if exit is None else "reclaimed"
    return Decision(label, step, state, Release(exit is not None), failure=exit)
