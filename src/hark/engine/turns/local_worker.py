"""LocalWorker: the worker of this process, as turns and the peers use it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from hark.kernel.requests import Capacity, Commit
from hark.model.activation import Arrived, Claim
from hark.model.lingering import Lingering


class LocalWorker(Protocol):
    """Called on the clerk's thread."""

    owner: str

    @property
    def open(self) -> bool:
        """Return False while the worker stops: it claims nothing more."""

    def capacity(self, commits: Sequence[Commit]) -> Capacity | None:
        """Return what it can claim once these outcomes are committed."""

    def receive(self, commits: Sequence[Commit], claims: Sequence[Claim]) -> None:
        """Pass on outcomes that were committed, fenced or refused, and new claims."""

    def abandon(self, ids: set[str]) -> None:
        """Give up these instances, which were cancelled or reclaimed: their outcomes no longer count."""

    def fingerprints(self) -> Mapping[str, str]:
        """Return the fingerprint of the code of each lane that it can run."""

    def executing(self) -> dict[str, int]:
        """Return the epochs of the instances it holds, by id."""

    def notify(self, ids: set[str], arrived: Mapping[str, Arrived]) -> None:
        """Notify executing instances of signals that were delivered; `arrived`: the rows of those that are tasks."""

    def listening(self) -> list[tuple[str, int]]:
        """Return the instances that wait for signals while they execute, with the newest signal each has seen."""

    def notify_unseen(self, found: dict[str, list[int]]) -> None:
        """Notify the activations that have not seen all signals in their inbox. `found`: the numbers of these."""

    @property
    def lingering(self) -> dict[str, Lingering]:
        """The handlers that wait in their slots, by the id of their task. The worker's loop changes it."""

    def make_room(self, leaving: Sequence[Lingering]) -> None:
        """Park these, if they still linger."""

    def lease_is_sound(self) -> bool:
        """Return False if its lease was not renewed in time, or shortly after."""
