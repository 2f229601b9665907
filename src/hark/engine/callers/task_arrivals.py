"""TaskArrivals: wakes the calls of this process that wait for tasks, when tasks may be available.

A turn that makes rows claimable wakes them, and a hint from another process does. It is only a hint: a call
that is woken asks the store again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


class TaskArrivals:
    """Used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._lanes: dict[asyncio.Event, tuple[str, ...]] = {}

    @contextlib.contextmanager
    def listen(self, lanes: tuple[str, ...]) -> Iterator[asyncio.Event]:
        """Return an event of the running loop that is set whenever tasks of these lanes may be available."""
        event = asyncio.Event()
        with self._lock:
            self._waiting[event] = asyncio.get_running_loop()
            self._lanes[event] = lanes
        try:
            yield event
        finally:
            with self._lock:
                del self._waiting[event], self._lanes[event]

    def awaits(self, lane: str) -> bool:
        """Return True if a call of this process waits for tasks of this lane."""
        with self._lock:
            return any(lane in lanes for lanes in self._lanes.values())

    def notify(self) -> None:
        """Wake the calls that wait for tasks of these lanes."""
        if not self._waiting:
            return
        with self._lock:
            waiting = list(self._waiting.items())
        for event, loop in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
