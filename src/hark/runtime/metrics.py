"""Metrics for operators: asked for when somebody looks, by index only. Counts stop at `MOST`."""

from __future__ import annotations

import typing
from dataclasses import dataclass, field

from hark.model.values import WaitKind
from hark.store import reads
from hark.store import statements as sql
from hark.store.protocol import Store

MOST = 10_000
_KINDS = typing.get_args(WaitKind)


@dataclass(slots=True)
class ProcessCounters:
    """What a clerk has done since it opened: added up once per turn, never per row."""

    turns: int = 0
    requests: int = 0
    claims: int = 0
    waited: float = 0.0
    """Seconds from the oldest request of each turn to its commit."""
    wakes: int = 0
    """Turns that claimed work for what was asked in them, and the same seconds for these."""
    woke: float = 0.0

    def add(self, requests: int, seconds: float, claims: int) -> None:
        self.turns += 1
        self.requests += requests
        self.claims += claims
        self.waited += seconds
        if claims and requests:
            self.wakes += 1
            self.woke += seconds


@dataclass(slots=True)
class Metrics:
    """The store at a glance, and what this process has done."""

    tally: ProcessCounters
    executing: int = 0
    blocked: int = 0
    timer_lag: float = 0.0
    waits: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By kind: how many, and seconds since the oldest began."""
    queues: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By queue: how many are ready to run, and seconds since the first of them came."""


async def look(store: Store, tally: ProcessCounters) -> Metrics:
    now = await store.time()

    def age(since: int | None) -> float:
        return max(0.0, (now - since) / 1_000_000) if since is not None else 0.0

    figures = Metrics(tally)
    [[figures.executing, figures.blocked]] = await store.read(reads.count_busy, most=MOST)
    [[due]] = await store.read(sql.next_due)
    figures.timer_lag = age(due)
    for kind, number, since in await store.read(reads.count_waits, [(kind,) for kind in _KINDS], most=MOST):
        figures.waits[kind] = (number, age(since))
    for queue, number, since in await store.read(reads.count_ready, most=MOST):
        figures.queues[queue] = (int(number), age(since))
    return figures
