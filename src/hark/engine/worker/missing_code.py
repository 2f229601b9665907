"""MissingCode: warns about tasks that no worker can run, because a handler or a gate is registered nowhere.

Such a task waits, and its job with it. `why` and `hark doctor` say so when they are asked; this says so in the log,
when the turn that makes such a task claimable is over, and not more than once a minute for each lane.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from hark.model.lanes import INTERPRETED, how_to_run, what_runs
from hark.model.log import get_logger
from hark.store import reads
from hark.store.protocol import Store

_log = get_logger()
_AGAIN = 60.0  # seconds


class MissingCode:
    """The times at which this process last asked which workers have a lane. Used on the clerk's loop."""

    def __init__(self) -> None:
        self._asked: dict[str, float] = {}

    def unknown(self, lanes: Iterable[tuple[str, str]], here: Iterable[str]) -> list[str]:
        """Return those of these lanes (with their queues) that belong to handlers and gates, that this process does not
        have, and that it did not ask about in the last minute."""
        now = time.monotonic()
        found = {lane for _, lane in lanes if "@" not in lane and lane not in INTERPRETED}.difference(here)
        asked = self._asked
        unknown = sorted(lane for lane in found if lane not in asked or now - asked[lane] >= _AGAIN)
        asked.update(dict.fromkeys(unknown, now))
        return unknown

    async def warn(self, store: Store, lanes: list[str]) -> None:
        """Log those of these lanes that no live worker has."""
        now = await store.time()
        live = [row.definitions for row in await store.read(reads.all_workers) if row.until >= now]
        for lane in lanes:
            if not any(f",{lane}," in f",{names}," for names in live):
                _log.warning(
                    "A task waits: no live worker has %s. Start one with it (%s), or fetch it over HTTP.",
                    what_runs(lane),
                    how_to_run(lane),
                )
