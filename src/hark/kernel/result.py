"""TurnResult: the report of a turn to the clerk. It is valid only after the COMMIT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from hark.kernel.counts import Counts
from hark.kernel.requests import Commit, Deliver, Publish, Request, SettleAwakeable, SignalWithStart
from hark.model.activation import Arrived, ChildRow, Claim, InboxRow, WaitRow
from hark.model.failures import Failure

Lane = tuple[str, str]  # queue, lane
End = tuple[str, str, str | None, str | None]  # id, status, result, error


class Failed(Struct, frozen=True, gc=False):
    """A failed attempt, or the end of an instance that failed, as the log and the metrics need it (X9)."""

    instance: str
    definition: str
    step: str | None
    attempt: int
    type: Literal["retry", "error", "undoing", "undo_failed", "thrown", "held", "crashed", "stop", "failed"]
    failure: Failure
    until: int | None = None  # the time of the next attempt, µs
    retries: int | None = None


class Pending:
    """The work that a turn made or left for later."""

    __slots__ = (
        "backlog", "earliest", "for_other_workers", "has_origin", "lanes", "left_claimable", "left_held",
        "made_claimable", "more", "pending_deliveries", "refused_keys", "scheduled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.made_claimable = False  # this turn made rows claimable
        self.left_claimable = False  # and may have left some of them unclaimed
        self.left_held = False  # and held instances that this worker may try
        self.lanes: set[Lane] = set()  # the lanes of those rows, as far as the turn read them
        self.for_other_workers = False  # this worker has no code or no free slot for some of them
        self.refused_keys = False  # rows wait for a concurrency key, as far as this turn tried to claim them
        self.backlog = False  # a queue has claimable rows and no free slot, as far as the turn read
        self.more = False  # the next turn has something to do immediately
        self.pending_deliveries = False  # a large broadcast has subscribers left
        self.scheduled = False  # a schedule was changed: other processes must read when the next tick is due
        self.has_origin = False  # the address of a server was recorded: other processes must read it
        self.earliest: int | None = None  # the earliest time at which something this turn wrote is due

    def due(self, at: int) -> None:
        """Note that something this turn wrote is due at this time."""
        if self.earliest is None or at < self.earliest:
            self.earliest = at


class TurnResult:
    """The claims, ended instances and pending work of one turn. `now` and `xid` are those of the transaction."""

    __slots__ = (
        "again", "arrived", "cancelled", "claims", "counts", "deliveries", "failures", "finished", "inboxes",
        "keeps_statuses", "kept", "now", "pending", "provable", "ran_ahead", "retired", "signalled", "to_validate",
        "xid",
    )  # fmt: skip

    def __init__(self, now: int, xid: int) -> None:
        self.now = now
        self.xid = xid
        self.pending = Pending()
        self.again: list[Request] = []  # requests to run once more, in the next turn
        self.to_validate: list[SettleAwakeable] = []  # to run once more, after their answers are validated
        self.claims: list[Claim] = []
        self.counts = Counts()  # for the metrics
        self.deliveries: Sequence[Deliver | SignalWithStart | Publish] = ()  # requests and effects, with their results
        self.ran_ahead: list[Commit] = []  # outcomes whose next step runs on the same claim
        self.inboxes: dict[str, list[InboxRow]] = {}  # of claimed instances and those that ran ahead
        self.kept: dict[str, tuple[list[WaitRow], list[ChildRow]]] = {}  # the waits of functions that ran ahead
        self.finished: dict[str, End] = {}
        self.failures: Sequence[Failed] = ()  # failed attempts and failed ends
        self.cancelled: set[str] = set()
        self.signalled: set[str] = set()  # executing instances whose inbox was written
        self.arrived: dict[str, Arrived] = {}  # of those that are tasks: what was written
        self.keeps_statuses = False  # no instance changed its status or opened an awakeable: an advance turn
        self.retired = False  # a worker of this process left
        self.provable = False  # it wrote rows by which `statements.proof_of_commit` recognises its commit
