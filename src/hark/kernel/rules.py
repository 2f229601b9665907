"""Rules: the settings of the application that a turn needs."""

from __future__ import annotations

from hark.kernel.limits import Limits


class Rules:
    """The settings of the application that a turn needs: limits, quarantine and the size of broadcasts."""

    __slots__ = ("broadcast_limit", "chunk", "limits", "max_crashes")

    def __init__(self, limits: Limits, max_crashes: int, broadcast_limit: int, chunk: int) -> None:
        """
        Args:
            limits: The configured rate limits and concurrency slots.
            max_crashes: After this many lost workers in a row an instance is quarantined.
            broadcast_limit: A broadcast with more subscribers is delivered later, in chunks.
            chunk: How many of these one turn delivers to.
        """
        self.limits = limits
        self.max_crashes = max_crashes
        self.broadcast_limit = broadcast_limit
        self.chunk = chunk
