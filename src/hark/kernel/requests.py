"""The requests of a turn.

A request carries its own result; the clerk passes it to the caller after the COMMIT, never before. A result that is
an exception is raised in the caller. `sender` is the commit that an effect belongs to: an effect that cannot be
carried out becomes an event of its sender.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from hark.model.activation import Claim, JournalRow, Traits
from hark.model.decisions import Decision, NewInstance, RetryChild, Settle
from hark.model.migration import Migrated
from hark.model.notes import AnyNote
from hark.model.trigger import Trigger
from hark.model.values import Delivery


class Request(Struct, eq=False):
    result: Any = None

    def journal_value(self) -> Any:
        """The result for a function that sent this as an effect: a value, or an error to raise."""
        return self.result


class Commit(Request, eq=False):
    """Commit an outcome. The result is True when the next step runs ahead, else None.

    `fenced` is True when the outcome was dropped: its instance is no longer executing at its epoch, or `result` is
    the error that refuses it."""

    claim: Claim = None  # type: ignore[assignment]
    decision: Decision = None  # type: ignore[assignment]
    fenced: bool = False
    also_lock: frozenset[str] = frozenset()  # rows that an attempt of this turn could not lock
    continues_as: tuple[int, str] | None = None  # the other version, with its lane, that it continues as new with


class Deliver(Request, eq=False):
    """Send a signal to one instance. The result is a `Delivery`."""

    target: str = ""
    by_key: bool = False  # the target was tried as an id, and no instance has that id
    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None
    sender: Commit | None = None
    also_lock: frozenset[str] = frozenset()  # tasks that wait for it, which an earlier turn could not lock
    is_in_bucket: bool = False  # it comes from the bucket of signals on NATS

    def journal_value(self) -> Any:
        delivery = self.result
        return [delivery.status, delivery.instance_id] if isinstance(delivery, Delivery) else delivery


class RecordRefusal(Request, eq=False):
    """Record a signal that was refused before it came here, and whose sender is not told: one on NATS."""

    target: str = ""
    name: str = ""
    why: str = ""


class StartInstances(Request, eq=False):
    """Start instances. The result is a list with an id or an error per item."""

    items: list[NewInstance] = field(default_factory=list)
    parent_wait: str | None = None
    sender: Commit | None = None

    def journal_value(self) -> Any:
        return self.result[0]


class Fork(Request, eq=False):
    """Start an instance that begins with a part of the journal of another one, or with its state. The result is its
    id."""

    start: StartInstances = None  # type: ignore[assignment]
    source: str = ""  # the id of the other one
    at: int | None = None  # the last entry of its journal that is kept; None: of a machine
    journal: list[JournalRow] = field(default_factory=list)
    on_cancel: str | None = None  # of a function: where a cancel goes, if the other one had something to undo
    by: str | None = None


class SignalWithStart(Request, eq=False):
    """Send a signal to the holder of a correlation key; start it first if there is none. The result is its id."""

    item: NewInstance = None  # type: ignore[assignment]
    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None
    also_lock: frozenset[str] = frozenset()  # as in `Deliver`
    was_delivered: bool = False  # False also if the holder has seen the dedup key before


class Publish(Request, eq=False):
    """Broadcast to all current subscribers of a name. The result is how many there are."""

    name: str = ""
    payload: str = "null"
    dedup_key: str | None = None
    sender: Commit | None = None
    skip_sender: bool = False  # the sender is not one of the subscribers

    @property
    def skipped(self) -> str:
        """The instance that does not receive it, or ""."""
        return self.sender.claim.id if self.skip_sender and self.sender is not None else ""


class Message(Request, eq=False):
    """Send a message to the one instance that waits for this name and key. The result is its id, or None if there is no
    receiver and the message is kept for the first one."""

    name: str = ""
    key: str = ""
    payload: str = "null"
    ttl: int = 0  # µs: how long it is kept if there is no receiver
    dedup_key: str | None = None  # of messages with the same name and key
    sender: Commit | None = None
    may_start: bool = False  # there was no receiver and it can start one: reserve the key


class SettleAwakeable(Request, eq=False):
    """Settle an awakeable. The result is its row, as `read_awakeables` shows it."""

    settle: Settle = None  # type: ignore[assignment]
    sender: Commit | None = None
    read_owner: bool = False  # read the owner from the store, instead of taking it from the awakeable's id
    task_id: str | None = None  # the task that asked, which an earlier turn could not lock
    schema: str | None = None  # the schema that the answer has been or is to be validated against, beside the turn
    problems: list[str] | None = None  # the mismatches with that schema; None before it is validated

    def journal_value(self) -> Any:
        return self.result if isinstance(self.result, Exception) else None


class AssignAwakeable(Request, eq=False):
    """Record who works on an awakeable; None: no person does any more. The result is its row, as `read_awakeables`
    shows it."""

    awakeable: str = ""
    by: str | None = None
    via: str = "python"  # the door
    read_owner: bool = False  # as in `SettleAwakeable`
    task_id: str | None = None


class Cancel(Request, eq=False):
    """Cancel an instance and all its live descendants; undo first, unless it is forced. The result is its id."""

    target: str = ""
    reason: str | None = None
    force: bool = False
    sender: Commit | None = None


class RetryInstance(Request, eq=False):
    """Run a failed instance again from its failed step, or resume the incidents of a live process. The result is its
    id."""

    target: str = ""


class SetVariables(Request, eq=False):
    """Set variables of a process. The result is its id."""

    target: str = ""
    payload: str = "{}"  # the JSON text of an object


class CommitNote(Request, eq=False):
    """Commit a note of an executing task, before its outcome. The result is that of the note, or `TaskLost`."""

    note: AnyNote = None  # type: ignore[assignment]


class RunChildAgain(Request, eq=False):
    """Run a child of the sender again, as the effect `RetryChild` says. The result is its id."""

    child: RetryChild = None  # type: ignore[assignment]
    sender: Commit = None  # type: ignore[assignment]


class InformParent(Request, eq=False):
    """Post a row to the parent of the sender, as the effect `TellParent` says."""

    payload: str = "null"
    sender: Commit = None  # type: ignore[assignment]


class HandBack(Request, eq=False):
    """Return the claims that a stopping worker will not finish; `retire` is the worker that leaves. Those of a worker
    outside have a lease each, which ends too."""

    claims: list[Claim] = field(default_factory=list)
    retire: str | None = None
    outside: bool = False


class Reclaim(Request, eq=False):
    """Make the instances of dead workers claimable again.

    `leases` has the lease of each owner when it was found dead; with another one by now it lives. An owner that is not
    in it, or None, had none: it lives if it has a lease that is not over.
    """

    owners: list[str] = field(default_factory=list)
    leases: dict[str, int | None] = field(default_factory=dict)


class CheckWritable(Request, eq=False):
    """Check that the database accepts writes, by one that changes no row. The result is None."""


class Sweep(Request, eq=False):
    """Fire the delays and deadlines that are due, with or without a worker. The result is True when there is more."""


class DefinitionRow(NamedTuple):
    """A row of the table `definitions`."""

    name: str
    version: int
    kind: str
    queue: str
    initial: str
    source: str | None = None
    digest: str | None = None
    on_cancel: str | None = None
    fingerprint: str | None = None  # of the code; None for a definition that is data


class CodeChange(NamedTuple):
    """A version that is registered with other code than before (V8)."""

    name: str
    version: int
    fingerprint: str
    earlier: str


class Register(Request, eq=False):
    """Record definitions that are code. The result is a list of `CodeChange`s, or an error if one of the definitions is
    deployed as something else."""

    rows: list[DefinitionRow] = field(default_factory=list)


class Deploy(Request, eq=False):
    """Store a definition that is data, under the next version of its name; with `remove`, undeploy it.

    The result is its version: the newest one if that has the same digest. An undeployed definition cannot be started by
    name any more, and its instances run on; deploying it again makes it available again."""

    name: str = ""
    kind: str = ""
    queue: str = "default"
    initial: str = "start"
    source: str | None = None
    digest: str | None = None
    on_cancel: str | None = None
    starts: list[Trigger] = field(default_factory=list)  # its triggers, which replace those it had
    remove: bool = False


class Retire(Request, eq=False):
    """Take a version of a definition out of the choice of starts by name, or back in.

    The triggers of a process or job are those of the version that this leaves: `starts` has them, for `chosen`. The
    result is False if that is another version by now, because one was deployed or retired meanwhile; else True."""

    name: str = ""
    version: int = 0
    retired: bool = True
    chosen: int | None = None
    starts: list[Trigger] = field(default_factory=list)


class InstanceMove(Struct, frozen=True):
    """An instance to move, as it was read, and what becomes of it."""

    id: str
    epoch: int
    definition: str
    kind: str
    queue: str
    earlier: int  # the version that it has
    version: int
    migrated: Migrated


class Migrate(Request, eq=False):
    """Move instances to another version of their definition. The result is a list with an id or an error for each;
    a `Conflict` is that of one that executes, or has gone on since it was read."""

    moves: list[InstanceMove] = field(default_factory=list)
    bulk: str = ""  # the instance that carries out the migration
    by: str | None = None


class DeployGroup(Request, eq=False):
    """Deploy definitions that belong together: all of them or none. The result is a list of their versions, or the
    error of the first one that is refused."""

    deploys: list[Deploy] = field(default_factory=list)


class FetchTasks(Request, eq=False):
    """Claim tasks for a worker outside, which reports what became of them in calls of its own. The result is the list
    of claims, each with a lease of its own; `tokens` has the token of each, by task id."""

    lanes: tuple[str, ...] = ()
    most: int = 1
    lease: int = 60_000_000  # µs
    info: str = "{}"  # JSON, as workers record it about themselves (views/worker_info.py)
    tokens: dict[str, str] = {}


class RenewTask(Request, eq=False):
    """Renew the lease of a fetched task. The result is when it ends, µs, or `TaskLost`."""

    id: str = ""
    epoch: int = 0


class CommitTask(Request, eq=False):
    """Commit the outcome of a fetched task, and end its lease. The result is None, or `TaskLost`."""

    commit: Commit = None  # type: ignore[assignment]


class ChangeSchedule(Request, eq=False):
    """Create or replace, pause, resume, trigger or delete a schedule.

    The result is its `TriggerRow`; of a trigger, the id of the instance; of a delete, None."""

    verb: Literal["put", "pause", "resume", "trigger", "delete"] = "put"
    name: str = ""
    definition: str = ""  # of `put`
    start: Trigger | None = None  # of `put`


class Grant(Request, eq=False):
    """Store an API token: its hash, never the token itself. The result is its row."""

    id: str = ""
    hash: str = ""
    name: str | None = None
    scopes: str = "[]"
    expires_at: int | None = None
    lasts: int | None = None


class Revoke(Request, eq=False):
    """Revoke an API token. The result is its row; revoking it again changes nothing."""

    id: str = ""


class RotateSecret(Request, eq=False):
    """Add a secret that signs links from now on; delete the others if `drop_old`."""

    secret: str = ""
    drop_old: bool = False


class RecordOrigin(Request, eq=False):
    """Record the address of a server on this store."""

    url: str = ""


class Retain(Request, eq=False):
    """Delete these instances if they finished before this time, or failed before `failed_before` (None: the same time).
    The result is the list of deleted ids.

    Consumed signals, near misses, broadcasts and idle buckets of that age are deleted too, at most `size` of each.
    `more` is True when signals, near misses or broadcasts may be left."""

    before: int = 0
    failed_before: int | None = None
    ids: list[str] = field(default_factory=list)
    size: int = 1000
    more: bool = False


class RetainEvents(Request, eq=False):
    """Delete events from before this time, those of live instances too, at most `size`. The result is None; `more` is
    True when some may be left."""

    before: int = 0
    size: int = 1000
    more: bool = False


class Capacity(Struct):
    """The work that a worker can take: free slots per queue, and the lanes it can run, with their traits."""

    owner: str
    free: dict[str, int]
    lanes: dict[str, Traits]
    backlog: bool = True  # claimable rows may wait already; if False, only what this turn makes claimable is claimed
    codes: Mapping[str, str] = {}  # the fingerprint of the code of each lane
    try_held: bool = False  # held instances may fit: code was registered
    in_memory: Mapping[str, int] = {}
    """The functions that the worker has in memory, with the epoch at which each of them has parked. It may give one
    up at any time, and then reads the journal itself."""
