"""SlotDemand: parks handlers that linger in their slots as soon as other work waits for these (J7).

A handler that waits keeps its slot for the linger, so that a signal finds it in memory. When its queue is full and has
claimable rows, or when rows are blocked on its concurrency key, as many handlers are asked to leave as there are such
rows, those that have lingered longest first. Their parks free the slots, and the turns of the parks claim the rows.

Rows are counted between two turns: a turn of this process would claim some of them meanwhile. Work of other processes
is noticed by their hints. Nothing is read while no handler lingers. Used on the clerk's loop, except `ask`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from hark.engine.turns.clerk_state import ClerkState
from hark.engine.turns.local_worker import LocalWorker
from hark.kernel.result import TurnResult
from hark.model.lanes import INTERPRETED
from hark.model.lingering import Lingering
from hark.model.log import get_logger
from hark.model.reasons import reason
from hark.store import reads
from hark.store.protocol import StoreFault

_log = get_logger()
_LONGEST_READ = 2.0  # seconds: turns wait for it, and callers for them
_READ_AGAIN = 0.5  # seconds after a read that the database did not answer


class SlotDemand:
    def __init__(self, state: ClerkState) -> None:
        self._state = state
        self._is_asked = False
        self._leaving: list[Lingering] = []  # asked to leave, and still in their slots

    def ask(self) -> None:
        """Note that work may wait for the slot of a handler that lingers. From any thread."""
        self._is_asked = True
        self._state.loop.wake()

    def ask_after(self, result: TurnResult) -> None:
        """Ask after a turn, if it may have left work."""
        worker, pending = self._state.worker, result.pending
        if worker is None or not worker.lingering:
            return
        if pending.made_claimable or pending.left_claimable or pending.backlog or pending.refused_keys:
            self._is_asked = True

    def ask_after_hint(self) -> None:
        """Ask because another process may have made work."""
        if (worker := self._state.worker) is not None and worker.lingering:
            self._is_asked = True

    def __bool__(self) -> bool:
        return self._is_asked and self._state.worker is not None

    async def look(self) -> None:
        """Ask as many handlers to leave as there are rows that wait for their slots, between two turns."""
        self._is_asked = False
        worker = self._state.worker
        if worker is None or self._state.loop.closing:
            return
        executing = worker.executing()
        self._leaving = [one for one in self._leaving if not one.is_over and executing.get(one.id) == one.epoch]
        # Of one that has ended meanwhile the slot is free, or about to be claimed again.
        staying = [one for one in worker.lingering.copy().values() if executing.get(one.id) == one.epoch]
        staying = sorted(set(staying).difference(self._leaving), key=lambda one: one.since)
        if not staying:
            return
        try:
            async with asyncio.timeout(_LONGEST_READ):
                leaving = await self._for_keys(staying)
                leaving += await self._for_queues(worker, [one for one in staying if one not in leaving], leaving)
        except (StoreFault, TimeoutError) as error:
            why = reason(error) if isinstance(error, StoreFault) else "no answer in time"
            _log.warning("Could not look for work that waits for a slot: %s. Trying again.", why)
            asyncio.get_running_loop().call_later(_READ_AGAIN, self.ask)
            return
        except Exception:
            _log.exception("Could not look for work that waits for a slot. Handlers that wait keep theirs.")
            return
        if leaving:
            self._leaving += leaving
            worker.make_room(leaving)

    async def _for_keys(self, staying: list[Lingering]) -> list[Lingering]:
        """Return those that keep rows blocked which wait for their concurrency key."""
        holders: dict[str, list[Lingering]] = {}
        for one in staying:
            if one.concurrency_key is not None:
                holders.setdefault(one.concurrency_key, []).append(one)
        if not holders:
            return []
        rows = [(key, f"slot:{key}") for key in sorted(holders)]
        most = max(len(keep) for keep in holders.values()) + len(self._leaving)
        blocked = dict(await self._state.store.read(reads.blocked_on_keys, rows, most=most))
        leaving = Counter(one.concurrency_key for one in self._leaving)
        return [one for key, keep in holders.items() for one in keep[: max(0, blocked.get(key, 0) - leaving[key])]]

    async def _for_queues(
        self, worker: LocalWorker, staying: list[Lingering], leaving_too: Iterable[Lingering]
    ) -> list[Lingering]:
        """Return those in full queues whose rows this worker could run."""
        capacity = worker.capacity(())
        queues: dict[str, list[Lingering]] = {}
        for one in staying:
            if capacity is not None and capacity.free.get(one.queue) == 0:
                queues.setdefault(one.queue, []).append(one)
        if capacity is None or not queues:
            return []
        lanes = [lane for lane in capacity.lanes if lane not in INTERPRETED]
        rows = [(queue, lane) for queue in sorted(queues) for lane in lanes]
        leaving = Counter(one.queue for one in (*self._leaving, *leaving_too))
        most = max(len(keep) + leaving[queue] for queue, keep in queues.items())
        waiting: Counter[str] = Counter()
        for queue, count in await self._state.store.read(reads.claimable_in_lanes, rows, most=most):
            waiting[queue] += count
        return [one for queue, keep in queues.items() for one in keep[: max(0, waiting[queue] - leaving[queue])]]
