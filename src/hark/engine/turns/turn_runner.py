"""TurnRunner: runs one turn in its transaction, and again when it fails.

    Conflicted          rolled back by the database: the turn runs again whole
    Lost in COMMIT      the database is asked what became of the transaction
    Lost, Full          nothing can be written: callers get an error after a while, outcomes are kept and tried again
    any other error     the turn is halved, in order, until the request that causes it fails alone; signals from NATS
                        all fail, because their reader tries them again in their order

What a turn does is in kernel/turn.py; how it is executed is chosen in kernel/execution.py; what becomes of its result
is in clerk.py.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple, assert_never

from hark.engine.turns import caller_errors
from hark.engine.turns.call_attempts import CallAttempts
from hark.engine.turns.clerk_state import ClerkState
from hark.engine.turns.reply import Reply, answer_all
from hark.engine.turns.request_queue import Queued
from hark.kernel.definitions import Catalog
from hark.kernel.execution import AdvanceTurn, CallTurn, FullTurn, choose_execution
from hark.kernel.fast.advance_turn import run_advance_turn
from hark.kernel.requests import Capacity, CheckWritable, Commit, CommitNote, Deliver, Request
from hark.kernel.result import TurnResult
from hark.kernel.rules import Rules
from hark.kernel.turn import run_turn
from hark.model.log import fields_of, get_logger
from hark.model.reasons import reason
from hark.store import statements as sql
from hark.store.protocol import Conflicted, Full, Lost, StoreFault, Tx, Unknown

_log = get_logger()
_MAKE_NO_WORK = frozenset({CommitNote, CheckWritable})
_TICK = 0.5  # seconds between two looks at the callers that wait behind a turn in trouble


class FinishedTurn(NamedTuple):
    result: TurnResult
    items: list[Queued]
    """The requests of the turn."""
    claimed: bool
    """The turn has claimed what the worker had room for."""


class TurnRunner:
    def __init__(self, state: ClerkState, rules: Rules, catalog: Catalog, call_attempts: CallAttempts) -> None:
        self._state = state
        self._rules = rules
        self._catalog = catalog
        self._call_attempts = call_attempts
        self.committing: set[str] = set()
        """The instances whose outcomes the present turn commits: the store may be one epoch ahead of the worker."""
        self._trouble: tuple[StoreFault, float] | None = None  # why the present turn is tried again, and since when

    async def run(
        self, items: list[Queued], *, claim: bool = True, sweep: bool = False, pending_deliveries: bool = False
    ) -> AsyncIterator[FinishedTurn]:
        """Run these requests as one turn; see the module for what can fail.

        Yields:
            The turn, once it has committed; the parts of a turn that was halved, each before the next one runs; nothing
            if all callers have been answered with an error.
        """
        requests = [item.request for item in items]
        commits = [request for request in requests if type(request) is Commit]
        wait, since = 0.01, time.monotonic()
        allowed: float | None = None  # seconds for the next attempt
        while True:
            worker = self._state.worker if claim and not self._state.loop.closing else None
            capacity = worker.capacity(commits) if worker is not None and self._may_claim(requests) else None
            if capacity is not None:
                capacity.backlog = self._state.work_left.claimable or self._state.work_left.backlog_waits
                capacity.try_held = self._state.work_left.held
            self.committing = {commit.claim.id for commit in commits}
            self._catalog.lanes_here = worker.fingerprints().keys() if worker is not None else ()
            try:
                run_ahead = worker is not None and worker.open
                async with asyncio.timeout(allowed) as limit:
                    how = {"sweep": sweep, "pending_deliveries": pending_deliveries, "run_ahead": run_ahead}
                    result = await self._attempt(items, requests, capacity, limit, **how)
                break
            except (Conflicted, Lost, Full, TimeoutError) as error:
                fault = error if isinstance(error, StoreFault) else Lost("no answer in time")
                items = self._answer_late(items, fault, since)
                requests = [item.request for item in items]
                commits = [request for request in requests if isinstance(request, Commit)]
                conflict = isinstance(fault, Conflicted)
                self._answer_others_in_time(fault, since)
                await asyncio.sleep(random.uniform(0, wait) if conflict else wait if items else 0.2)
                if not items:
                    self._trouble = None
                    return
                # The first attempt takes what it takes: a large turn is not an outage.
                allowed = since + caller_errors.PATIENCE - time.monotonic()
                allowed = max(0.0, allowed) if any(item.reply is not None for item in items) else None
                wait = min(0.2 if conflict else 1.0, wait * 2)
            except Exception as error:
                self._trouble = None
                async for turn in self._halve(items, error):
                    yield turn
                return
        self._trouble = None
        yield FinishedTurn(result, items, claimed=capacity is not None)
        self.committing = set()

    def _may_claim(self, requests: Sequence[Request]) -> bool:
        return self._state.work_left.claimable or self._state.work_left.backlog_waits or _make_work(requests)

    async def _attempt(
        self,
        items: list[Queued],
        requests: Sequence[Request],
        capacity: Capacity | None,
        limit: asyncio.Timeout,
        **how: bool,
    ) -> TurnResult:
        tx, result = await self._execute(requests, capacity, **how)
        limit.reschedule(None)  # what becomes of a COMMIT has to be known
        try:
            await tx.commit()
        except Lost:
            if not await self._was_committed(result, items):
                raise Conflicted("the commit did not happen") from None
        except BaseException:  # also of a write that goes with the COMMIT: nothing may stay open for the next turn
            await tx.rollback()
            raise
        return result

    async def _execute(
        self, requests: Sequence[Request], capacity: Capacity | None, **how: bool
    ) -> tuple[Tx, TurnResult]:
        store = self._state.store
        execution = choose_execution(requests, capacity, **how, calls=self._call_attempts.possible(store))
        if isinstance(execution, CallTurn):
            if done := await self._call_attempts.run(store, requests, capacity, execution):
                return done
            execution = FullTurn()
        tx = await store.begin()
        try:
            match execution:
                case AdvanceTurn():
                    return tx, await run_advance_turn(tx, execution.commits)
                case FullTurn():
                    return tx, await run_turn(tx, self._rules, self._catalog, requests, capacity, **how)
                case _ as never:
                    assert_never(never)
        except BaseException:
            await tx.rollback()
            raise

    async def _was_committed(self, result: TurnResult, items: list[Queued]) -> bool:
        """Find out whether a turn was committed whose connection was lost in COMMIT.

        A server that crashed gives the number of a forgotten transaction to the next one, so «committed» counts only
        if rows of this turn prove it.
        """
        xid, store = result.xid, self._state.store

        async def outcome() -> bool:
            committed = await store.committed(xid)
            if committed and result.provable:
                committed = bool(await store.read(sql.proof_of_commit, tx=xid, now=result.now))
            return committed

        return await self._find_out(outcome, items)

    async def _find_out(self, outcome: Callable[[], Awaitable[bool]], items: list[Queued]) -> bool:
        """Ask for the outcome of a transaction until the database answers; never guess. Callers do not wait for longer
        than in any other outage: their error says that the outcome is unknown."""
        since = time.monotonic()
        while True:
            left = since + caller_errors.PATIENCE - time.monotonic()
            try:
                # Once the callers have their answer there is time: a connection to a database far away takes a second.
                async with asyncio.timeout(left if left > 0 else caller_errors.PATIENCE):
                    return await outcome()
            except (StoreFault, TimeoutError) as error:
                fault = error if isinstance(error, StoreFault) else Lost("no answer in time")
                if self._state.loop.closing:
                    raise Unknown(reason(fault)) from fault
                if time.monotonic() >= since + caller_errors.PATIENCE:
                    unknown = caller_errors.unavailable(Unknown(reason(fault)))
                    answer_all([(item.reply, unknown) for item in items if item.reply is not None])
                    # Now, not at the next tick: a request that was queued after one of these must not succeed alone.
                    self._answer_late([], fault, since)
                self._answer_others_in_time(fault, since)
                await asyncio.sleep(0.2)

    def _answer_others_in_time(self, fault: StoreFault, since: float) -> None:
        """While a turn is in trouble: answer the callers in the queue when their time is over, whatever it does."""
        begun = self._trouble is not None
        self._trouble = (fault, since)
        if not begun:
            asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _tick(self) -> None:
        if self._trouble is not None:
            self._answer_late([], *self._trouble)
            asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _answer_late(self, items: list[Queued], fault: StoreFault, since: float) -> list[Queued]:
        """Answer the callers that have waited long enough with an error, those still in the queue too: else they would
        wait behind an outcome for as long as the database is gone. Returns the items that are left; outcomes always
        are, because their steps have run."""
        latest = time.monotonic() - (0 if isinstance(fault, Full) else caller_errors.PATIENCE)
        late = since <= latest
        closing = self._state.loop.closing and (late or not isinstance(fault, Conflicted))
        answers: list[tuple[Reply[Any], Any]] = []

        def keep(item: Queued) -> bool:
            if item.reply is not None and item.reply.done():
                return False  # was told that the outcome is unknown: it must not run again
            if item.reply is not None and (closing or max(item.at, since) <= latest):
                answers.append((item.reply, caller_errors.unavailable(fault)))
                return False
            return item.reply is not None or (isinstance(item.request, Commit) and not closing)

        kept = [item for item in items if keep(item)]
        if late or closing:
            self._state.queue.keep(keep)
        answer_all(answers)
        return kept

    async def _halve(self, items: list[Queued], error: Exception) -> AsyncIterator[FinishedTurn]:
        """Halve the requests, in order, until the refused one is alone: it must not fail the others."""
        if not items:
            raise error
        items = self._answer_bucket(items, error)
        if not items:
            return
        if len(items) > 1:
            half = len(items) // 2
            for part in (items[:half], items[half:]):
                async for turn in self.run(part, claim=False):
                    yield turn
            return
        [item] = items
        request = item.request
        if isinstance(request, Commit):
            text, claim = "The outcome of %s cannot be stored: %s", request.claim
            _log.error(text, claim.id, reason(error), exc_info=error, extra=fields_of(claim))
            request.result = error
            if (worker := self._state.worker) is not None:
                worker.receive([request], [])
        elif item.reply is not None:
            answer_all([(item.reply, error)])
        else:
            _log.error("%s failed: %s", type(request).__name__, reason(error), exc_info=error)

    def _answer_bucket(self, items: list[Queued], error: Exception) -> list[Queued]:
        """Answer the signals from NATS with the error, those in the queue too: if the store took them again in the
        middle of the halving, the later ones would overtake the earlier ones (S10). Returns the other items."""
        answers: list[tuple[Reply[Any], Any]] = []

        def keep(item: Queued) -> bool:
            if item.reply is None or not isinstance(item.request, Deliver) or not item.request.is_in_bucket:
                return True
            answers.append((item.reply, error))
            return False

        kept = [item for item in items if keep(item)]
        if answers:
            self._state.queue.keep(keep)
            answer_all(answers)
        return kept


def _make_work(requests: Sequence[Request]) -> bool:
    """Return True if some of these requests may make an instance claimable.

    A note does so only by giving back a signal; what it wakes is claimed in the next turn.
    """
    for request in requests:
        if request.decision.makes_work() if isinstance(request, Commit) else type(request) not in _MAKE_NO_WORK:
            return True
    return False
