"""OtherProcesses: finds what other processes on the same store did, beside the turns.

After a hint one check reads what no claim shows: marks of a broadcast, deadlines, steps of our worker that another
process ended, signals for the instances that our worker runs. The poll is the fallback for hints that were lost. It
also finds workers whose lease is over, and starts retention. Used on the clerk's loop only.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from hark.kernel.requests import Reclaim
from hark.model.log import get_logger
from hark.model.reasons import reason
from hark.runtime.retention import Retention, remove_old
from hark.runtime.worker_info import lease_of
from hark.runtime.worker_watch import WorkerWatch
from hark.store import statements as sql
from hark.store.protocol import StoreFault

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk

_log = get_logger()
_RETENTION = 60.0  # seconds between two runs of retention
_CALM = 0.02  # seconds from a check to the next, however many hints there are


class OtherProcesses:
    def __init__(self, clerk: Clerk, *, lease: float, retention: Retention) -> None:
        """`lease`: seconds of a worker's lease; `retention`: for how long old rows are kept."""
        self._clerk = clerk
        self._lease = lease
        self._retention = retention
        self._watch = WorkerWatch(lease)
        self.checking = False
        self._check_again = False

    async def poll(self) -> None:
        """For as long as the app is open: find changes by other processes, dead workers and old instances."""
        next_retention = time.monotonic() + _RETENTION
        next_reclaim = 0.0
        clerk = self._clerk
        while True:
            try:
                if await clerk.store.changed():
                    clerk.hint()
                if clerk.worker is not None and time.monotonic() > next_reclaim:
                    next_reclaim = time.monotonic() + max(0.05, min(self._lease / 3, 5.0))
                    await self.reclaim_dead()
                if clerk.worker is not None and time.monotonic() > next_retention:
                    next_retention = time.monotonic() + _RETENTION
                    clerk.loop.start(remove_old(clerk, self._retention))
            except StoreFault as error:
                _log.warning("The database does not answer: %s. Trying again.", reason(error))
                await asyncio.sleep(0.2)
            except Exception:
                _log.exception("Polling failed with an unexpected error; it continues.")
                await asyncio.sleep(1)
            await asyncio.sleep(clerk.store.poll)

    # -- after a hint -----------------------------------------------------------------------------

    def check_soon(self) -> None:
        """Check now, or once more after the check that runs: one check for any number of hints."""
        if self.checking:
            self._check_again = True
            return
        self.checking = True
        self._check_again = False
        self._clerk.loop.start(self._check())

    async def _check(self) -> None:
        clerk = self._clerk
        try:
            if await clerk.store.read(sql.any_marks):  # never set to False here: a turn may run meanwhile
                clerk.work_left.marks = True
                clerk.loop.wake()
            if clerk.worker is not None:
                await self.read_next_due()
                await self.find_lost_steps()
                await self.find_new_signals()
        except StoreFault as error:
            _log.warning("The database does not answer: %s. The next poll checks again.", reason(error))
        except Exception:
            _log.exception("A check after a hint failed with an unexpected error; the next poll checks again.")
        finally:
            asyncio.get_running_loop().call_later(_CALM, self._checked)

    def _checked(self) -> None:
        self.checking = False
        if self._check_again and self._clerk.loop.running is not None:
            self.check_soon()

    async def read_next_due(self) -> None:
        """Read when something is due next, in whichever process it was armed."""
        try:
            [[due]] = await self._clerk.store.read(sql.next_due)
        except StoreFault:
            return
        if due is not None and self._clerk.work_left.note_due(due):
            self._clerk.loop.wake()

    async def find_lost_steps(self) -> None:
        """Abandon the steps of our worker that another process cancelled or reclaimed."""
        worker = self._clerk.worker
        if worker is None or not (mine := worker.executing()):
            return
        epochs = dict(await self._clerk.store.read(sql.epochs, ids=sorted(mine)))
        current = worker.executing()
        for id in self._clerk.turns.committing:  # the store may be one epoch ahead of the worker
            current.pop(id, None)
        lost = {id for id, epoch in mine.items() if current.get(id) == epoch and epochs.get(id, -1) != epoch}
        if lost:
            worker.abandon(lost)
            self._clerk.hint()  # their slots came free outside a turn: the next turn can fill them

    async def find_new_signals(self) -> None:
        """Notify the instances that wait for signals while they execute of those that other processes sent."""
        worker = self._clerk.worker
        if worker is None or not (listening := worker.listening()):
            return
        found: dict[str, list[int]] = {}
        for seq, id, *_ in await self._clerk.store.read(sql.inbox_heads, listening):
            found.setdefault(id, []).append(seq)
        if found:
            worker.notify_unseen(found)

    # -- dead workers -----------------------------------------------------------------------------

    async def reclaim_dead(self) -> None:
        """Queue a reclaim of what dead workers hold."""
        dead = await self.find_dead()
        if dead:
            self._clerk.submit(Reclaim(owners=sorted(dead), leases=dead))

    async def find_dead(self, *, trust_clock: bool = False) -> dict[str, int | None]:
        """The workers whose lease is over, with that lease, and the owners of instances that have none.

        `trust_clock`: see `WorkerWatch.find_dead`.
        """
        clerk = self._clerk
        if not clerk.store.durable:
            return {}
        asked = time.monotonic()
        now = await clerk.store.time()
        clerk.clock.adjust(now)  # the local clock may have been set while no turn ran because all slots were taken
        quiet = not clerk.clock.by_hand and time.monotonic() < clerk.store.no_reclaim_before()
        if quiet or (clerk.worker is not None and not clerk.worker.lease_is_sound()):
            return {}
        me = clerk.worker.owner if clerk.worker is not None else ""
        leases = [(row.id, row.until, lease_of(row)) for row in await clerk.store.read(sql.leases) if row.id != me]
        dead: dict[str, int | None] = dict.fromkeys(o for (o,) in await clerk.store.read(sql.unknown_owners) if o != me)
        if clerk.clock.by_hand:
            dead |= {id: until for id, until, _ in leases if until < now}
        else:
            dead |= self._watch.find_dead(leases, now, asked, trust_clock=trust_clock)
        return dead
