"""The clerk: one thread that owns the write connection and works in turns.

A turn takes everything that was queued since the last one, handles it in one transaction and then answers the callers.
While it waits for the disk the next turn fills: no timer, no batch size. An idle process has the latency of one turn,
a busy one has large batches.

This file has the thread and its loop. How a turn runs, and what happens when it fails, is in turn_runner.py; which
requests share a turn in request_queue.py; what other processes did is found in peers.py.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, cast

from hark.engine.callers.task_arrivals import TaskArrivals
from hark.engine.callers.waiting import Condition, WaitingCallers
from hark.engine.observe import failure_log
from hark.engine.observe.metrics import ProcessCounters
from hark.engine.peers.peers import Peers
from hark.engine.peers.retention import Retention
from hark.engine.turns import caller_errors
from hark.engine.turns.answer_validation import AnswerValidation
from hark.engine.turns.call_attempts import CallAttempts
from hark.engine.turns.clerk_state import ClerkState
from hark.engine.turns.database_clock import DatabaseClock
from hark.engine.turns.local_worker import LocalWorker
from hark.engine.turns.reply import Reply, answer_all
from hark.engine.turns.request_queue import Queued
from hark.engine.turns.retrying_reads import ReadTimer, RetryingReads
from hark.engine.turns.slot_demand import SlotDemand
from hark.engine.turns.thread_loop import is_end_of_program
from hark.engine.turns.turn_runner import FinishedTurn, TurnRunner
from hark.engine.worker.missing_code import MissingCode
from hark.kernel.definitions import Catalog
from hark.kernel.requests import Commit, Request
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.model.errors import InvalidInput
from hark.model.log import get_logger
from hark.store.protocol import Access, Conflicted, Lost, Store, StoreFault

_log = get_logger()
_MAX_REQUESTS = 5000  # requests in a turn: far above what a turn collects, so that none grows without end
_MAX_REQUESTS_CROWDED = 100  # requests in a turn while another process waits for the file
_GAP = 0.001  # seconds between two turns while another process waits for the file


class Published(Protocol):
    """Receives what is to be sent to NATS after a commit. Called on the clerk's thread."""

    def add_turn(self, result: TurnResult, items: Sequence[Queued]) -> None:
        """Take the requests of a turn that has committed."""

    def add_wake_up(self) -> None:
        """Wake other processes, which may wait for something that a turn did."""


class Clerk:
    """The write connection of a process, and all that waits for it. Groups its state by what it is for."""

    def __init__(
        self,
        store: Callable[[], Store],
        rules: Rules,
        *,
        lease: float,
        retention: Retention,
        clock: Callable[[], int] | None,
        one_call_turns: bool,
    ) -> None:
        self.make_store = store
        self.access: Access = "migrate"
        self.catalog = Catalog()
        self.state = state = ClerkState(DatabaseClock(clock))
        self.clock, self.loop, self.queue, self.work_left = state.clock, state.loop, state.queue, state.work_left
        self.counters = ProcessCounters()
        self.answers = AnswerValidation(self.loop, self.queue)
        self.turns = TurnRunner(state, rules, self.catalog, CallAttempts(one_call_turns))
        self.peers = Peers(state, self.turns, lease=lease, retention=retention, hint=self.hint, submit=self.submit)
        self.waiting = WaitingCallers(self._read, self.loop, self.hint)
        self.missing_code = MissingCode()
        self.slot_demand = SlotDemand(state)
        self.arrivals = TaskArrivals()
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = [self.peers.poll]  # run while the app is open
        self.published: Published | None = None  # if the app uses NATS
        self._read_timer = ReadTimer()
        self._thread: threading.Thread | None = None
        self._closed: Reply[None] | None = None

    # -- opening and closing ----------------------------------------------------------------------

    def open(self) -> Reply[None]:
        if self.is_open:
            raise InvalidInput("This app is open already. Use the one that is open, or make another Hark(…).")
        reply: Reply[None] = Reply()
        self.loop.closing = False
        self._closed = None
        self._thread = threading.Thread(target=self._main, args=(reply,), name="hark-clerk", daemon=True)
        self._thread.start()
        return reply

    def close(self) -> Reply[None]:
        """Finish what is queued, then end the thread."""
        reply: Reply[None] = Reply()
        if self.loop.running is None or self._thread is None:
            answer_all([(reply, None)])
            return reply
        self._closed = reply
        self.loop.closing = True
        self.loop.wake()
        return reply

    def _main(self, opened: Reply[None]) -> None:
        try:
            self.state.store = self.make_store()
        except BaseException as error:
            answer_all([(opened, error)])
            return
        with asyncio.Runner(loop_factory=self.store.new_loop) as runner:
            runner.run(self._live(opened))

    async def _live(self, opened: Reply[None]) -> None:
        try:
            await self.store.open(self.access)
            self.clock.adjust(await self.store.time())
        except BaseException as error:
            answer_all([(opened, caller_errors.unavailable(error) if isinstance(error, StoreFault) else error)])
            return
        self._read_timer = ReadTimer()
        self.peers.checking = False  # the last loop may have ended in the middle of a check
        self.loop.enter()
        self.store.listen(self.hint)
        answer_all([(opened, None)])
        # A process that only looks has no use for hints, and may not even be allowed to listen.
        polls = [] if self.access == "read" else [asyncio.create_task(poll()) for poll in self.background]
        try:
            await self._work()
        finally:
            for poll in polls:
                poll.cancel()
            await self.loop.leave()
            await asyncio.gather(*polls, return_exceptions=True)
            self.answers.close()
            closed = caller_errors.closed_early()
            answer_all([(reply, closed) for reply in self.queue.clear()])
            self.waiting.close(closed)
            await self.store.close()
            if self._closed is not None:
                answer_all([(self._closed, None)])

    @property
    def store(self) -> Store:
        """The store of an open app."""
        return self.state.store

    @property
    def worker(self) -> LocalWorker | None:
        """The worker of this process, if one is running. Changed on the clerk's loop only."""
        return self.state.worker

    # -- from any thread --------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.loop.is_open

    def now(self) -> int:
        """The time of the database's clock as far as this process knows it, µs."""
        return self.clock.now()

    def submit(self, request: Request, reply: Reply[Any] | None = None) -> None:
        """Queue a request. Its reply is answered after the COMMIT."""
        self.loop.check_open()
        self.queue.add(request, reply)
        self.loop.wake()

    def submit_together(self, requests: Sequence[Request], replies: Sequence[Reply[Any]]) -> None:
        """Queue requests so that one that fails because of the database is not overtaken by one behind it."""
        self.loop.check_open()
        self.queue.add_together(requests, replies)
        self.loop.wake()

    def submit_outcomes(self, outcomes: Sequence[Commit]) -> None:
        """Queue outcomes of the worker: many at a time; its `receive` takes the place of a reply."""
        self.loop.check_open()
        self.queue.add_outcomes(outcomes)
        self.loop.wake()

    def read(self, question: Callable[[Store], Awaitable[Any]], reply: Reply[Any]) -> None:
        """Answer with the result of a question, read beside the turns on the store's read connections."""
        self.spawn(self._read, question, reply)

    async def _read(self, question: Callable[[Store], Awaitable[Any]], reply: Reply[Any]) -> None:
        store = RetryingReads(self.store, self._read_timer)
        while True:
            try:
                answer = await question(cast("Store", store))
            except (Conflicted, Lost) as error:
                if store.may_ask_again() and not self.loop.closing:
                    await asyncio.sleep(0.1)
                    continue
                answer = caller_errors.unavailable(error)
            except StoreFault as error:
                answer = caller_errors.unavailable(error)
            except Exception as error:
                answer = error
                if is_end_of_program(error):
                    reply.expect_nothing()
            answer_all([(reply, answer)])
            return

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Run a coroutine function on the clerk's loop."""
        self.loop.spawn(function, *args)

    def hint(self) -> None:
        """Note that another process may have made work, or ended an instance that a caller waits for."""
        self.work_left.hinted = True
        self.waiting.hint()
        self.loop.wake()

    def code_changed(self) -> None:
        """Note that code was registered here, which held instances may fit."""
        self.work_left.code_changed = True
        self.hint()

    async def find_dead(self) -> dict[str, int | None]:
        """Find the workers whose lease is over by the database's clock, with that lease. On the clerk's loop."""
        return await self.peers.find_dead(trust_clock=True)

    def wait_until(self, target: str, condition: Condition, seconds: float | None, reply: Reply[Any]) -> None:
        """Answer when this instance meets the condition, see waiting.py."""
        self.loop.check_open()
        self.waiting.ask(target, condition, seconds, reply)

    # -- the loop ---------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            if not self._has_work() and not self.slot_demand:
                self.loop.expect_wake()
                if not self._has_work() and not self.work_left.hinted and not self.slot_demand:
                    if self.loop.closing:
                        return
                    await self.loop.sleep(self._until_due())
            hinted = self.work_left.take_hint()
            # SQLite never waits within a turn: without this nothing else would get this loop, or the file.
            await asyncio.sleep(_GAP if self.store.has_other_writers() else 0)
            # Mostly a hint is about an instance to claim, which the reads of the check would delay.
            check_later = hinted and not self.queue and self._can_claim()
            if hinted and not check_later:
                self.check_for_others()
            if self.slot_demand:
                await self.slot_demand.look()
            if not self._has_work():
                continue
            try:
                await self._run_next_turn()
            except Exception:
                _log.exception("A turn failed with an unexpected error; the clerk continues.")
                await asyncio.sleep(1)
            if check_later:
                self.check_for_others()

    async def _run_next_turn(self) -> None:
        # The items are released when this returns: a reply that was dropped unread logs its error when it is freed.
        items = self._next_turn()
        sweep, pending_deliveries = self._is_due(), self.work_left.pending_deliveries
        async for turn in self.turns.run(items, sweep=sweep, pending_deliveries=pending_deliveries):
            self._finish(turn, swept=sweep, pending_deliveries=pending_deliveries)

    def _next_turn(self) -> list[Queued]:
        return self.queue.take(_MAX_REQUESTS_CROWDED if self.store.has_other_writers() else _MAX_REQUESTS)

    def check_for_others(self) -> None:
        """Look for answers of other processes, after a hint."""
        self.waiting.check_for_others(self.store)
        self.arrivals.notify()
        self.peers.check_soon()
        self.slot_demand.ask_after_hint()

    def _has_work(self) -> bool:
        if self.queue or self.loop.closing:
            return bool(self.queue)
        return self.worker is not None and (self._is_due() or self.work_left.pending_deliveries or self._can_claim())

    def _is_due(self) -> bool:
        due = self.work_left.due
        return due is not None and self.worker is not None and due <= self.now()

    def _can_claim(self) -> bool:
        if not self.work_left.claimable or self.worker is None:
            return False
        capacity = self.worker.capacity(())
        return capacity is not None and any(capacity.free.values())

    def _until_due(self) -> float | None:
        """Return the seconds until something is due; None if nothing is, or no worker would fire it."""
        if self.work_left.due is None or self.worker is None:
            return None
        return max(0.0, (self.work_left.due - self.now()) / 1_000_000)

    # -- after a turn -----------------------------------------------------------------------------

    def _finish(self, turn: FinishedTurn, *, swept: bool, pending_deliveries: bool) -> None:
        """Pass on the result of a turn that has committed: to the worker, the callers and the other processes."""
        result, items, claimed = turn
        waited = time.monotonic() - items[0].at if items else 0.0
        self.counters.add(len(items), waited, len(result.claims), result.counts)
        self.clock.adjust(result.now)
        if result.failures:
            failure_log.report(result.failures, result.now)
        if result.again:
            again = set(map(id, result.again))
            self.queue.put_back([item for item in items if id(item.request) in again])
            items = [item for item in items if id(item.request) not in again]
        if result.to_validate:
            aside = set(map(id, result.to_validate))
            self.answers.start([item for item in items if id(item.request) in aside])
            items = [item for item in items if id(item.request) not in aside]
        fenced = self._pass_to_worker(result, items)
        # Known before the callers are answered: a drain asks for it then. A cancel frees slots that its own turn could
        # not fill, and so does an outcome that was fenced.
        freed = fenced or bool(result.cancelled)
        self.work_left.update(result, freed=freed, claimed=claimed, swept=swept, pending_deliveries=pending_deliveries)
        self.slot_demand.ask_after(result)
        if result.pending.for_other_workers:
            self._warn_of_missing_code(result)  # before a caller, once it is answered, stops the worker
        answer_all([(item.reply, item.request.result) for item in items if item.reply is not None])
        if swept:
            self.loop.start(self.peers.read_next_due())
        self.waiting.after_turn(self.store, result.finished, keeps_statuses=result.keeps_statuses)
        if result.pending.made_claimable:
            self.arrivals.notify()
        if self.published is not None:
            self.published.add_turn(result, items)
        if self._concerns_others(result):
            self.loop.start(self.store.announce())
            if self.published is not None:
                self.published.add_wake_up()

    def _warn_of_missing_code(self, result: TurnResult) -> None:
        """Warn if no worker has the code for rows that became claimable. Called when this worker cannot run them, and
        no worker outside waits here for them."""
        capacity = None if self.worker is None else self.worker.capacity(())
        if capacity is None or not (unknown := self.missing_code.unknown(result.pending.lanes, capacity.lanes)):
            return
        if lanes := [lane for lane in unknown if not self.arrivals.awaits(lane)]:
            warned: Reply[None] = Reply()
            warned.expect_nothing()
            self.read(lambda store: self.missing_code.warn(store, lanes), warned)

    def _pass_to_worker(self, result: TurnResult, items: list[Queued]) -> bool:
        """Pass outcomes and new claims to the worker. Return True if an outcome was fenced."""
        inboxes, kept, now = result.inboxes, result.kept, result.now
        for commit in result.ran_ahead:
            claim = commit.claim
            claim.run_ahead(commit.decision, now, inboxes.get(claim.id), *kept.get(claim.id, ()))
        if self.worker is None:
            return False
        commits = [item.request for item in items if type(item.request) is Commit]
        fenced = any(commit.fenced for commit in commits)
        if result.cancelled:  # before the new claims: an undo may be claimed in the turn that cancels
            self.worker.abandon(result.cancelled)
        if commits or result.claims:
            self.worker.receive(commits, result.claims)
            time.sleep(0)  # lets the worker's thread have the interpreter lock now, not when this turn is finished
        if result.signalled:
            self.worker.notify(result.signalled, result.arrived)
        return fenced

    def _concerns_others(self, result: TurnResult) -> bool:
        """Return True if another process may wait for something this turn did."""
        pending = result.pending
        if (
            result.finished
            or result.cancelled
            or pending.left_claimable
            or pending.for_other_workers
            or pending.refused_keys
            or pending.pending_deliveries
        ):
            return True
        if result.retired or pending.scheduled or pending.has_origin:  # others do now what that worker did
            return True
        return bool(result.signalled) and (
            self.worker is None or not result.signalled <= self.worker.executing().keys()
        )
