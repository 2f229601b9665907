"""LoopWatchdog: finds a durable function that blocks the event loop, and the line where it does.

The code of a durable function only decides; work that takes time belongs into `ctx.run`. A thread checks regularly
whether the same piece of code still runs. It counts its own checks and not the clock, so that a machine that was
suspended does not look like a blocked loop.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Protocol

_INTERVAL = 0.25  # seconds
_CHECKS = 8  # two seconds


class Watched(Protocol):
    running_session: Any
    """(session,) while the code of a function runs on the loop, a new tuple for each piece of it; else None.
    In a replay one piece may receive many lines: `session.unread_lines` says how many are left."""


class LoopWatchdog:
    def __init__(self, services: Watched, thread: int) -> None:
        """Watch the thread with this id, whose loop runs the functions."""
        self._services = services
        self._watched_thread = thread
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="hark-watchdog", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        last, last_left, checks = None, 0, 0
        while not self._closed.wait(_INTERVAL):
            running = self._services.running_session
            left = 0 if running is None else running[0].unread_lines
            checks = checks + 1 if running is not None and running is last and left == last_left else 0
            last, last_left = running, left
            if checks == _CHECKS:
                frame = sys._current_frames().get(self._watched_thread)
                (session,) = running
                session.stalled = _where(frame, session.program)


def _where(frame: FrameType | None, program: Any) -> str:
    """The text of the error: which line of the function does not return, and what to do."""
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
        f"workflow {program.name} blocked the event loop for more than {_INTERVAL * _CHECKS:g} seconds at {at}{busy}. "
        "Put the work that takes time into a function and `await ctx.run(it)`, then retry the instance."
    )
