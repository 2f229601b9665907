"""Metrics: what this process has counted, and gauges of the store.

The gauges are read when they are asked for, by index only; counts stop at `MOST`. How they are shown is in doors/http.
"""

from __future__ import annotations

import typing
from collections import Counter

from msgspec import Struct, field

from hark.engine.nats.counters import NatsCounters
from hark.kernel.counts import Counts
from hark.model.values import WaitKind
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store

MOST = 10_000
_KINDS = typing.get_args(WaitKind)


class ProcessCounters(Struct):
    """The counters of the clerk since it opened. Added up once per turn, never per row."""

    turns: int = 0
    requests: int = 0
    claims: int = 0
    waited: float = 0.0
    """Seconds from the oldest request of each turn to its commit."""
    wakes: int = 0
    """Turns that had requests and claimed work."""
    woke: float = 0.0
    """Of these turns: seconds from the oldest request to the commit."""
    started: Counter[str] = field(default_factory=Counter)
    """Instances that these turns started, by definition."""
    finished: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Instances that these turns ended, by status and definition."""
    happened: Counter[str] = field(default_factory=Counter)
    """The counts of other things that happened in these turns: see kernel/counts.py."""
    nats: NatsCounters | None = None
    """If the app uses NATS."""

    def add(self, requests: int, seconds: float, claims: int, counts: Counts) -> None:
        self.turns += 1
        self.requests += requests
        self.claims += claims
        self.waited += seconds
        if claims and requests:
            self.wakes += 1
            self.woke += seconds
        for definition, number in counts.started.items():
            self.started[definition] += number
        for end, number in counts.ended.items():
            self.finished[end] += number
        for name, number in counts.happened.items():
            self.happened[name] += number


class Metrics(Struct):
    """The gauges of the store, and the counters of this process."""

    counters: ProcessCounters
    executing: int = 0
    blocked: int = 0
    held: int = 0
    timer_lag: float = 0.0
    waits: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By kind: how many, and seconds since the oldest began."""
    queues: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By queue: how many are claimable, and seconds since the oldest of them became so."""

    @staticmethod
    def unread(counters: ProcessCounters) -> Metrics:
        """Metrics without any value of the store."""
        return Metrics(counters, waits=dict.fromkeys(_KINDS, (0, 0.0)))


async def read(store: Store, counters: ProcessCounters) -> Metrics:
    """Read the gauges of the store; a constant number of statements, none of which scans a table."""
    now = await store.time()

    def age(since: int | None) -> float:
        return max(0.0, (now - since) / 1_000_000) if since is not None else 0.0

    metrics = Metrics(counters)
    [[metrics.executing, metrics.blocked, metrics.held]] = await store.read(reads.count_busy, most=MOST)
    [[due]] = await store.read(sql.next_due)
    metrics.timer_lag = age(due)
    for kind, number, since in await store.read(reads.count_waits, [(kind,) for kind in _KINDS], most=MOST):
        metrics.waits[kind] = (number, age(since))
    for queue, number, since in await store.read(reads.count_ready, most=MOST):
        metrics.queues[queue] = (int(number), age(since))
    return metrics
