"""The watchdog: sees a function that holds the event loop, and where.

The code of a durable function only decides; what takes time belongs into `ctx.run`. A thread looks every
moment whether one and the same piece of code is still at it. It counts its own looks and not the clock, so
a machine that slept blames nobody.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Protocol

_LOOK = 0.25
_LOOKS = 8  # two seconds


class Watched(Protocol):
    driving: Any


class LoopWatchdog:
    def __init__(self, services: Watched, thread: int) -> None:
        self._services = services
        self._watched_thread = thread
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="hark-watchdog", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        seen, looks = None, 0
        while not self._over.wait(_LOOK):
            driving = self._services.driving
            looks = looks + 1 if driving is not None and driving is seen else 0
            seen = driving
            if looks == _LOOKS:
                frame = sys._current_frames().get(self._watched_thread)
                driving[0].stalled = _where(frame, driving[0].program)


def _where(frame: FrameType | None, program: Any) -> str:
    """The line of the function itself that does not come back, as an error with a next step."""
    code = program.function.__code__
    line, deepest = None, frame
    while frame is not None:
        if frame.f_code is code or (line is None and frame.f_code.co_filename == code.co_filename):
            line = frame.f_lineno
            break
        frame = frame.f_back
    at = f"{code.co_filename}:{line}" if line is not None else program.name
    busy = f" (in {deepest.f_code.co_name})" if deepest is not None and deepest is not frame else ""
    return (
        f"workflow {program.name} held the event loop for more than {_LOOK * _LOOKS:g} seconds at {at}{busy}. "
        "Put what takes time into a function and `await ctx.run(it)`, then retry the instance."
    )
