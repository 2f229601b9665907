"""WorkerWatch: finds dead workers by what this process has seen of their leases (M5).

A lease ends by the database's clock, and that clock may be set while the workers are well. So the end of a lease is
translated into this process's monotonic clock when the lease is first seen; a worker is dead when that time has come
and the lease is still the same. A live worker renews its lease three times in that time, whatever the clock does.

A clock that was set just before the lease is first seen is not noticed by that. So a worker gets half a lease at least,
enough for one renewal, and a whole one at most.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple


class _Lease(NamedTuple):
    until: int
    """As the worker wrote it, by the database's clock, µs."""
    ends: float
    """By our monotonic clock, seconds."""


class WorkerWatch:
    def __init__(self, lease: float) -> None:
        """`lease`: seconds of a lease, for workers that have not recorded theirs."""
        self._lease = lease
        self._leases: dict[str, _Lease] = {}  # by worker

    def find_dead(
        self, leases: Iterable[tuple[str, int, float]], now: int, asked: float, *, trust_clock: bool = False
    ) -> dict[str, int]:
        """Look at the leases of all workers.

        Args:
            leases: Of each worker its id, when its lease ends, and how many seconds a renewal lasts (0: unknown). Read
                after `now`, and just now.
            now: The database's time.
            asked: The monotonic time before both were read. The answer may have come late, because the database was
                slow or this process was suspended: a lease that ended meanwhile may have been renewed meanwhile.
            trust_clock: Believe a lease that is seen for the first time and has ended: the caller does not look twice.

        Returns:
            The dead workers, each with the end of its lease: if it has another one by now, it lives.
        """
        at = time.monotonic()
        seen: dict[str, _Lease] = {}
        for worker, until, length in leases:
            known = self._leases.get(worker)
            if known is None or known.until != until:
                known = _Lease(until, at + self._left((until - now) / 1_000_000, length, trust_clock))
            seen[worker] = known
        self._leases = seen
        return {worker: lease.until for worker, lease in seen.items() if lease.ends < asked}

    def _left(self, left: float, length: float, trust_clock: bool) -> float:
        if not trust_clock:
            left = max(left, (length or self._lease) / 2)
        return min(left, length) if length else left
