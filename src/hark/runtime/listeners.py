"""Listeners: who is at work and waits for mail at the same time hears of it here.

The clerk rings for what its own turns deliver; for what other processes deliver it looks, when it hears
of anything, whether those who listen have mail they do not know.
"""

from __future__ import annotations

import asyncio


class ActivationListener:
    """One activation's ear. Made and used on the worker's loop."""

    def __init__(self, listeners: dict[str, ActivationListener], id: str) -> None:
        self.id = id
        self.known: set[int] = set()
        self._listeners = listeners
        self._rung = asyncio.Event()

    def is_notified(self) -> bool:
        return self._rung.is_set()

    async def wait(self) -> None:
        await self._rung.wait()

    def reset(self, known: set[int]) -> None:
        """From now on; these are known already. Called before a commit that reads the inbox."""
        self.known = known
        self._rung.clear()

    def ring(self) -> None:
        self._rung.set()

    def close(self) -> None:
        if self._listeners.get(self.id) is self:
            del self._listeners[self.id]


class Listeners:
    """Those of one process."""

    def __init__(self) -> None:
        self._by_id: dict[str, ActivationListener] = {}

    def listen(self, id: str) -> ActivationListener:
        self._by_id[id] = listener = ActivationListener(self._by_id, id)
        return listener

    def ids(self) -> list[str]:
        """Who listens. From any thread."""
        return sorted(self._by_id.copy())

    def ring(self, ids: set[str]) -> None:
        for id in ids:
            if id in self._by_id:
                self._by_id[id].ring()

    def tell(self, mail: dict[str, set[int]]) -> None:
        """What is in the inboxes of these; who knows it all is left alone."""
        for id, seqs in mail.items():
            listener = self._by_id.get(id)
            if listener is not None and not seqs <= listener.known:
                listener.ring()
