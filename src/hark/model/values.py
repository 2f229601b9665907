"""What the engine shows: instances, signals, waits, awakeables, events. Frozen, and without behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from hark.model.errors import InvalidInput

Status = Literal["runnable", "executing", "awaiting_signal", "awaiting_children", "done", "failed", "cancelled"]
Kind = Literal["machine", "workflow", "job", "task", "bpmn"]
AwakeableStatus = Literal["PENDING", "RESOLVED", "REJECTED", "TIMEOUT", "CANCELLED"]
WaitKind = Literal["signal", "broadcast", "message", "timer", "awakeable", "children"]
TERMINAL = frozenset(("done", "failed", "cancelled"))
PARKED = frozenset(("awaiting_signal", "awaiting_children"))


@dataclass(frozen=True, slots=True)
class Signal:
    """An answer in an instance's inbox."""

    id: int
    kind: str
    name: str
    payload: Any
    at: datetime


@dataclass(frozen=True, slots=True)
class Wait:
    """A question an instance is parked on."""

    instance_id: str
    kind: str
    name: str | None
    place: str
    deadline: datetime | None
    since: datetime


@dataclass(frozen=True, slots=True)
class Instance:
    """A workflow, as it is in the store now."""

    id: str
    definition: str
    kind: str
    version: int
    step: str
    status: str
    state: Any
    result: Any
    error: str | None
    attempt: int
    queue: str
    correlation_key: str | None
    parent_id: str | None
    created_at: datetime
    finished_at: datetime | None
    waits: tuple[Wait, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ChildView:
    """A child as its parent sees it, finished or not."""

    id: str
    definition: str
    status: str
    state: Any
    result: Any
    error: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of a signal: it woke somebody, was stored for later, or was a duplicate."""

    status: Literal["woke", "stored", "duplicate"]
    instance_id: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history."""

    seq: int
    instance_id: str
    type: str
    step: str | None
    data: Any
    at: datetime
    cursor: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Awakeable:
    """A question with a public address."""

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
    url: str = field(repr=False)  # who has it may answer: not for logs and tracebacks


@dataclass(frozen=True, slots=True)
class Waiting:
    """One thing an instance waits for; `wake` is the command that would answer it."""

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
    """What keeps an instance from going on, beside what it waits for."""

    reason: Literal[
        "delayed", "concurrency", "rate_limit", "no_worker", "in_line", "executing", "lease_lost", "finished"
    ]
    text: str
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NearMiss:
    """What came and did not wake it; `at` is the latest of `count` like it."""

    reason: Literal["other_name", "other_kind", "other_target", "too_early", "too_late", "duplicate"]
    kind: str
    name: str
    target: str
    at: datetime
    text: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Why:
    """Why an instance is where it is: what it waits for, what is in its way, and what almost woke it."""

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


@dataclass(frozen=True, slots=True)
class Token:
    """A credential for the HTTP API. `secret` is there once, when it is made; it is kept nowhere."""

    id: str
    name: str | None
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket: `allowed` per `period` seconds, up to `burst` at once, split over `shards` rows."""

    allowed: float
    period: float
    burst: float | None = None
    shards: int = 1

    def __post_init__(self) -> None:
        for name in ("allowed", "period", "burst"):
            value = getattr(self, name)
            if value is None and name == "burst":
                continue  # left out: as much as is allowed
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e15:
                raise InvalidInput(f"Rate({name}={value!r}): give a number above zero.")
        if type(self.shards) is not int or not 1 <= self.shards <= 1024:
            raise InvalidInput(f"Rate(shards={self.shards!r}): give a whole number from 1 to 1024.")

    @property
    def capacity(self) -> float:
        """What one shard holds when full."""
        return (self.allowed if self.burst is None else self.burst) / self.shards

    @property
    def per_micro(self) -> float:
        """Tokens one shard gains in a microsecond."""
        return self.allowed / self.shards / (self.period * 1_000_000)
