"""What this process has done on NATS, for the metrics."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct, field


class NatsCounters(Struct):
    """Written on the NATS thread, read from any."""

    is_connected: bool = False
    is_reader: bool = False
    connects: int = 0
    """How often a connection was made."""
    received: Counter[str] = field(default_factory=Counter)
    """Signals that were read from the bucket, by what became of them."""
    sent: Counter[str] = field(default_factory=Counter)
    """What was published, by kind, and what was dropped."""
    last_error: str | None = None
