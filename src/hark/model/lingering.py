"""Lingering: a handler that waits, and keeps its slot meanwhile."""

from __future__ import annotations

from collections.abc import Callable


class Lingering:
    """One wait of a handler in its slot, from when it begins to linger until it does something else.

    Made and changed on the worker's loop; read on the clerk's thread.
    """

    __slots__ = ("concurrency_key", "epoch", "id", "is_over", "leave", "queue", "since")

    def __init__(
        self, id: str, epoch: int, queue: str, concurrency_key: str | None, since: float, leave: Callable[[], None]
    ) -> None:
        self.id = id  # of the task
        self.epoch = epoch  # of its claim
        self.queue = queue
        self.concurrency_key = concurrency_key
        self.since = since  # by the clock of the worker's loop
        self.leave = leave  # parks the task, if it still lingers; called on the worker's loop
        self.is_over = False  # it has received something, or its claim has ended: it does not leave
