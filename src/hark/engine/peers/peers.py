"""Peers: finds what other processes on the same store did, beside the turns.

After a hint one check reads what no claim shows: pending deliveries, the address of a server, deadlines, steps of our
worker that another process ended, signals for the instances that our worker runs. The poll is the fallback for hints
that were lost. It also finds workers whose lease is over or whose process is gone, and starts retention. Used on the
clerk's loop only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from hark.engine.peers.retention import Retention, remove_old
from hark.engine.peers.worker_watch import WorkerWatch
from hark.engine.turns.clerk_state import ClerkState
from hark.engine.turns.reply import Reply
from hark.engine.turns.thread_loop import is_end_of_program
from hark.engine.turns.turn_runner import TurnRunner
from hark.kernel.requests import Reclaim, Request
from hark.model.errors import NotOpen
from hark.model.log import RepeatedWarning, get_logger
from hark.model.processes import is_gone, is_near
from hark.model.reasons import reason
from hark.store import statements as sql
from hark.store.protocol import StoreFault
from hark.store.statements import LeaseRow
from hark.views.worker_info import lease_of, process_of

_log = get_logger()
_RETENTION = 60.0  # seconds between two runs of retention
_LOG_AGAIN = 60.0  # seconds
_NEIGHBOURS = 1.0  # seconds between two looks at the processes of this machine
_TASKS = 3600 * 1_000_000  # µs between two runs that also remove tasks
_BETWEEN_CHECKS = 0.02  # seconds from a check to the next, however many hints there are


class Peers:
    def __init__(
        self,
        state: ClerkState,
        turns: TurnRunner,
        *,
        lease: float,
        retention: Retention,
        hint: Callable[[], None],
        submit: Callable[[Request, Reply[Any] | None], None],
    ) -> None:
        """`lease`: seconds of a worker's lease; `hint` and `submit`: those of the clerk."""
        self._state = state
        self._turns = turns
        self._lease = lease
        self._retention = retention
        self._hint = hint
        self._submit = submit
        self._watch = WorkerWatch(lease)
        self._neighbours: list[str] = []  # the processes of other workers on this machine, as last read
        self.checking = False
        self._check_again = False
        self._tasks_removed = 0  # when tasks were removed last, by the database's clock
        self._warning = RepeatedWarning(_log, "The database does not answer: %s. Trying again.", _LOG_AGAIN)
        self.on_new_origin: Callable[[], None] = lambda: None
        """Called when a server has recorded its address."""
        self._origin_at: int | None = None

    async def poll(self) -> None:
        """Find changes by other processes, dead workers and old instances, for as long as the app is open."""
        next_retention = time.monotonic() + _RETENTION
        next_reclaim = next_look = 0.0
        store = self._state.store
        while True:
            try:
                if await store.changed():
                    self._hint()
                if time.monotonic() > next_look:
                    next_look = time.monotonic() + _NEIGHBOURS
                    if any(map(is_gone, self._neighbours)):
                        next_reclaim = 0.0
                if self._state.worker is not None and time.monotonic() > next_reclaim:
                    next_reclaim = time.monotonic() + max(0.05, min(self._lease / 3, 5.0))
                    await self.reclaim_dead()
                    await self.find_held()
                if self._state.worker is not None and time.monotonic() > next_retention:
                    next_retention = time.monotonic() + _RETENTION
                    self._state.loop.start(self._remove_old())
            except StoreFault as error:
                self._warning.log(reason(error))
                await asyncio.sleep(0.2)
            except Exception as error:
                if not is_end_of_program(error):
                    _log.exception("Polling failed with an unexpected error; it continues.")
                await asyncio.sleep(1)
            await asyncio.sleep(store.poll)

    async def _remove_old(self) -> None:
        now = self._state.clock.now()
        tasks = not 0 <= now - self._tasks_removed < _TASKS
        if tasks:
            self._tasks_removed = now
        await remove_old(self._state.store, self._retention, self._state.clock.now, self._submit, tasks=tasks)

    # -- after a hint -----------------------------------------------------------------------------

    def check_soon(self) -> None:
        """Check now, or once more after the check that runs: one check for any number of hints."""
        if self.checking:
            self._check_again = True
            return
        self.checking = True
        self._check_again = False
        self._state.loop.start(self._check())

    async def _check(self) -> None:
        try:
            [news] = await self._state.store.read(sql.news)
            if news.deliveries:  # never set to False: a turn may run meanwhile
                self._state.work_left.pending_deliveries = True
                self._state.loop.wake()
            if news.origin_at != self._origin_at:
                self._origin_at = news.origin_at
                self.on_new_origin()
            if self._state.worker is not None:
                await self.read_next_due()
                await self.find_lost_steps()
                await self.find_new_signals()
        except StoreFault as error:
            _log.warning("The database does not answer: %s. The next poll checks again.", reason(error))
        except Exception:
            _log.exception("A check after a hint failed with an unexpected error; the next poll checks again.")
        finally:
            asyncio.get_running_loop().call_later(_BETWEEN_CHECKS, self._checked)

    def _checked(self) -> None:
        self.checking = False
        if self._check_again and self._state.loop.running is not None:
            self.check_soon()

    async def read_next_due(self) -> None:
        """Read when something is due next, in whichever process it was armed."""
        try:
            [[due]] = await self._state.store.read(sql.next_due)
        except StoreFault:
            return
        if due is not None and self._state.work_left.note_due(due):
            self._state.loop.wake()

    async def find_lost_steps(self) -> None:
        """Abandon the steps of our worker that another process cancelled or reclaimed."""
        worker = self._state.worker
        if worker is None or not (mine := worker.executing()):
            return
        epochs = dict(await self._state.store.read(sql.epochs, ids=sorted(mine)))
        current = worker.executing()
        for id in self._turns.committing:  # the store may be one epoch ahead of the worker
            current.pop(id, None)
        lost = {id for id, epoch in mine.items() if current.get(id) == epoch and epochs.get(id, -1) != epoch}
        if lost:
            worker.abandon(lost)
            self._hint()  # their slots came free outside a turn: the next turn can fill them

    async def find_new_signals(self) -> None:
        """Notify the instances that wait for signals while they execute of those that other processes sent."""
        worker = self._state.worker
        if worker is None or not (listening := worker.listening()):
            return
        found: dict[str, list[int]] = {}
        for seq, id, *_ in await self._state.store.read(sql.inbox_heads, listening):
            found.setdefault(id, []).append(seq)
        if found:
            worker.notify_unseen(found)

    # -- held instances ---------------------------------------------------------------------------

    async def find_held(self) -> None:
        """Let the next turn try held instances that another process held after the code was registered here (V3)."""
        worker = self._state.worker
        if worker is None:
            return
        codes = worker.fingerprints()
        for lane, held_by in await self._state.store.read(sql.held_groups):
            if lane in codes and codes[lane] not in held_by.split(","):
                self._state.work_left.code_changed = True
                self._hint()
                return

    # -- dead workers -----------------------------------------------------------------------------

    async def reclaim_dead(self) -> None:
        """Queue a reclaim of what dead workers hold."""
        dead = await self.find_dead()
        if dead:
            self._submit(Reclaim(owners=sorted(dead), leases=dead), None)

    async def reclaim_gone(self) -> None:
        """Queue a reclaim of what processes hold that are gone. A worker begins with it: it may have been killed a
        moment ago and started again, and its own lease would be in its way."""
        if not self._state.store.durable:
            return
        with contextlib.suppress(StoreFault, NotOpen):  # the poll looks again; or the app is closing
            gone = self._find_gone(await self._state.store.read(sql.leases))
            if gone:
                self._submit(Reclaim(owners=sorted(gone), leases=gone), None)

    def _find_gone(self, rows: Sequence[LeaseRow]) -> dict[str, int | None]:
        """Find the workers whose process has run on this machine and is gone, with their leases. Their leases prove
        nothing: neither that they live, nor, after an outage, that they could not renew them."""
        processes = {row.id: process for row in rows if (process := process_of(row))}
        self._neighbours = [process for process in processes.values() if is_near(process)]
        return {row.id: row.until for row in rows if is_gone(processes.get(row.id, ""))}

    async def find_dead(self, *, trust_clock: bool = False) -> dict[str, int | None]:
        """Find the workers whose process is gone or whose lease is over, with that lease, and the owners of instances
        that have none.

        `trust_clock`: see `WorkerWatch.find_dead`.
        """
        store, worker = self._state.store, self._state.worker
        if not store.durable:
            return {}
        asked = time.monotonic()
        now = await store.time()
        self._state.clock.adjust(now)  # the local clock may have been set while no turn ran: all slots were taken
        rows = await store.read(sql.leases)
        gone = self._find_gone(rows)
        quiet = not self._state.clock.by_hand and time.monotonic() < store.no_reclaim_before()
        if quiet or (worker is not None and not worker.lease_is_sound()):
            return gone
        me = worker.owner if worker is not None else ""
        leases = [(row.id, row.until, lease_of(row)) for row in rows if row.id != me]
        dead: dict[str, int | None] = dict.fromkeys(o for (o,) in await store.read(sql.unknown_owners) if o != me)
        if self._state.clock.by_hand:
            dead |= {id: until for id, until, _ in leases if until < now}
        else:
            dead |= self._watch.find_dead(leases, now, asked, trust_clock=trust_clock)
        return dead | gone
