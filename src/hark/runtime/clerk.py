"""The clerk: one thread that owns the write connection and works in turns.

A turn takes all that has queued up since the last one, does it in one transaction and then answers
everybody. While it waits for the disk the next turn fills: no timer, no batch size. Idle means the
latency of one turn, load means large batches.

A turn that fails: rolled back by a conflict, it runs again whole. The connection cut, the database is
asked what became of it. A row refused, the turn is halved until the bad one fails alone. Nothing
writable, callers are told and outcomes wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

from hark.kernel.commit import are_plain
from hark.kernel.requests import (
    Capacity,
    Commit,
    Publish,
    Reclaim,
    Request,
    Retain,
)  # fmt: skip
from hark.kernel.turn import Rules, Turn
from hark.model.activation import Claim
from hark.model.errors import HarkError, InvalidInput, NotOpen, StoreUnavailable
from hark.runtime import views
from hark.runtime.completions import Completions
from hark.runtime.conditions import Condition, Conditions
from hark.runtime.metrics import ProcessCounters
from hark.runtime.reply import Reply, answer_all
from hark.runtime.turn_order import TurnOrder
from hark.store import statements as sql
from hark.store.protocol import Conflicted, Full, Lost, Store, StoreFault, Unknown

Item = tuple[Request, Reply[Any] | None, float]
_log = logging.getLogger("hark")
_MOST = 5000  # requests in a turn: far above what a turn collects, so that none grows without end
_PATIENCE = 10.0  # seconds a caller waits for a database that is gone
_HOUSEKEEPING = 60.0
_GAP = 0.001
_CALM = 0.02  # seconds from a look around to the next, however many hints come
_CROWDED = 100  # requests in a turn while another process waits for the file


class LocalWorker(Protocol):
    """A worker, as the clerk sees it. Called on the clerk's thread."""

    owner: str
    open: bool
    """False while it stops: it takes nothing more."""

    def capacity(self, commits: Sequence[Commit]) -> Capacity | None: ...
    def take(self, commits: Sequence[Commit], claims: Sequence[Claim]) -> None: ...
    def lost(self, ids: set[str]) -> None: ...
    def running(self) -> dict[str, int]: ...
    def mail(self, ids: set[str]) -> None: ...
    def listening(self) -> list[str]: ...
    def tell(self, mail: dict[str, set[int]]) -> None: ...
    def steady(self) -> bool: ...


class Clerk:
    def __init__(
        self,
        store: Callable[[], Store],
        rules: Rules,
        *,
        lease: float,
        retention: float,
        clock: Callable[[], int] | None,
    ) -> None:
        self.make_store = store
        self._rules = rules
        self._lease = lease
        self._retention = retention
        self._clock = clock
        self._queue: deque[Item] = deque()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._rung = False
        self._closing = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.catalog: dict[str, dict[int, tuple[str, str, str]]] = {}
        self.worker: LocalWorker | None = None  # changed on this loop only
        self._hungry = False
        self._crowded = False  # somebody may be in line for a seat: a step that goes on must look
        self._hinted = False
        self._looking = self._look_again = False
        self._marks = True  # a large broadcast may have been left by somebody who died
        self._due: int | None = None
        self._underway: set[str] = set()  # whose outcomes the present turn commits
        self._offset = 0  # the database's clock less ours, µs
        self.completions = Completions(self._read, self.hint)
        self.conditions = Conditions(self._read, self._keep)
        self.counters = ProcessCounters()
        self.store: Store

    # -- opening and closing ----------------------------------------------------------------------

    def open(self) -> Reply[None]:
        if self.is_open:
            raise InvalidInput("This app is open already. Use the one that is open, or make another Hark(…).")
        reply: Reply[None] = Reply()
        self._closing = False
        self._thread = threading.Thread(target=self._main, args=(reply,), name="hark-clerk", daemon=True)
        self._thread.start()
        return reply

    def close(self) -> Reply[None]:
        """Finish what is queued, then go."""
        reply: Reply[None] = Reply()
        loop = self._loop
        if loop is None or self._thread is None:
            answer_all([(reply, None)])
            return reply
        self._closed = reply
        self._closing = True
        self._ring()
        return reply

    def _main(self, opened: Reply[None]) -> None:
        try:
            self.store = self.make_store()
        except BaseException as error:
            answer_all([(opened, error)])
            return
        with asyncio.Runner(loop_factory=self.store.new_loop) as runner:
            runner.run(self._live(opened))

    async def _live(self, opened: Reply[None]) -> None:
        try:
            await self.store.open()
            self._offset = await self.store.time() - time.time_ns() // 1000
        except BaseException as error:
            answer_all([(opened, _unavailable(error) if isinstance(error, StoreFault) else error)])
            return
        self._loop = asyncio.get_running_loop()
        self._bell = asyncio.Event()
        self._looking = False  # the last loop may have ended in the middle of a look
        self.store.listen(self.hint)
        answer_all([(opened, None)])
        errand = asyncio.create_task(self._watch())
        try:
            await self._work()
        finally:
            self._loop = None
            errand.cancel()
            await asyncio.gather(errand, *self._tasks, return_exceptions=True)
            gone = NotOpen("The app was closed before this was done. Open it again and repeat the call.")
            answer_all([(reply, gone) for _, reply, _ in self._queue if reply is not None])
            self._queue.clear()
            self.completions.close(gone)
            self.conditions.close(gone)
            await self.store.close()
            if self._closing:
                answer_all([(self._closed, None)])

    # -- being asked ------------------------------------------------------------------------------

    def submit(self, request: Request, reply: Reply[Any] | None = None) -> None:
        """Queue a request, from any thread. Its reply comes after the COMMIT."""
        if self._loop is None or self._closing:
            raise not_open()
        self._queue.append((request, reply, time.monotonic()))
        self._ring()

    def submit_outcomes(self, outcomes: Sequence[Commit]) -> None:
        """The worker's half of `submit`: many at once, and their answer is its `take`."""
        if self._loop is None or self._closing:
            raise not_open()
        now = time.monotonic()
        self._queue.extend([(outcome, None, now) for outcome in outcomes])
        self._ring()

    def read(self, question: Callable[[Store], Awaitable[Any]], reply: Reply[Any]) -> None:
        """Answer a question beside the turns, on the store's read connections."""
        self.spawn(self._read(question, reply))

    async def _read(self, question: Callable[[Store], Awaitable[Any]], reply: Reply[Any]) -> None:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                answer = await question(self.store)
            except (Conflicted, Lost) as error:
                if time.monotonic() < until and not self._closing:
                    await asyncio.sleep(0.1)
                    continue
                answer = _unavailable(error)
            except StoreFault as error:
                answer = _unavailable(error)
            except Exception as error:
                answer = error
            answer_all([(reply, answer)])
            return

    def spawn(self, job: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine on the clerk's loop, from any thread."""
        loop = self._loop
        if loop is None or self._closing:
            job.close()
            raise not_open()
        loop.call_soon_threadsafe(self._keep, job)

    def _keep(self, job: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ring(self) -> None:
        loop = self._loop
        if not self._rung and loop is not None:
            self._rung = True
            loop.call_soon_threadsafe(self._bell.set)  # type: ignore[union-attr]

    def hint(self) -> None:
        """Somebody else may have made work, or ended something we wait for."""
        self._hinted = True  # not `_hungry`: the turn under way would set it back, and it may have claimed too early
        self.completions.hear()
        self._ring()

    def now(self) -> int:
        """The database's clock as far as we know, µs."""
        return self._clock() if self._clock else time.time_ns() // 1000 + self._offset

    @property
    def hungry(self) -> bool:
        """The last turn left something that the next one may claim, or must deliver."""
        return self._hinted or self._hungry or self._marks

    @property
    def is_open(self) -> bool:
        return self._loop is not None and not self._closing

    def wait_for_end(self, target: str, seconds: float | None, reply: Reply[Any]) -> None:
        """Answer with (id, status, result, error) when this instance has ended. From any thread."""
        loop = self._loop
        if loop is None or self._closing:
            raise not_open()
        if self.completions.ask(target, seconds, reply):
            loop.call_soon_threadsafe(lambda: self._keep(self.completions.find()))

    def wait_until(self, target: str, condition: Condition, seconds: float | None, reply: Reply[Any]) -> None:
        """Answer when this instance meets the condition, see conditions.py. From any thread."""
        loop = self._loop
        if loop is None or self._closing:
            raise not_open()
        if self.conditions.ask(target, condition, seconds, reply):
            loop.call_soon_threadsafe(lambda: self._keep(self.conditions.resolve(self.store)))

    # -- working ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        assert self._bell is not None
        while True:
            if not self._has_work():
                self._rung = False
                self._bell.clear()
                if not self._has_work() and not self._hinted:
                    if self._closing:
                        return
                    await self._rest()
            if self._hinted:
                self._hinted = False
                self._hungry = True
                if self.completions.waiting:
                    self._keep(self.completions.look(self.store))
                self.conditions.check_soon(self.store)
                self._look_soon()
            # SQLite never waits within a turn: without this nobody else would get this loop, or the file.
            await asyncio.sleep(_GAP if self.store.has_other_writers() else 0)
            if not self._has_work():
                continue
            try:
                await self._turn(self._next(), claim=True, sweep=self._is_due(), marks=self._marks)
            except Exception:
                _log.exception("A turn failed in a way nobody expected; going on.")
                await asyncio.sleep(1)

    def _has_work(self) -> bool:
        if self._queue or self._closing:
            return bool(self._queue)
        return self.worker is not None and (self._is_due() or self._marks or self._wants_claims())

    def _is_due(self) -> bool:
        return self._due is not None and self.worker is not None and self._due <= self.now()

    def _wants_claims(self) -> bool:
        if not self._hungry or self.worker is None:
            return False
        capacity = self.worker.capacity(())
        return capacity is not None and any(capacity.free.values())

    async def _rest(self) -> None:
        """Until the bell rings, or the next thing is due."""
        assert self._bell is not None
        if self._due is None or self.worker is None:
            await self._bell.wait()
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._bell.wait(), max(0.0, (self._due - self.now()) / 1_000_000))

    def _next(self) -> list[Item]:
        """The requests of the next turn: all, up to one that must not overtake another it may depend on."""
        items: list[Item] = []
        order = TurnOrder()
        most = _CROWDED if self.store.has_other_writers() else _MOST
        queue = self._queue
        publishing = bool(queue) and isinstance(queue[0][0], Publish)
        while queue and len(items) < most:
            request = queue[0][0]
            if isinstance(request, Publish) is not publishing:
                break  # broadcasts have turns of their own
            if type(request) is not Commit:
                if items and not order.fits(request):
                    break
                order.add(request)
            items.append(queue.popleft())
        return items

    async def _turn(self, items: list[Item], *, claim: bool, sweep: bool = False, marks: bool = False) -> None:
        requests = [item[0] for item in items]
        commits = [request for request in requests if type(request) is Commit]
        wait, since = 0.01, time.monotonic()
        while True:
            seat = self.worker if claim and not self._closing else None
            capacity, plain = None, are_plain(requests)
            if seat is not None and (self._hungry or self._crowded or (not plain and _make_work(requests))):
                capacity = seat.capacity(commits)
                if capacity is not None:
                    capacity.backlog = self._hungry or self._crowded
            self._underway = {commit.claim.id for commit in commits}
            try:
                run_on = seat is not None and seat.open
                turn = await self._attempt(requests, capacity, sweep=sweep, marks=marks, run_on=run_on, plain=plain)
                break
            except (Conflicted, Lost, Full) as fault:
                items = self._give_up(items, fault, since)
                requests = [item[0] for item in items]
                commits = [request for request in requests if isinstance(request, Commit)]
                conflict = isinstance(fault, Conflicted)
                await asyncio.sleep(random.uniform(0, wait) if conflict else wait if items else 0.2)
                if not items:
                    return
                wait = min(0.2 if conflict else 1.0, wait * 2)
            except Exception as error:
                await self._split(items, error)
                return
        self._after(turn, items, capacity, sweep, marks)
        self._underway = set()

    async def _attempt(self, requests: Sequence[Request], capacity: Capacity | None, **how: bool) -> Turn:
        tx = await self.store.begin()
        turn = Turn(tx, self._rules, self.catalog)
        try:
            await turn.run(requests, capacity, **how)
        except BaseException:
            await tx.rollback()
            raise
        try:
            await tx.commit()
        except Lost:
            if not await self._became(turn):
                raise Conflicted("the commit did not happen") from None
        except StoreFault:
            await tx.rollback()
            raise
        return turn

    async def _became(self, turn: Turn) -> bool:
        """A cut in COMMIT: ask until the database answers; never guess.

        A server that crashed gives the number of a forgotten transaction to the next one, so «committed»
        counts only with our own rows to show for it.
        """
        xid, since = turn.tx.xid, time.monotonic()
        while True:
            try:
                committed = await self.store.committed(xid)
                if committed and (turn.events or turn.ran_on or turn.publishes):
                    committed = bool(await self.store.read(sql.proof_of_commit, tx=xid, now=turn.now))
                return committed
            except StoreFault as fault:
                if self._closing:
                    raise Unknown(str(fault)) from fault
                self._give_up([], fault, since)
                await asyncio.sleep(0.2)

    def _give_up(self, items: list[Item], fault: StoreFault, since: float) -> list[Item]:
        """Callers are told when nothing can be written, those still in the queue too, or they would wait behind
        an outcome for as long as the database is gone. Outcomes are kept, for their work is done."""
        latest = time.monotonic() - (0 if isinstance(fault, Full) else _PATIENCE)
        late = since <= latest
        closing = self._closing and (late or not isinstance(fault, Conflicted))
        told: list[tuple[Reply[Any], Any]] = []

        def keep(item: Item) -> bool:
            request, reply, asked = item
            if reply is not None and (closing or max(asked, since) <= latest):
                told.append((reply, _unavailable(fault)))
                return False
            return reply is not None or (isinstance(request, Commit) and not closing)

        kept = [item for item in items if keep(item)]
        if late or closing:
            waiting = [self._queue.popleft() for _ in range(len(self._queue))]
            self._queue.extendleft(reversed([item for item in waiting if keep(item)]))
        answer_all(told)
        return kept

    async def _split(self, items: list[Item], error: Exception) -> None:
        """A bad row must not fail its neighbours: halve, in order, until it is alone."""
        if not items:
            raise error
        if len(items) > 1:
            half = len(items) // 2
            await self._turn(items[:half], claim=False)
            await self._turn(items[half:], claim=False)
            return
        request, reply, _ = items[0]
        if isinstance(request, Commit):
            _log.error("The outcome of %s cannot be stored: %s", request.claim.id, error, exc_info=error)
            request.answer = error
            if self.worker is not None:
                self.worker.take([request], [])
        elif reply is not None:
            answer_all([(reply, error)])
        else:
            _log.error("%s failed: %s", type(request).__name__, error, exc_info=error)

    def _after(
        self,
        turn: Turn,
        items: list[Item],
        capacity: Capacity | None,
        sweep: bool,
        marks: bool,
    ) -> None:
        self.counters.add(len(items), time.monotonic() - items[0][2] if items else 0.0, len(turn.claims))
        self._offset = turn.now - time.time_ns() // 1000
        if turn.again:
            again = set(map(id, turn.again))
            back = [item for item in items if id(item[0]) in again]
            items = [item for item in items if id(item[0]) not in again]
            self._queue.extendleft(reversed(back))
        inboxes, kept, now = turn.inboxes, turn.kept, turn.now
        for commit in turn.ran_on:
            claim = commit.claim
            claim.go_on(commit.decision, now, inboxes.get(claim.id), *kept.get(claim.id, ()))
        fenced = False
        if self.worker is not None:
            commits = [item[0] for item in items if type(item[0]) is Commit]
            fenced = any(commit.fenced for commit in commits)
            if commits or turn.claims:
                self.worker.take(commits, turn.claims)
            if turn.cancelled:
                self.worker.lost(turn.cancelled)
            if turn.disturbed:
                self.worker.mail(turn.disturbed)
        # What this turn left to be done. Known before anybody is answered: a drain asks for it then.
        # A cancel frees seats that its own turn could not fill, and so does an outcome that was refused.
        freed = fenced or bool(turn.cancelled)
        self._hungry = turn.more or turn.unclaimed or freed or (self._hungry and capacity is None)
        self._crowded = turn.crowded or (self._crowded and capacity is None)
        self._marks = turn.marks or (self._marks and not marks)
        answer_all([(reply, request.answer) for request, reply, _ in items if reply is not None])
        if sweep:
            self._due = turn.now if turn.more else None
            self._keep(self._look_ahead())
        if turn.earliest is not None and (self._due is None or turn.earliest < self._due):
            self._due = turn.earliest
        self.completions.tell(turn.finished)
        if self.conditions.waiting and not are_plain([item[0] for item in items]):
            self.conditions.check_soon(self.store)
        left = any(handback.retire is not None for handback in turn.handbacks)  # others wake what it would have
        told = turn.disturbed and (self.worker is None or not turn.disturbed <= self.worker.running().keys())
        if turn.finished or turn.cancelled or turn.unclaimed or turn.elsewhere or turn.marks or left or told:
            self._keep(self.store.announce())

    # -- beside the turns -------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Look around, or once more when the look that is under way has settled: one for any number of hints."""
        if self._looking:
            self._look_again = True
            return
        self._looking = True
        self._look_again = False
        self._keep(self._look_around())

    async def _look_around(self) -> None:
        """What others did that no claim shows: marks they left, what they made due, steps of ours they ended."""
        try:
            if await self.store.read(sql.any_marks):  # never set to False here: a turn may run meanwhile
                self._marks = True
                self._ring()
            if self.worker is not None:
                await self._look_ahead()
                await self._find_lost()
                await self._find_mail()
        except StoreFault as error:
            _log.warning("The database does not answer: %s. The next poll looks again.", error)
        except Exception:
            _log.exception("A look around failed in a way nobody expected; going on.")
        finally:
            asyncio.get_running_loop().call_later(_CALM, self._looked)

    def _looked(self) -> None:
        self._looking = False
        if self._look_again and self._loop is not None:
            self._look_soon()

    async def _look_ahead(self) -> None:
        """When is the next thing due, whoever armed it?"""
        try:
            [[due]] = await self.store.read(sql.next_due)
        except StoreFault:
            return
        if due is not None and (self._due is None or due < self._due):
            self._due = due
            self._ring()

    async def _watch(self) -> None:
        """The floor under every hint: look now and then for what others did, and for who died."""
        housekeeping = time.monotonic() + _HOUSEKEEPING
        patrol = 0.0
        while True:
            try:
                if await self.store.changed():
                    self.hint()
                if self.worker is not None and time.monotonic() > patrol:
                    patrol = time.monotonic() + max(0.05, min(self._lease / 3, 5.0))
                    await self._patrol()
                if self.worker is not None and time.monotonic() > housekeeping:
                    housekeeping = time.monotonic() + _HOUSEKEEPING
                    self._keep(self._retain())
            except StoreFault as error:
                _log.warning("The database does not answer: %s. Trying again.", error)
                await asyncio.sleep(0.2)
            except Exception:
                _log.exception("A look around failed in a way nobody expected; going on.")
                await asyncio.sleep(1)
            await asyncio.sleep(self.store.poll)

    async def _retain(self) -> None:
        """Batch after batch, a turn each, until nothing old is left; the others have their turns in between."""
        before = self.now() - int(self._retention * 1_000_000)
        with contextlib.suppress(HarkError, StoreFault):  # the next housekeeping tries again
            async for ids in views.expirable(self.store, before):
                if ids:
                    await self._forget(Retain(before=before, ids=ids))
            while await self._forget(Retain(before=before)):
                pass

    async def _forget(self, request: Retain) -> bool:
        done: Reply[Any] = Reply()
        self.submit(request, done)
        await done
        return request.more

    async def _patrol(self) -> None:
        """Look for workers whose lease is over."""
        dead = await self.find_dead()
        if dead:
            self.submit(Reclaim(owners=dead))

    async def find_dead(self) -> list[str]:
        """Owners whose lease is over, or that have none."""
        if not self.store.durable:
            return []
        now = await self.store.time()
        self._offset = now - time.time_ns() // 1000  # our clock may have been set while all seats were taken
        if now < self.store.no_reclaim_before() or (self.worker is not None and not self.worker.steady()):
            return []
        me = self.worker.owner if self.worker is not None else ""
        dead = {row[0] for row in await self.store.read(sql.dead_workers, now=now, me=me)}
        dead |= {row[0] for row in await self.store.read(sql.unknown_owners)} - {me}
        return sorted(dead)

    async def _find_lost(self) -> None:
        """Steps of ours that were cancelled or taken over elsewhere hear of it here at the latest."""
        seat = self.worker
        mine = seat.running() if seat is not None else {}
        if not mine:
            return
        epochs = {row[0]: row[1] for row in await self.store.read(sql.epochs, ids=sorted(mine))}
        current = seat.running() if seat is not None else {}
        for id in self._underway:  # committed perhaps, and we have not been told: the store is one epoch ahead of us
            current.pop(id, None)
        lost = {id for id, epoch in mine.items() if current.get(id) == epoch and epochs.get(id, -1) != epoch}
        if lost and seat is not None:
            seat.lost(lost)
            self.hint()  # their seats came free beside the turns: the next one looks who may have them

    async def _find_mail(self) -> None:
        """Who is at work and waits for mail as well hears here of what others sent."""
        listening = self.worker.listening() if self.worker is not None else []
        if not listening:
            return
        mail: dict[str, set[int]] = {}
        for seq, id, *_ in await self.store.read(sql.inbox_heads, ids=listening):
            mail.setdefault(id, set()).add(seq)
        if mail and self.worker is not None:
            self.worker.tell(mail)


def _make_work(requests: Sequence[Request]) -> bool:
    return any(not isinstance(request, Commit) or request.decision.makes_work() for request in requests)


def not_open() -> NotOpen:
    return NotOpen("This app is not open. Use `async with app:` (or `with app:`) around the call.")


def _unavailable(fault: StoreFault) -> StoreUnavailable:
    if isinstance(fault, Unknown):
        return StoreUnavailable(f"The database went in the middle of it: {fault}. Look whether it was stored.")
    return StoreUnavailable(f"The database cannot do this now: {fault}. Nothing was stored; try again when it is back.")
