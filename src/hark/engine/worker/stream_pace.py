"""StreamPace: limits how fast the tasks of a process write their streams.

A chunk is far less work for the handler that makes it than a step is for an instance, so handlers in a loop would take
most of the processor and of the turns. While others have work, all streams of the process together get a fixed rate;
while they have none, there is no limit.
"""

from __future__ import annotations

import time

from hark.engine.turns.request_queue import RequestQueue

_RATE = 6000  # chunks per second
_CATCH_UP = 0.1  # seconds: notes that took this long are made up for
_RECENT = 0.05  # seconds: others that had work this long ago have work


class StreamPace:
    """Used on the worker's loop."""

    def __init__(self, queue: RequestQueue) -> None:
        self._queue = queue
        self._next = 0.0  # when the next chunk may be written

    def delay(self, size: int) -> float:
        """The seconds to wait after a note with this many chunks, before the next one."""
        now = time.monotonic()
        if now - self._queue.busy_at > _RECENT:
            self._next = now
            return 0.0
        self._next = max(self._next, now - _CATCH_UP) + size / _RATE
        return max(0.0, self._next - now)
