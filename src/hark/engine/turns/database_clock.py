"""DatabaseClock: the time of the database, as far as this process knows it (invariant 13).

The database is not asked for the time: every turn brings it along, and in between the local clock counts on from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class DatabaseClock:
    def __init__(self, fixed: Callable[[], int] | None) -> None:
        """Make a clock; `fixed` is the clock of a test, which is then the only one."""
        self._fixed = fixed
        self._offset = 0  # the database's clock minus ours, µs

    @property
    def by_hand(self) -> bool:
        """Return True if a test moves the clock: it then decides alone."""
        return self._fixed is not None

    def now(self) -> int:
        """µs since 1970."""
        return self._fixed() if self._fixed else time.time_ns() // 1000 + self._offset

    def adjust(self, now: int) -> None:
        """Set the clock to the time that the database has just given."""
        self._offset = now - time.time_ns() // 1000
