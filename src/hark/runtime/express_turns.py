"""ExpressTurns: claims for queues with free slots, beside a large turn for queues without any.

A turn that commits and claims a hundred instances takes some milliseconds, most of which the clerk waits for the
database. An instance of another queue that a signal wakes meanwhile would wait for the end of this turn, and then for
the next one. So a large turn of outcomes claims for the full queues only, and a second connection claims for the others
as soon as a hint comes, in one call each (kernel/one_call_turn.py). The two claim for different queues, so they never
fill the same slot. What an express turn cannot claim is left to the next turn, which then claims for all queues.

`full_queues` is the policy. Everything here runs on the clerk's loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hark.kernel.requests import Commit, Request
from hark.model.decisions import Park, Proceed
from hark.model.log import get_logger
from hark.runtime.one_calls import OneCalls, UnknownCall
from hark.runtime.request_queue import Queued
from hark.store.protocol import StoreFault

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk

_log = get_logger()
_LARGE = 20  # requests: a smaller turn is over before an express turn would be worth it
_PAUSE = 5.0  # seconds without express turns after one has failed


def full_queues(requests: Sequence[Request], free: Mapping[str, int]) -> frozenset[str]:
    """The queues that a turn of these requests claims for, if express turns are to claim for the others.

    Args:
        requests: The requests of the turn.
        free: The slots of each queue that are free before the turn.

    Returns:
        The queues without free slots. Empty if the turn has to claim for all queues: it is small, all queues or none
        are full, or it may make instances of other queues claimable, which must not wait for the next turn.
    """
    if len(requests) < _LARGE:
        return frozenset()
    full = frozenset(queue for queue, slots in free.items() if slots <= 0)
    if len(full) == len(free):
        return frozenset()
    return full if full and all(map(_concerns_only_its_queue, requests)) else frozenset()


def _concerns_only_its_queue(request: Request) -> bool:
    """Whether this outcome makes nothing claimable in another queue: it ends no child, frees no bucket, has no effects
    (its own or of its journal), and starts no children."""
    if type(request) is not Commit:
        return False
    claim, decision = request.claim, request.decision
    if claim.parent_id is not None or claim.concurrency_key is not None or decision.queue is not None:
        return False
    if decision.effects or any(line.effect is not None for line in decision.journal or ()):
        return False
    move = decision.move
    return not (isinstance(move, Park | Proceed) and any(arm.children for arm in move.arm))


class ExpressTurns:
    def __init__(self, clerk: Clerk, one_calls: OneCalls) -> None:
        self._clerk = clerk
        self._one_calls = one_calls
        self._full: frozenset[str] = frozenset()  # the queues that the large turn claims for
        self._has_failed = False  # the last express turn left rows: the next turn has to claim for all queues
        self._is_over = False  # the large turn has ended
        self._unknown: UnknownCall | None = None
        self._not_before = 0.0  # by the monotonic clock

    def queues_for(self, items: Sequence[Queued]) -> frozenset[str]:
        """As `full_queues`, for the next turn; also empty if express turns are not possible now."""
        clerk = self._clerk
        if len(items) < _LARGE or clerk.worker is None or clerk.loop.closing or not clerk.store.has_one_calls:
            return frozenset()
        capacity = clerk.worker.capacity(())
        if self._has_failed or capacity is None or time.monotonic() < self._not_before:
            return frozenset()
        return full_queues([item.request for item in items], capacity.free)

    def all_claimed(self) -> None:
        """A turn has claimed for all queues."""
        self._has_failed = False

    async def run_beside(self, items: list[Queued], full: frozenset[str]) -> None:
        """Run a large turn that claims for these queues, and express turns until it has ended."""
        clerk = self._clerk
        self._full, self._is_over = full, False
        express = asyncio.ensure_future(self._claim_for_other_queues())
        try:
            await clerk.turns.run(items, claim=True, queues=full)
        finally:
            self._is_over = True
            clerk.loop.wake()
            await express
        if self._unknown is not None:  # now: during the large turn, its claims would be taken for those of the call
            call, self._unknown = self._unknown, None
            await clerk.turns.hand_back_claims(call)

    async def _claim_for_other_queues(self) -> None:
        clerk, left = self._clerk, self._clerk.work_left
        while not self._is_over and not self._has_failed:
            hinted = left.take_hint()
            if left.claimable_anywhere:
                left.claimable_anywhere = False  # before the call: what is made claimable during it may not be seen
                self._has_failed = not await self._claim()
                if self._has_failed:
                    left.claimable = left.claimable_anywhere = True
            if hinted:
                clerk.check_for_others()
                continue
            clerk.loop.expect_wake()
            if not left.hinted and not self._is_over:
                await clerk.loop.sleep(None)

    async def _claim(self) -> bool:
        """Claim for the queues that the large turn does not claim for. False if the next turn has to."""
        clerk = self._clerk
        capacity = None if clerk.worker is None else clerk.worker.capacity(())
        if capacity is None:
            return False
        capacity.free = {queue: slots for queue, slots in capacity.free.items() if queue not in self._full}
        try:
            done = await self._one_calls.run(clerk.store, (), capacity, express=True)
            if done is None:
                return False
            _, result = done
            clerk.finish_express_turn(result)
        except Exception as error:
            if isinstance(error, UnknownCall):
                self._unknown = error
            elif not isinstance(error, StoreFault):
                _log.exception("An express turn failed with an unexpected error; the next turn claims instead.")
            self._not_before = time.monotonic() + _PAUSE
            return False
        return not result.pending.left_claimable  # it has filled a queue, in which more rows may wait
