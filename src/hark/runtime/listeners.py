"""Listeners: executing instances that wait for signals at the same time are notified here.

The clerk notifies them of what its own turns deliver. For what other processes deliver it reads the inboxes of the
instances that listen, after a hint, and notifies those that have not seen all of it.
"""

from __future__ import annotations

import asyncio


class ActivationListener:
    """Notifies one activation. Made and used on the worker's loop."""

    def __init__(self, listeners: dict[str, ActivationListener], id: str) -> None:
        self.id = id
        self.seen = 0
        self._listeners = listeners
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

    def close(self) -> None:
        if self._listeners.get(self.id) is self:
            del self._listeners[self.id]


class Listeners:
    """The listeners of one process, by the id of their instance."""

    def __init__(self) -> None:
        self._by_id: dict[str, ActivationListener] = {}

    def listen(self, id: str) -> ActivationListener:
        self._by_id[id] = listener = ActivationListener(self._by_id, id)
        return listener

    def ids(self) -> list[str]:
        """The instances that listen. From any thread."""
        return list(self._by_id.copy())

    def listening(self) -> list[tuple[str, int]]:
        """The instances that listen, each with the number of the newest signal it has seen. From any thread."""
        return sorted((id, listener.seen) for id, listener in self._by_id.copy().items())

    def notify(self, ids: set[str]) -> None:
        """Signals were delivered to these."""
        for id in ids:
            if id in self._by_id:
                self._by_id[id].notify()

    def notify_unseen(self, newest: dict[str, int]) -> None:
        """These are the newest signals in the inboxes; an activation that has seen its own is not notified."""
        for id, seq in newest.items():
            listener = self._by_id.get(id)
            if listener is not None and seq > listener.seen:
                listener.notify()
