"""NatsCounters: counts what this process has done on NATS, for the metrics."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter


class NatsCounters:
    """Written on the NATS thread, read from any."""

    def __init__(self) -> None:
        self.is_connected = False
        self.is_reader = False
        self.connects = 0
        """The number of connections that were made."""
        self.received: Counter[str] = Counter()
        """Signals that were read from the bucket, by what became of them."""
        self.sent: Counter[str] = Counter()
        """The numbers of published items by kind, and of dropped ones."""
        self.denied = 0
        """Messages that the user may not publish."""
        self.stream_created: str | None = None
        """The time at which the stream was created that this process has read last: another one is another bucket."""
        self._last_error: tuple[str, float] | None = None

    @property
    def last_error(self) -> str | None:
        """The last error, until it is known that things work again."""
        return None if self._last_error is None else self._last_error[0]

    @last_error.setter
    def last_error(self, text: str | None) -> None:
        self._last_error = None if text is None else (text, time.monotonic())

    @property
    def process(self) -> str:
        """The name of this process, for people."""
        return f"process {os.getpid()} on {socket.gethostname()}"

    @property
    def error_age(self) -> float | None:
        found = self._last_error
        return None if found is None else time.monotonic() - found[1]
