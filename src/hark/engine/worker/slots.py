"""Slots: counts the claims a worker holds, and how many more each of its queues can take.

Counted on the clerk's thread, in the turn that changes it: a claim is never made for a slot that is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hark.engine.worker.registry import Registry
from hark.kernel.requests import Capacity, Commit
from hark.model.activation import Claim
from hark.model.errors import InvalidInput
from hark.model.lanes import ENGINE_QUEUE, INTERPRETED
from hark.model.names import check_queue

_DEFAULT = 100  # slots of every queue, unless the app says otherwise
_ENGINE_SLOTS = 100  # of the queue of the interpreters; as many as the largest queue has, if that has more


class Slots:
    def __init__(self, owner: str, registry: Registry, queues: dict[str, int] | None) -> None:
        """Count the slots of these queues; None: the default for every queue of the registry."""
        if queues is not None and not isinstance(queues, dict):
            raise InvalidInput(f"queues={queues!r}: give a dict of queue names and how many of each run at once.")
        for queue, size in (queues or {}).items():
            check_queue(queue)
            if type(size) is not int or size < 1:
                raise InvalidInput(f"queues={{{queue!r}: {size!r}}}: give a whole number from 1.")
        self._owner = owner
        self._registry = registry
        self._queues = queues
        self._claims: dict[str, Claim] = {}
        self._taken: dict[str, int] = {}

    def room(self) -> tuple[dict[str, int], dict[str, int]]:
        """The slots of each queue, and how many of them are free; without the queue of the interpreters. May be called
        from another thread: the numbers are for people, and may be of different moments."""
        queues = {queue: size for queue, size in self._sizes().items() if queue != ENGINE_QUEUE}
        return queues, {queue: max(0, size - self._taken.get(queue, 0)) for queue, size in queues.items()}

    def is_full(self, queue: str) -> bool:
        """Return True if the queue has no free slot. From any thread: a slot may come free, or be taken, meanwhile."""
        return self._taken.get(queue, 0) >= self._sizes().get(queue, 0)

    def _sizes(self) -> dict[str, int]:
        sizes = self._queues or dict.fromkeys(self._registry.queues(), _DEFAULT)
        if INTERPRETED.isdisjoint(self._registry.lanes()):
            return sizes
        return {**sizes, ENGINE_QUEUE: max((_ENGINE_SLOTS, *sizes.values()))}

    def capacity(self, commits: Sequence[Commit], in_memory: Mapping[str, int]) -> Capacity:
        """The number of instances that can be claimed, with the slots that these outcomes free at their commit."""
        free = {queue: size - self._taken.get(queue, 0) for queue, size in self._sizes().items()}
        for commit in commits:
            queue = commit.claim.queue
            if queue in free and commit.claim.id in self._claims and not commit.decision.move.runs_ahead():
                free[queue] += 1
        free = {queue: max(0, slots) for queue, slots in free.items()}
        lanes, codes = self._registry.lanes(), self.fingerprints()
        return Capacity(self._owner, free, lanes, codes=codes, in_memory=in_memory)

    def fingerprints(self) -> Mapping[str, str]:
        return self._registry.fingerprints()

    def take(self, claims: Iterable[Claim]) -> None:
        """Take a slot for each of these. After `free`: an instance that parked and was woken in one turn is in both."""
        for claim in claims:
            self._claims[claim.id] = claim
            self._taken[claim.queue] = self._taken.get(claim.queue, 0) + 1

    def free(self, claim: Claim) -> bool:
        """Free the slot of this claim. Return False if it has none: it was abandoned, and maybe claimed again."""
        if self._claims.get(claim.id) is not claim:
            return False
        del self._claims[claim.id]
        self._taken[claim.queue] -= 1
        return True

    def claims(self) -> list[Claim]:
        return list(self._claims.values())

    def claims_of(self, ids: Iterable[str]) -> list[Claim]:
        return [self._claims[id] for id in ids if id in self._claims]
