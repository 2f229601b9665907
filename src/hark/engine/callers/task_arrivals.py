"""TaskArrivals: wakes the calls of this process that wait for tasks, when there may be some.

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
        """An event of the running loop that is set whenever there may be tasks. `lanes` are those asked for."""
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
        """Whether a call of this process waits for tasks of this lane."""
        with self._lock:
            return any(lane in lanes for lanes in self._lanes.values())

    def notify(self) -> None:
        """There may be tasks."""
        if not self._waiting:
            return
        with self._lock:
            waiting = list(self._waiting.items())
        for event, loop in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)
