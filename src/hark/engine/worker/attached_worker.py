"""AttachedWorker: the protocol LocalWorker for the clerk, called on the clerk's thread.

It passes claims and notices on to the worker's loop. Starting and stopping are in worker.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hark.engine.worker.activations import Activations
from hark.engine.worker.lease_renewal import LeaseRenewal
from hark.engine.worker.slots import Slots
from hark.engine.worker.worker_services import WorkerServices
from hark.kernel.requests import Capacity, Commit
from hark.model.activation import Arrived, Claim
from hark.model.lingering import Lingering


@dataclass(eq=False)
class AttachedWorker:
    """The clerk's side of a worker that runs in its process."""

    owner: str
    _slots: Slots
    _activations: Activations
    _services: WorkerServices
    _lease: LeaseRenewal
    _loop: asyncio.AbstractEventLoop

    @property
    def open(self) -> bool:
        return self._activations.open

    def capacity(self, commits: Sequence[Commit]) -> Capacity | None:
        return self._slots.capacity(commits, self._activations.in_memory) if self.open else None

    def receive(self, commits: Sequence[Commit], claims: Sequence[Claim]) -> None:
        """Take outcomes that were committed, fenced or refused, and new claims.

        An instance that runs ahead, or whose outcome was refused, keeps its slot. A new claim ends an older one of the
        same instance.
        """
        begin = list(claims)
        refused: list[Commit] = []
        closed: list[Claim] = []
        parked: list[Claim] = []
        for commit in commits:
            if commit.result is True:
                begin.append(commit.claim)
            elif commit.result is None:
                # The session of an abandoned claim ends with it, on the worker's loop.
                if self._slots.free(commit.claim) and commit.claim.session is not None:
                    stays = commit.decision.move.parks and commit.claim.traits.keeps_journal
                    (parked if stays and not commit.fenced else closed).append(commit.claim)
            else:
                refused.append(commit)
        if claims and (older := self._slots.claims_of(claim.id for claim in claims)):
            # Another process cancelled our step, and we claimed its undo before we noticed the cancel.
            self.abandon({claim.id for claim in older})
        self._slots.take(claims)
        self._call(self._activations.start, begin, refused, closed, parked)

    def abandon(self, ids: set[str]) -> None:
        """Free the slots of these cancelled or reclaimed instances, whatever their steps still do."""
        claims = self._slots.claims_of(ids)
        for claim in claims:
            self._slots.free(claim)
        if claims:
            self._call(self._activations.abandon, claims)

    def fingerprints(self) -> Mapping[str, str]:
        return self._slots.fingerprints()

    def executing(self) -> dict[str, int]:
        return {claim.id: claim.epoch for claim in self._slots.claims()}

    def notify(self, ids: set[str], arrived: Mapping[str, Arrived]) -> None:
        if not ids.isdisjoint(self._services.listeners.ids()):
            self._call(self._services.listeners.notify, ids, arrived)

    def listening(self) -> list[tuple[str, int]]:
        return self._services.listeners.listening()

    def notify_unseen(self, found: dict[str, list[int]]) -> None:
        self._call(self._services.listeners.notify_unseen, found)

    @property
    def lingering(self) -> dict[str, Lingering]:
        return self._services.lingering

    def make_room(self, leaving: Sequence[Lingering]) -> None:
        for one in leaving:
            self._call(one.leave)

    def lease_is_sound(self) -> bool:
        return self._lease.is_sound()

    def _call(self, function: Callable[..., None], *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *args)
