"""LeaseRelay: passes each renewal of the worker's lease on to the guards of its commands.

A worker that is frozen, or cut off from the database, loses its lease without noticing, and another worker runs its
tasks again. Its commands must have ended by then, so a guard ends its command when it has not heard of a renewal for
the length of a lease. The renewals come from the lease thread: code that blocks the event loop does not stop them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time


class LeaseRelay:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._channels: set[socket.socket] = set()
        self._seconds: float | None = None
        self._renewed = 0.0

    @property
    def seconds(self) -> float | None:
        """The length of the lease in seconds; None if the worker needs none."""
        return self._seconds

    def left(self) -> float:
        """The seconds of the lease that are left; 0 if it has run out."""
        with self._lock:
            return 0.0 if self._seconds is None else max(0.0, self._renewed + self._seconds - time.monotonic())

    def renewed(self, seconds: float) -> None:
        """Tell the guards that the lease was renewed for this long. From the lease thread."""
        with self._lock:
            self._seconds, self._renewed = seconds, time.monotonic()
            for channel in self._channels:
                with contextlib.suppress(OSError):  # the guard has ended
                    channel.send(b"+")

    def add(self, channel: socket.socket) -> None:
        """Pass renewals on to the guard at the other end of this socket, which does not block."""
        with self._lock:
            self._channels.add(channel)

    def discard(self, channel: socket.socket) -> None:
        """Stop passing renewals on to this socket."""
        with self._lock:
            self._channels.discard(channel)
