"""WorkClock: the working time of an attempt, and the limits on it.

Time in which a handler waits for a signal or an answer is not working time, whether its task is parked or lingers in
its slot: `timeout_sec` and `heartbeat_sec` stand still meanwhile. Used on the worker's loop only.
"""

from __future__ import annotations

import asyncio

from hark.model.names import SECOND

_UNWIND = 10.0  # seconds in which a handler that was suspended has to end


class WorkClock:
    """Ends an activation when its time is over, by rescheduling the `asyncio.timeout` around its handler."""

    def __init__(self, worked: int, timeout: float | None, heartbeat: float | None) -> None:
        """`worked`: µs that the attempt has worked before."""
        self.limit = asyncio.timeout(None)
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._heartbeat = heartbeat
        self._worked = worked / SECOND
        self._since: float | None = None  # when it began to work; None while it waits
        self._beaten = self._loop.time()
        self._waiting = 0
        self._unwinding: float | None = None
        self._running = False

    def start(self) -> None:
        """Begin to count: the handler starts. It ends within `limit`."""
        self._running = True
        self._since = self._beaten = self._loop.time()
        self._reschedule()

    def stop(self) -> None:
        """Stop counting: the handler has ended."""
        self._running = False

    def worked(self) -> int:
        """µs that the attempt has worked so far."""
        now = self._loop.time()
        return round((self._worked + (0.0 if self._since is None else now - self._since)) * SECOND)

    def begin_wait(self) -> None:
        """Stop the clock while the handler waits for a signal or an answer."""
        self._waiting += 1
        if self._since is not None:
            self._worked += self._loop.time() - self._since
            self._since = None
            self._reschedule()

    def end_wait(self) -> None:
        self._waiting -= 1
        if not self._waiting and self._since is None:
            self._since = self._beaten = self._loop.time()
            self._reschedule()

    def beat(self) -> None:
        """Take a heartbeat of the handler."""
        self._beaten = self._loop.time()
        self._reschedule()

    def unwind(self) -> None:
        """Give a handler that was suspended a short time to end."""
        self._unwinding = self._loop.time() + _UNWIND
        self._reschedule()

    def why_expired(self) -> TimeoutError:
        if self._timeout is not None and self.worked() >= self._timeout * SECOND - 1:
            return TimeoutError(f"it did not end within timeout_sec ({self._timeout:g} s of working time)")
        return TimeoutError(f"it gave no heartbeat for heartbeat_sec ({self._heartbeat:g} s)")

    def _reschedule(self) -> None:
        if not self._running or self.limit.expired():
            return
        when = [self._unwinding]
        if self._unwinding is None and self._since is not None:
            if self._timeout is not None:
                when.append(self._since + self._timeout - self._worked)
            if self._heartbeat is not None:
                when.append(self._beaten + self._heartbeat)
        at = min((moment for moment in when if moment is not None), default=None)
        if at != self.limit.when():
            self.limit.reschedule(at)
