"""Claim: an instance that the kernel gives to an interpreter for one activation, with the rows it may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, assert_never, get_args

from msgspec import Struct, field

from hark.model.decisions import UNDO, Decision
from hark.model.values import RowKind, Status, WaitKind


class KindTraits(Struct, frozen=True):
    """The properties of a kind of wait or row outside the kernel, which has a class per kind (WAIT_KINDS)."""

    from_outside: bool  # such a wait ends from outside: by a signal, a message or an answer
    sent: bool  # such a row was sent by name: with `hark signal`, `hark broadcast` or `hark message`
    is_signal: bool  # a program receives such a row as a signal; any other row answers the wait that it is for
    to_awakeable: bool = False  # such a row is directed to the awakeable of its name
    shows_key: bool = False  # the key of such a wait means something to people


def _traits_of(kind: RowKind) -> KindTraits:
    match kind:
        case "signal" | "broadcast":
            return KindTraits(from_outside=True, sent=True, is_signal=True)
        case "message":
            return KindTraits(from_outside=True, sent=True, is_signal=False, shows_key=True)
        case "awakeable":
            return KindTraits(from_outside=True, sent=False, is_signal=False, to_awakeable=True)
        case "timer" | "children" | "control":
            return KindTraits(from_outside=False, sent=False, is_signal=False)
        case _ as never:
            assert_never(never)


KINDS: Final[Mapping[RowKind, KindTraits]] = {kind: _traits_of(kind) for kind in get_args(RowKind)}
SIGNALS: Final = frozenset(kind for kind, traits in KINDS.items() if traits.is_signal)


class ChildRow(Struct, gc=False):
    """A child of a claimed instance. Its fields mirror the columns of `statements.children_of`."""

    wait_id: str  # the wait of the parent that counts it
    id: str
    definition: str
    status: Status
    state: str
    result: str | None
    error: str | None


class InboxRow(Struct, gc=False):
    """An unconsumed row of an inbox. `wait_id` is the wait it is directed to, if any."""

    seq: int
    kind: RowKind
    name: str
    wait_id: str | None
    payload: str
    at: int

    @property
    def addressee(self) -> str | None:
        """The wait or the awakeable that the row answers; None if the wait is found by kind and name."""
        if self.wait_id is not None:
            return self.wait_id
        return self.name if KINDS[self.kind].to_awakeable else None


class Arrived(Struct):
    """The rows that one turn added to the inbox of an executing task, and the epoch of the task at that time.

    The rows are given to the handler after the commit. They need no second fence: the turn held the lock of the task.
    """

    epoch: int
    rows: list[InboxRow]
    is_complete: bool = True  # False: other rows were moved to the inbox, and must be read there


class WaitRow(Struct, gc=False):
    """An open wait. Times are µs since 1970; `fired_at` is set once the wait is answered or has timed out."""

    id: str
    place: str
    kind: WaitKind
    name: str | None
    key: str | None  # with one, only rows that are directed to it answer it
    deadline: int | None
    remaining: int | None
    fired_at: int | None
    since: int = 0
    answers_each: bool = False  # of children: each end is an answer; its children are not read

    @property
    def addressee(self) -> str:
        """The addressee of rows that are directed to this wait: its awakeable, or the wait itself."""
        return self.name or "" if KINDS[self.kind].to_awakeable else self.id

    @property
    def shown_key(self) -> str | None:
        """The key as people see it: that of a message. Other kinds use the column for themselves."""
        return self.key if KINDS[self.kind].shows_key else None

    def answered_by(self, kind: RowKind, name: str, wait_id: str | None) -> bool:
        """Return True if an inbox row answers this wait: a directed row the wait it names, any other row the waits
        without a key that have its kind and name (invariant 16). `store/schema/functions.sql` repeats this rule."""
        if wait_id is not None:
            return wait_id == self.id
        return kind == self.kind and name == self.name and self.key is None


class JournalRow(Struct, gc=False):
    """A committed line of a journal."""

    seq: int
    entry: int
    kind: str
    name: str | None
    value: str | None
    error: str | None


class Traits(Struct, frozen=True, gc=False):
    """The abilities of the instances of a program, as it declares them; the kernel reads and writes accordingly."""

    keeps_journal: bool = False  # a claim needs the lines of its journal
    creates_awakeables: bool = False  # it may have awakeables without a wait
    waits_while_executing: bool = False  # it may have waits although nothing has woken it
    remembers_inbox: bool = False  # it keeps the inbox rows it was given: a commit gives it only newer ones


FUNCTION_TRAITS: Final = Traits(
    keeps_journal=True, creates_awakeables=True, waits_while_executing=True, remembers_inbox=True
)
"""The traits of durable functions."""

TASK_TRAITS: Final = Traits(creates_awakeables=True, waits_while_executing=True)
"""The traits of jobs, of processes and of all their tasks."""


class Claim(Struct):
    """An instance handed to a worker for one activation, with everything that the activation may read.

    Its first fields, up to `now`, are columns of `instances`: CLAIM_COLUMNS, from which the statements are made.
    """

    id: str
    definition: str
    version: int
    kind: str
    queue: str
    priority: int
    step: str
    state: str
    attempt: int
    epoch: int
    correlation_key: str | None
    concurrency_key: str | None
    parent_id: str | None
    parent_wait: str | None
    counted: bool
    has_inbox_rows: bool
    visit: int
    crashes: int
    rate_limit: str | None
    weight: float
    on_cancel: str | None  # a cancel goes to this step first
    cancel_reason: str | None  # it is being cancelled: whatever ends it, its status is `cancelled`
    trace: str | None
    lane: str
    scheduled_at: int | None  # the tick that started it, µs since 1970
    has_run: bool  # an outcome was committed, or a worker was lost: it is not new
    now: int = 0
    epoch_before: int = 0  # the epoch of the instance before this claim
    inbox: list[InboxRow] = field(default_factory=list)
    read_to: int = 0  # the highest seq in its inbox
    waits: list[WaitRow] = field(default_factory=list)
    children: list[ChildRow] = field(default_factory=list)
    journal: list[JournalRow] = field(default_factory=list)
    is_journal_unread: bool = False  # its function was in the memory of the worker
    session: Any = None  # the data that an interpreter keeps between two commits of one activation
    traits: Traits = Traits()
    held_by: str | None = None  # it was held: the fingerprints of the codes that did not fit
    span: Any = None  # of this activation, when tracing is configured (engine/observe/tracing.py)

    def run_ahead(
        self,
        decision: Decision,
        now: int,
        inbox: list[InboxRow] | None,
        waits: list[WaitRow] | None = None,
        children: list[ChildRow] | None = None,
    ) -> None:
        """Continue on this claim after a commit: the next step, one epoch further."""
        self.step, self.state, self.now = decision.step, decision.state, now
        self.epoch += 1
        self.has_run, self.held_by = True, None
        self.attempt = self.crashes = 0
        self.rate_limit, self.weight = None, 1.0
        if decision.has_undo is not None:
            self.on_cancel = UNDO if decision.has_undo else None
        self.has_inbox_rows = self.has_inbox_rows or inbox is not None
        self.waits, self.children = waits or [], children or []
        self.give(inbox or [])

    def give(self, inbox: list[InboxRow]) -> None:
        """Add rows of the inbox to this claim, in the order of arrival."""
        self.inbox = inbox
        if inbox:
            self.read_to = inbox[-1].seq


CLAIM_COLUMNS: Final = Claim.__struct_fields__[: Claim.__struct_fields__.index("now")]
"""The columns of a claim. Every statement and function that claims returns them in this order."""
