"""Residents: keeps parked durable functions in memory, so that their next activation needs no replay.

A function that is answered soon after it has parked continues where it stands. Nothing depends on it: the store has
everything, and a function that is not resident, or was activated elsewhere meanwhile, is replayed. They are few, small
and young: when there are too many, the oldest are given up. Used on the worker's loop only, but for `epochs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hark.model.activation import Claim

_MOST_TEXT = 32 << 20  # characters of inputs, journals and inboxes of all of them
_SECONDS = 60.0


class _Resident:
    """The claim of a parked function, whose session has its code."""

    __slots__ = ("claim", "since", "size")

    def __init__(self, claim: Claim, since: float) -> None:
        self.claim = claim
        self.since = since
        self.size: int = claim.session.size()


class Residents:
    """The parked functions that one worker keeps in memory."""

    def __init__(self, most: int, release: Callable[[Claim], None]) -> None:
        """Keep at most `most` functions. `release` ends what a claim keeps in memory."""
        self._most = most
        self._release = release
        self._by_id: dict[str, _Resident] = {}  # the oldest first
        self.epochs: dict[str, int] = {}
        """The epoch at which each of them has parked. The clerk's thread reads it: a turn does not read the journal of
        an instance that it claims at this epoch."""
        self._text = 0
        self._timer: asyncio.TimerHandle | None = None

    def keep(self, claim: Claim) -> None:
        """Keep the function of this claim, whose instance has parked."""
        self._give_up(claim.id)
        loop = asyncio.get_running_loop()
        resident = self._by_id[claim.id] = _Resident(claim, loop.time())
        self.epochs[claim.id] = _parked_at(claim)
        self._text += resident.size
        while len(self._by_id) > self._most or self._text > _MOST_TEXT:
            self._give_up(next(iter(self._by_id)))
        if self._timer is None and self._by_id:
            self._timer = loop.call_later(_SECONDS, self._give_up_old)

    def resume(self, claim: Claim) -> None:
        """Continue a resident function on this claim, if its instance is as it was when it parked."""
        resident = self._remove(claim.id)
        if resident is None:
            return
        parked = resident.claim
        if claim.epoch_before == _parked_at(parked):  # nothing else has happened to it (invariant 2)
            parked.session.resume(claim)
        else:
            self._release(parked)

    def close(self) -> None:
        """Give up all resident functions, and whatever parks from now on."""
        self._most = 0
        for id in [*self._by_id]:
            self._give_up(id)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for id, resident in [*self._by_id.items()]:
            left = resident.since + _SECONDS - loop.time()
            if left > 0:
                self._timer = loop.call_later(left, self._give_up_old)
                return
            self._give_up(id)

    def _give_up(self, id: str) -> None:
        resident = self._remove(id)
        if resident is not None:
            self._release(resident.claim)

    def _remove(self, id: str) -> _Resident | None:
        resident = self._by_id.pop(id, None)
        if resident is not None:
            del self.epochs[id]
            self._text -= resident.size
        return resident


def _parked_at(claim: Claim) -> int:
    """The epoch of an instance that has parked with the outcome of this claim."""
    return claim.epoch + 1
