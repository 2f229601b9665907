"""The values that the engine returns: instances, signals, waits, awakeables, events. Frozen data without behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from hark.model.errors import InvalidInput
from hark.model.links import read_link

Status = Literal[
    "runnable", "executing", "awaiting_signal", "awaiting_children", "held", "done", "failed", "cancelled"
]  # fmt: skip
Kind = Literal["machine", "workflow", "job", "task", "bpmn"]
SettledStatus = Literal["RESOLVED", "REJECTED", "TIMEOUT", "CANCELLED"]
AwakeableStatus = Literal["PENDING", SettledStatus]
WaitKind = Literal["signal", "broadcast", "message", "timer", "awakeable", "children"]
RowKind = Literal[WaitKind, "control"]  # of a row of an inbox; `control`: see kernel/runs/bpmn_control.py
TERMINAL = frozenset(("done", "failed", "cancelled"))
PARKED = frozenset(("awaiting_signal", "awaiting_children"))


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal or broadcast in the inbox of an instance.

    Attributes:
        id: Its number, in the order of arrival.
        kind: "signal" or "broadcast".
        name: Its name.
        payload: The JSON value it carries.
        at: When it was sent.
    """

    id: int
    kind: str
    name: str
    payload: Any
    at: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """Something a parked instance waits for.

    Attributes:
        instance_id: The instance.
        kind: "signal", "broadcast", "message", "timer", "awakeable" or "children".
        name: The awaited name; for an awakeable its id; None for a timer and for children.
        place: Where in the program the wait belongs: in a durable function the entry of the operation.
        deadline: When it times out, or None.
        since: When the instance began to wait.
    """

    instance_id: str
    kind: str
    name: str | None
    place: str
    deadline: datetime | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Instance:
    """A started definition, as it is in the store at the time of the call.

    Attributes:
        id: Its id.
        definition: The name of its definition.
        kind: "machine", "workflow", "job", "task" or "bpmn".
        version: The version of its definition.
        step: The current step of a machine; the latest operation of a durable function.
        status: "runnable", "executing", "awaiting_signal", "awaiting_children", "held", "done", "failed" or
            "cancelled".
        state: Its state as JSON; for a durable function its input.
        result: Its result as JSON, once it is done.
        error: Why it failed or was cancelled, as text.
        traceback: Where the error that ended it was raised, as text; None if no exception ended it.
        attempt: How often the current step was retried, from 0.
        queue: The queue it runs in.
        correlation_key: Its correlation key, or None.
        parent_id: The instance that started it with `Spawn` or `ctx.call`, or None.
        created_at: When it was started.
        finished_at: When it ended, or None.
        waits: What it waits for.
        cancel_reason: Why it is being cancelled, while its undo has not finished; else None.
        progress: What its code last said with `ctx.progress`, as JSON, or None.
        tags: The tags it was started with.
        forked_from: The instance that it is a fork of, or None.
    """

    id: str
    definition: str
    kind: str
    version: int
    step: str
    status: str
    state: Any
    result: Any
    error: str | None
    traceback: str | None
    attempt: int
    queue: str
    correlation_key: str | None
    parent_id: str | None
    created_at: datetime
    finished_at: datetime | None
    waits: tuple[Wait, ...] = field(default=())
    cancel_reason: str | None = None
    progress: Any = None
    tags: dict[str, str] = field(default_factory=dict)
    forked_from: str | None = None


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect that a verb would have, without having it.

    Attributes:
        count: How many instances it would reach.
        receivers: The ids of at most 20 of them.
        starts: The names of the definitions that it would start.
        near: What nearly matches.
        skipped: How many it would leave out, because there is nothing to do.
        problems: Why it would be refused for others: a text for each of at most 20, with the id of the instance.
    """

    count: int
    receivers: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    near: tuple[Any, ...] = ()
    skipped: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the journal of a function: an operation, and what the code received for it.

    Attributes:
        number: The order in which the code asked. A patch has the number of the operation that it stands before.
        kind: "run", "wait", "awakeable", "call", "sleep", "now", "patch" and others.
        name: Of a run its name, of a wait the signal that came, of an awakeable its id, of a call the definition.
        value: What the code received, as JSON; None if it was an error, or while an awakeable is open.
        error: The error that it received, as text.
        at: When it was committed.
        attempts: How often a run was called until then.
    """

    number: int
    kind: str
    name: str | None
    value: Any
    error: str | None
    at: datetime
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class ChildView:
    """A child as its parent sees it in `ctx.children`, finished or not.

    Attributes:
        id: Its id.
        definition: The name of its definition.
        status: Its status, as in `Instance.status`.
        state: Its state as JSON.
        result: Its result as JSON, once it is done.
        error: Why it failed, was cancelled or could not start, as text.
    """

    id: str
    definition: str
    status: str
    state: Any
    result: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of a signal.

    Attributes:
        status: "woke" (the instance was parked on it), "stored" (it is in the inbox) or "duplicate" (its dedup key was
            already used; nothing was stored).
        instance_id: The instance that received it.
    """

    status: Literal["woke", "stored", "duplicate"]
    instance_id: str


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the history of an instance.

    Attributes:
        seq: Its number; later events of an instance have higher ones.
        instance_id: The instance.
        type: What happened, one of the types in model/events.py: "started", "await", "signal", "done" and others.
        step: The step it happened in, or None.
        data: More about it, as JSON.
        at: When it happened.
        cursor: Its position among the events of all instances, for `events_after`.
    """

    seq: int
    instance_id: str
    type: str
    step: str | None
    data: Any
    at: datetime
    cursor: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Awakeable:
    """A question with a public id, settled once: by an answer, a rejection, a timeout or a cancellation.

    Attributes:
        id: Its id.
        instance_id: The instance that created it.
        task: The task of a job that created it, or None.
        entry_index: The number of its creation within the instance.
        status: "PENDING", "RESOLVED", "REJECTED", "TIMEOUT" or "CANCELLED".
        payload: The answer as JSON, once it is resolved.
        error: The reason, once it is rejected.
        timeout_at: When it times out, or None.
        created_at: When it was created.
        resolved_at: When it was settled, or None.
        title: One line for the answerer, or None.
        description: More text for the answerer, or None.
        schema: The JSON Schema of the answer, or None.
        assignees: Names of those who may answer; empty means anyone with access.
        answered_by: The answerer's name, or None.
        url: The signed link to its answer page, only a path while no server is known. It is a credential: anyone who
            has it can answer.
        groups: Groups whose members may answer, for user tasks of processes. Hark does not know who is a member.
        claimed_by: The name of the person who works on it (`Hark.claim`), or None.
        due_at: When it should be answered, or None. Nothing happens then.
    """

    id: str
    instance_id: str
    task: str | None
    entry_index: int
    status: str
    payload: Any
    error: str | None
    timeout_at: datetime | None
    created_at: datetime
    resolved_at: datetime | None
    title: str | None
    description: str | None
    schema: Any
    assignees: tuple[str, ...]
    answered_by: str | None
    url: str = field(repr=False)  # a credential: not in logs and tracebacks
    groups: tuple[str, ...] = ()
    claimed_by: str | None = None
    due_at: datetime | None = None


class _ReadLink:
    """`Awakeable.url`: signed when it is read, because most awakeables are read for something else. It also warns then,
    if the link has no address."""

    def __init__(self, slot: Any) -> None:
        self._slot = slot

    def __get__(self, awakeable: Awakeable | None, owner: type[Awakeable]) -> Any:
        if awakeable is None:
            return self
        link = self._slot.__get__(awakeable, owner)
        if not isinstance(link, str):
            link = link()
            self._slot.__set__(awakeable, link)
        return read_link(link)

    def __set__(self, awakeable: Awakeable, link: str | Callable[[], str]) -> None:
        self._slot.__set__(awakeable, link)


setattr(Awakeable, "url", _ReadLink(Awakeable.__dict__["url"]))  # noqa: B010 - mypy: a slot is not a class variable


@dataclass(frozen=True, slots=True)
class Waiting:
    """A wait of an instance, as `why` explains it.

    Attributes:
        kind: The kind of the wait, as in `Wait.kind`.
        name: The awaited name, or None.
        key: The correlation key of a wait for a message, or None.
        place: Where in the program the wait belongs.
        since: When the instance began to wait.
        deadline: When it times out, or None.
        wake: The command that would end the wait, or None.
        note: More about it, or None.
    """

    kind: str
    name: str | None
    key: str | None
    place: str
    since: datetime
    deadline: datetime | None
    wake: str | None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Blocker:
    """Something that keeps an instance from continuing, besides what it waits for.

    Attributes:
        reason: "delayed", "concurrency", "rate_limit", "no_worker" (no worker has its code), "queued" (it waits for a
            free slot of its queue), "executing", "lease_lost" (its worker died), "held" (its code does not fit what was
            committed), "incident" (of a process: a token stopped) or "finished".
        text: The same as a sentence, with what to do.
        until: When it is over, if that is known.
    """

    reason: Literal[
        "delayed", "concurrency", "rate_limit", "no_worker", "queued", "executing", "lease_lost", "held", "incident",
        "finished",
    ]  # fmt: skip
    text: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A signal, broadcast or message that arrived and did not wake the instance.

    Attributes:
        reason: "other_name", "other_kind" or "other_target" than awaited, "too_early" (before the wait), "too_late"
            (after the end), "duplicate" or "refused" (on NATS).
        kind: "signal", "broadcast", "message" or "awakeable".
        name: Its name.
        target: What it was sent to.
        at: When the latest of them arrived.
        text: The same as a sentence.
        count: How many like it arrived.
    """

    reason: Literal["other_name", "other_kind", "other_target", "too_early", "too_late", "duplicate", "refused"]
    kind: str
    name: str
    target: str
    at: datetime
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Why:
    """The explanation of where an instance is: what it waits for, what blocks it, and what almost woke it.

    Attributes:
        id: The instance.
        definition: The name of its definition.
        version: The version of its definition.
        status: Its status, as in `Instance.status`.
        step: Its step.
        correlation_key: Its correlation key, or None.
        since: Since when it has been in this status.
        text: The explanation in one sentence.
        waits: What it waits for.
        blockers: What else keeps it from continuing.
        misses: What arrived and did not wake it.
        traceback: Where the error was raised that ended it, or that made it wait for its next attempt; else None.
    """

    id: str
    definition: str
    version: int
    status: str
    step: str
    correlation_key: str | None
    since: datetime
    text: str
    waits: tuple[Waiting, ...]
    blockers: tuple[Blocker, ...]
    misses: tuple[NearMiss, ...]
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A credential for the HTTP API.

    Attributes:
        id: Its id, to revoke it with.
        name: What it is for, or None.
        scopes: What it permits.
        created_at: When it was created.
        expires_at: When it expires, or None.
        revoked_at: When it was revoked, or None.
        secret: The secret, only in what `create_token` returns: the store keeps only a digest of it.
    """

    id: str
    name: str | None
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class DefinitionView:
    """A version of a definition.

    Attributes:
        name: Its name.
        kind: "machine", "workflow", "job" or "bpmn".
        version: Its version.
        fingerprints: Of the codes that run it: those of the live workers, that of the code that was registered last
            and, while instances that began with it are unfinished, that of the code before.
        retired: Whether starts by name choose another version.
        live: The number of its unfinished instances.
        workers: The number of live workers that can run it.
    """

    name: str
    kind: str
    version: int
    fingerprints: tuple[str, ...] = ()
    retired: bool = False
    live: int = 0
    workers: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule: it starts an instance of a definition at each of its ticks.

    Attributes:
        name: The name of the schedule.
        definition: The name of what it starts, in the newest version that is known at that time.
        cron: Its cron expression, or None.
        every: Its interval in seconds, or None.
        timezone: The time zone that `cron` is read in.
        overlap: What happens at a tick while an instance of an earlier one is not finished: skip, allow or queue.
        catch_up: How many of the ticks that were missed are started later.
        correlation_key: The correlation key of the instances it starts, or None.
        next_at: The next tick; None while it is paused, or if there is none.
        last_at: The tick that started the last instance, or the time of the trigger; None before the first.
        last_id: The id of that instance.
        paused: Whether it is paused.
        missed: How many ticks started nothing because no worker was running.
        skipped: How many ticks started nothing because of `overlap`, or because the start was refused.
        waiting: How many ticks wait for the end of an instance.
        error: Why the last tick could not start an instance, or None.
        created_at: When it was created.
    """

    name: str
    definition: str
    cron: str | None
    every: float | None
    timezone: str
    overlap: Literal["skip", "allow", "queue"]
    catch_up: int
    correlation_key: str | None
    next_at: datetime | None
    last_at: datetime | None
    last_id: str | None
    paused: bool
    missed: int
    skipped: int
    waiting: int
    error: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker process, as `workers` lists it. It updates this with each renewal of its lease.

    Attributes:
        id: The id of the worker, as leases and events name it.
        host: The name of the machine it runs on.
        pid: The number of its process on that machine.
        version: The version of Hark it runs.
        queues: The slots of each of its queues.
        free: How many of these are free.
        definitions: What it has code for: `name@version`.
        handlers: The tasks it can run: the names of their handlers, `shell`, `agent:{type}`, and `gate:{name}`.
        fingerprints: The fingerprints of its code, by what `definitions` and `handlers` name.
        since: When it was started.
        lease_until: When its lease ends, unless it is renewed.
        live: Whether its lease has not ended.
    """

    id: str
    host: str
    pid: int
    version: str
    queues: dict[str, int]
    free: dict[str, int]
    definitions: tuple[str, ...]
    handlers: tuple[str, ...]
    since: datetime
    lease_until: datetime
    live: bool
    fingerprints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate limit: a token bucket.

    Attributes:
        allowed: How many tokens are added per period.
        period: The period in seconds.
        burst: How many tokens the bucket holds; the default is `allowed`.
        shards: How many rows the bucket is split over, 1 to 1024, so that many workers can take from it concurrently.

    Raises:
        InvalidInput: A value is not a number above zero, or `shards` is out of range.

    Example:
        Hark(rate_limits={"stripe": Rate(allowed=100, period=60)})
    """

    allowed: float
    period: float
    burst: float | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        for name in ("allowed", "period", "burst"):
            value = getattr(self, name)
            if value is None and name == "burst":
                continue  # the default: as many as `allowed`
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
                raise InvalidInput(f"Rate({name}={value!r}): give a number above zero.")
        if type(self.shards) is not int or not 1 <= self.shards <= 1024:
            raise InvalidInput(f"Rate(shards={self.shards!r}): give a whole number from 1 to 1024.")

    @property
    def capacity(self) -> float:
        """The number of tokens that one shard holds when it is full."""
        return (self.allowed if self.burst is None else self.burst) / self.shards

    @property
    def per_micro(self) -> float:
        """The number of tokens that one shard gains per microsecond."""
        return self.allowed / self.shards / (self.period * 1_000_000)
