"""ExpressTurns: claims for queues with free slots, beside a large turn for queues without any.

A turn that commits and claims a hundred instances takes some milliseconds, most of which the clerk waits for the
database. An instance of another queue that a signal has woken meanwhile would wait for the end of this turn, and then
for the next one. So a turn of nothing but outcomes claims for the queues that are full, and a second connection claims
for the others as soon as a hint comes: one call each (kernel/one_call_turn.py). The two claim for different queues, so
they never count on the same slot. What an express turn cannot claim is left to the next turn, which then claims for all
queues. `is_for` and `Split` are the policy; everything here runs on the clerk's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hark.kernel.requests import Commit
from hark.model.decisions import Finish, Proceed, runs_ahead
from hark.runtime.one_calls import OneCalls, UnknownCall
from hark.runtime.request_queue import Queued
from hark.store.protocol import StoreFault

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk

_LARGE = 20  # outcomes: the statements of a smaller turn take about as long as an express turn and its switches
_PAUSE = 5.0  # seconds without express turns after one has failed


def split_queues(free: Mapping[str, int]) -> tuple[frozenset[str], frozenset[str]]:
    """The queues without free slots, and the others."""
    full = frozenset(queue for queue, slots in free.items() if slots <= 0)
    return full, frozenset(free) - full


def concerns_only_its_queue(outcome: Commit) -> bool:
    """Whether committing this makes no instance of another queue claimable."""
    claim, decision = outcome.claim, outcome.decision
    if decision.effects or decision.queue is not None or claim.concurrency_key is not None:
        return False
    move = decision.move
    if type(move) is Proceed and any(line.effect for line in decision.journal or ()):
        return False
    return claim.parent_id is None or not isinstance(move, Finish)


class ExpressTurns:
    def __init__(self, clerk: Clerk, one_calls: OneCalls) -> None:
        self._clerk = clerk
        self._one_calls = one_calls
        self._open: frozenset[str] = frozenset()  # the queues that express turns claim for
        self._unread = False  # rows of these queues may be claimable
        self._wide_next = False  # an express turn could not claim them: the next turn has to
        self._ending = False  # the turn beside has ended
        self._unknown: UnknownCall | None = None
        self._not_before = 0.0

    def full_queues(self, items: Sequence[Queued], *, hinted: bool) -> frozenset[str] | None:
        """The queues for which a turn of these requests claims, if express turns claim for the others; otherwise
        None."""
        wide, self._wide_next = self._wide_next, False
        if len(items) < _LARGE or wide or not self._clerk.store.has_one_calls:
            return self._wide()
        worker = self._clerk.worker
        capacity = None if worker is None or self._clerk.loop.closing else worker.capacity(())
        if capacity is None or time.monotonic() < self._not_before:
            return self._wide()
        full, self._open = split_queues(capacity.free)
        if not full or not self._open:
            return self._wide()
        unread = False
        for item in items:
            outcome = item.request
            if type(outcome) is not Commit or not concerns_only_its_queue(outcome):
                return self._wide()
            unread = unread or (outcome.claim.queue in self._open and not runs_ahead(outcome.decision.move))
        self._unread_later = unread
        self._unread = self._unread or hinted
        return full

    def _wide(self) -> None:
        self._unread = False
        return None

    async def run_beside(self, items: list[Queued], full: frozenset[str]) -> None:
        clerk = self._clerk
        self._ending = False
        express = asyncio.ensure_future(self._claim_when_hinted())
        try:
            await clerk.turns.run(items, claim=True, queues=full)
        finally:
            self._ending = True
            clerk.loop.wake()
            await express
            self._unread = self._unread or self._unread_later
            if self._unread:
                clerk.work_left.claimable = True
            if self._unknown is not None:
                call, self._unknown = self._unknown, None
                await clerk.turns.forget(call)

    async def _claim_when_hinted(self) -> None:
        clerk = self._clerk
        left = clerk.work_left
        while not self._ending and not self._wide_next:
            hinted = left.hinted
            if hinted:
                left.hinted = False
                self._unread = True
            if self._unread:
                self._unread = False
                if not await self._claim():
                    self._unread = self._wide_next = True
            if hinted:
                clerk.check_for_others()
            if not hinted:
                clerk.loop.expect_wake()
                if not left.hinted and not self._ending:
                    await clerk.loop.sleep(None)

    async def _claim(self) -> bool:
        """Claim for the open queues. False if a turn has to."""
        clerk = self._clerk
        worker = clerk.worker
        capacity = None if worker is None else worker.capacity(())
        if capacity is None:
            return False
        capacity.free = {queue: slots for queue, slots in capacity.free.items() if queue in self._open}
        try:
            done = await self._one_calls.run(clerk.store, (), capacity, express=True)
        except UnknownCall as call:
            self._unknown = call
            done = None
        except StoreFault:
            done = None
            self._not_before = time.monotonic() + _PAUSE
        if done is None:
            return False
        _, result = done
        clerk.finish_express_turn(result)
        return True
