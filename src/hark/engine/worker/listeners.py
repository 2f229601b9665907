"""Listeners: executing instances that wait for signals at the same time are notified here.

The clerk notifies them of what its own turns deliver; a task is given the rows themselves, so that it need not read its
inbox in another turn. For what other processes deliver it reads the inboxes of the instances that listen, after a hint,
and notifies those that have not seen all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from hark.model.activation import Arrived


class ActivationListener:
    """Notifies one activation. Made and used on the worker's loop."""

    def __init__(
        self, listeners: dict[str, ActivationListener], id: str, take: Callable[[Arrived], bool] | None
    ) -> None:
        self.id = id
        self.seen = 0
        self._listeners = listeners
        self._take = take
        self._taken: set[int] = set()  # rows above `seen` that it was given; another process may have added lower ones
        self._notified = asyncio.Event()

    def is_notified(self) -> bool:
        return self._notified.is_set()

    async def wait(self) -> None:
        await self._notified.wait()

    def reset(self, seen: int) -> None:
        """Listen for signals with a higher number. Called before a commit that reads the inbox."""
        self.seen = seen
        self._notified.clear()

    def notify(self) -> None:
        self._notified.set()

    def give(self, arrived: Arrived) -> None:
        """Give the rows that a turn of this process has added to the inbox."""
        if self._take is not None and arrived.is_complete and self._take(arrived):
            self._taken.update([row.seq for row in arrived.rows])
        else:
            self._notified.set()

    def notify_unseen(self, found: list[int]) -> None:
        """Notify of these rows in the inbox; all below the highest of them was committed before they were read."""
        if all(seq <= self.seen or seq in self._taken for seq in found):
            self.seen = max(self.seen, *found)
            self._taken = {seq for seq in self._taken if seq > self.seen}
        else:
            self._notified.set()

    def close(self) -> None:
        if self._listeners.get(self.id) is self:
            del self._listeners[self.id]


class Listeners:
    """The listeners of one process, by the id of their instance."""

    def __init__(self) -> None:
        self._by_id: dict[str, ActivationListener] = {}

    def listen(self, id: str, take: Callable[[Arrived], bool] | None = None) -> ActivationListener:
        self._by_id[id] = listener = ActivationListener(self._by_id, id, take)
        return listener

    def ids(self) -> list[str]:
        """The ids of the instances that listen. From any thread."""
        return list(self._by_id.copy())

    def listening(self) -> list[tuple[str, int]]:
        """The instances that listen, each with the number of the newest signal it has seen. From any thread."""
        return sorted((id, listener.seen) for id, listener in self._by_id.copy().items())

    def notify(self, ids: set[str], arrived: Mapping[str, Arrived]) -> None:
        """Notify the instances to which signals were delivered."""
        for id in ids:
            listener = self._by_id.get(id)
            if listener is not None:
                if id in arrived:
                    listener.give(arrived[id])
                else:
                    listener.notify()

    def notify_unseen(self, found: dict[str, list[int]]) -> None:
        """Notify the activations that have not seen all of these signals, which are in their inboxes."""
        for id, seqs in found.items():
            listener = self._by_id.get(id)
            if listener is not None:
                listener.notify_unseen(seqs)
