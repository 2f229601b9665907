"""Rules: the settings of the application that a turn needs."""

from __future__ import annotations

from msgspec import Struct

from hark.kernel.limits import Limits


class Rules(Struct):
    """The settings of the application that a turn needs: limits, quarantine, the size of broadcasts and families."""

    limits: Limits
    max_crashes: int  # after this many lost workers in a row an instance is quarantined
    broadcast_limit: int  # a broadcast with more subscribers is delivered later, in chunks
    chunk: int  # the number of subscribers that one turn delivers to
    max_stream: int = 16 << 20  # bytes of the stream of a task
    max_run_stream: int = 64 << 20  # bytes of the streams of all tasks of a run
    max_family: int = 100_000  # the number of live descendants of one instance
