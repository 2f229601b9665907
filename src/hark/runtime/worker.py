"""The worker: runs steps on its event loop and in threads, and hands outcomes to the clerk.

What it counts (who runs, how many seats are free) is counted on the clerk's thread, in the turn that
changes it, so a claim is never made for a seat that is taken. The lease is renewed by a thread with a
connection of its own: a step that blocks the loop does not lose it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from hark.kernel.limits import Limits
from hark.kernel.requests import Capacity, Commit, HandBack
from hark.model.activation import Claim
from hark.model.decisions import Decision, Finish, NewInstance, Proceed, runs_ahead
from hark.model.errors import HarkError, InvalidInput, NotOpen
from hark.model.names import check_name, from_micros, micros, new_id
from hark.programs.steps import error_text
from hark.runtime import shared_task
from hark.runtime.clerk import Clerk, not_open
from hark.runtime.listeners import Listeners
from hark.runtime.registry import Registry
from hark.runtime.reply import Reply, answer_all, refuse_to_block_a_loop
from hark.runtime.watchdog import LoopWatchdog
from hark.store.protocol import Lease, StoreFault

_log = logging.getLogger("hark")
_THREADS = 64
_SEATS = 100  # per queue, when nobody says otherwise


class WorkerServices:
    """What steps may ask of the process they run in."""

    def __init__(
        self,
        clerk: Clerk,
        limits: Limits,
        max_payload: int,
        new: Callable[[Any, Any, dict[str, Any]], NewInstance],
        link: Callable[[str, str, int | None], str],
    ) -> None:
        self.max_payload = max_payload
        self.new = new
        self.rate_limit = limits.check
        self.micros = clerk.now
        self.listeners = Listeners()
        self.listen = self.listeners.listen
        self.driving: Any = None
        self.link = link
        self._clerk = clerk
        self._threads: ThreadPoolExecutor | None = None
        self._watchdog: LoopWatchdog | None = None

    def now(self) -> datetime:
        return from_micros(self.micros())

    def watch(self) -> None:
        """A function is at work on this thread."""
        if self._watchdog is None:
            self._watchdog = LoopWatchdog(self, threading.get_ident())

    def concurrency_key(self, key: str | None) -> str | None:
        return None if key is None else check_name(key, "concurrency key")

    def call(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hark-step")
        work = functools.partial(contextvars.copy_context().run, _plainly, function, *args)
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None


class Worker:
    """Runs what this process has code for. Use it as `async with app.worker(): …`, or `with` in plain code."""

    def __init__(
        self,
        clerk: Clerk,
        registry: Registry,
        services: WorkerServices,
        queues: dict[str, int] | None,
        *,
        lease: float,
        grace: float,
    ) -> None:
        if queues is not None and not isinstance(queues, dict):
            raise InvalidInput(f"queues={queues!r}: give a dict of queue names and how many of each run at once.")
        for queue, size in (queues or {}).items():
            check_name(queue, "queue name")
            if type(size) is not int or size < 1:
                raise InvalidInput(f"queues={{{queue!r}: {size!r}}}: give a whole number from 1.")
        self.owner = new_id()
        self.tally: dict[str, int] = {}
        self._clerk = clerk
        self._registry = registry
        self._services = services
        self._queues = queues
        self._lease = lease
        self._grace = micros(grace, "grace", zero=True) / 1_000_000
        self.open = True
        # On the clerk's thread:
        self._claims: dict[str, Claim] = {}
        self._busy: dict[str, int] = {}
        # On the worker's loop:
        self._tasks: dict[str, tuple[Claim, shared_task.Task | None]] = {}  # who is at work; its own task once it waits
        self._fatal: set[str] = set()
        self._outbox: list[Commit] = []
        self._idle = asyncio.Event()
        self._renewing: threading.Event | None = None
        self._renewed = -math.inf  # when it last was, unless the last try failed
        self._quiet = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    # -- on the clerk's thread --------------------------------------------------------------------

    def capacity(self, commits: Sequence[Commit]) -> Capacity | None:
        if not self.open:
            return None
        queues = self._queues or dict.fromkeys(self._registry.queues(), _SEATS)
        free = {queue: size - self._busy.get(queue, 0) for queue, size in queues.items()}
        for commit in commits:
            queue = commit.claim.queue
            if queue in free and commit.claim.id in self._claims and not runs_ahead(commit.decision.move):
                free[queue] += 1
        return Capacity(self.owner, {q: max(0, n) for q, n in free.items()}, self._registry.lanes())

    def take(self, commits: Sequence[Commit], claims: Sequence[Claim]) -> None:
        """Outcomes committed, fenced or refused, and new claims. Who runs on or was refused keeps its seat."""
        begin = list(claims)
        refused, left = [], []
        for commit in commits:
            if commit.answer is True:
                begin.append(commit.claim)
            elif commit.answer is None:
                self._drop(commit.claim)
                if commit.claim.session is not None:
                    left.append(commit.claim)
            else:
                refused.append(commit)
        # After the seats that came free: who parked and was woken in one turn is in both lists.
        for claim in claims:
            self._claims[claim.id] = claim
            self._busy[claim.queue] = self._busy.get(claim.queue, 0) + 1
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._begin, begin, refused, left)

    def _drop(self, claim: Claim) -> None:
        if self._claims.get(claim.id) is claim:
            del self._claims[claim.id]
            self._busy[claim.queue] -= 1

    def lost(self, ids: set[str]) -> None:
        """Cancelled, or taken over: the seat is free now, whatever the step still does."""
        mine = [self._claims[id] for id in ids if id in self._claims]
        for claim in mine:
            self._drop(claim)
        if mine and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._abandon, mine)

    def mail(self, ids: set[str]) -> None:
        """Something came for those who are at work: who waits for it while it runs hears of it."""
        if self._loop is not None and not self._loop.is_closed() and not ids.isdisjoint(self._services.listeners.ids()):
            self._loop.call_soon_threadsafe(self._services.listeners.ring, ids)

    def listening(self) -> list[str]:
        return self._services.listeners.ids()

    def tell(self, mail: dict[str, set[int]]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._services.listeners.tell, mail)

    def steady(self) -> bool:
        """Is our own lease sound? Who could not renew it was cut off, maybe together with those who look dead now:
        they get a whole lease to come back (M5)."""
        now = time.monotonic()
        return now >= self._quiet and now - self._renewed <= self._lease

    def running(self) -> dict[str, int]:
        return {claim.id: claim.epoch for claim in self._claims.values()}

    # -- on the worker's loop ---------------------------------------------------------------------

    def _begin(self, claims: list[Claim], refused: list[Commit], left: list[Claim]) -> None:
        for claim in left:
            claim.session.close()
        if not self.open:  # claimed while we stop: handed back, and not begun beside whoever gets it next
            for claim in (*claims, *(commit.claim for commit in refused)):
                if claim.session is not None:
                    claim.session.close()
            return
        items: deque[Claim | Commit] = deque(claims)
        items.extend(refused)
        for item in items:
            claim = item if isinstance(item, Claim) else item.claim
            self._tasks[claim.id] = (claim, None)
        if items:
            shared_task.run(self, items)

    def begin(self, item: Claim | Commit) -> Coroutine[Any, Any, None] | None:
        """Of a round: who was abandoned before it was its turn does not begin, nor does anybody when we stop."""
        if not self.open:
            return None
        if isinstance(item, Claim):
            return self._run(item) if self._runs(item) else None
        return self._refused(item) if self._runs(item.claim) else None

    def waits(self, item: Claim | Commit, task: shared_task.Task) -> None:
        claim = item if isinstance(item, Claim) else item.claim
        if self._runs(claim):
            self._tasks[claim.id] = (claim, task)

    async def _run(self, claim: Claim) -> None:
        program = self._registry.find(claim.definition, claim.version)
        assert program is not None
        try:
            try:
                decision = await program.run(claim, self._services)
            except BaseException as error:
                self._reraise_ours(claim, error)
                decision = await self._recover(claim, error)
        except asyncio.CancelledError:
            return  # cancelled, taken over or handed back: nobody waits for this outcome
        self._commit(claim, decision)

    def _reraise_ours(self, claim: Claim, error: BaseException) -> None:
        """A bare exit ends the worker, and who was abandoned is not missed; all else is the step's own error."""
        told = not self._runs(claim) or not self.open
        if isinstance(error, SystemExit):
            self._fatal.add(claim.id)
        if isinstance(error, KeyboardInterrupt | SystemExit) or (isinstance(error, asyncio.CancelledError) and told):
            raise error

    async def _refused(self, commit: Commit) -> None:
        """The store would not take the outcome: `handle` decides, and failing that the instance fails."""
        claim, error = commit.claim, commit.answer
        if commit.decision.label == "stop":
            self._commit(claim, _failed(claim, error))
        else:
            self._commit(claim, await self._recover(claim, error))

    async def _recover(self, claim: Claim, error: Any) -> Decision:
        """What becomes of an error. A cancel that is nobody's but its own ends it too: else nothing ever would."""
        program = self._registry.find(claim.definition, claim.version)
        assert program is not None
        try:
            return await program.recover(claim, self._services, error)
        except BaseException as second:
            self._reraise_ours(claim, second)
            return _failed(claim, second)

    def _runs(self, claim: Claim) -> bool:
        """Is this claim still ours to end, or was it abandoned, and perhaps taken up anew?"""
        held = self._tasks.get(claim.id)
        return held is not None and held[0] is claim

    def _commit(self, claim: Claim, decision: Decision) -> None:
        if self._runs(claim):
            del self._tasks[claim.id]
        if (
            not isinstance(decision.move, Proceed) or decision.move.continue_as_new
        ):  # a function on its way is still at it
            self.tally["steps"] = self.tally.get("steps", 0) + 1
            self.tally[decision.label] = self.tally.get(decision.label, 0) + 1
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(Commit(claim=claim, decision=decision))

    def _flush(self) -> None:
        """All that ended in this round of the loop goes to the clerk together."""
        outbox, self._outbox = self._outbox, []
        self._idle.set()
        with contextlib.suppress(NotOpen):  # the app is closing: the lease will run out, and the steps run again
            self._clerk.submit_outcomes(outbox)

    def _abandon(self, claims: list[Claim]) -> None:
        for claim in claims:
            _, task = self._tasks.pop(claim.id, (None, None))
            if task is not None:
                task.cancel()
            if claim.session is not None:
                claim.session.close()

    # -- starting and stopping --------------------------------------------------------------------

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._clerk.is_open:
            raise not_open()
        if self._clerk.worker is not None:
            raise InvalidInput("This app has a worker already. One is enough: give it more queues or more room.")
        if self._clerk.store.durable:
            self._renewing = threading.Event()
            ready: Reply[None] = Reply()
            threading.Thread(target=self._renew, args=(ready,), name="hark-lease", daemon=True).start()
            await ready
        seated: Reply[None] = Reply()
        self._clerk.spawn(self._sit(seated))
        await seated

    async def _sit(self, seated: Reply[None]) -> None:
        self._clerk.worker = self
        self._clerk.hint()
        answer_all([(seated, None)])

    async def settle(self) -> None:
        """Until nothing can run: a turn that claims nothing, with nothing under way."""
        while True:
            while self._tasks or self._outbox:
                self._idle.clear()
                await self._idle.wait()
            turn: Reply[None] = Reply()
            self._clerk.hint()
            self._clerk.submit(HandBack(), turn)
            await turn
            if not self._claims and not self._clerk.hungry:
                return
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Claim nothing more, let steps finish within the grace, hand back the rest."""
        self.open = False
        await asyncio.sleep(0)  # a round that was to begin has begun: who is still there waits in a task of its own
        if tasks := self._waiting():
            await asyncio.wait(tasks, timeout=self._grace)
        left = self._waiting()
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        self._flush()
        done: Reply[None] = Reply()
        # Behind the commits just queued, on the same thread that counts the claims.
        self._clerk.spawn(self._hand_back(done))
        await done
        if self._renewing is not None:
            self._renewing.set()
        self._services.close()

    def _waiting(self) -> list[shared_task.Task]:
        return [task for _, task in self._tasks.values() if task is not None]

    async def _hand_back(self, done: Reply[None]) -> None:
        try:
            settled: Reply[None] = Reply()
            self._clerk.submit(HandBack(), settled)
            await settled  # outcomes queued before this are in the store now
            left: Reply[None] = Reply()
            # Not the step that ended the worker: it is found without an owner, and that counts as a death (M5).
            claims = [claim for claim in self._claims.values() if claim.id not in self._fatal]
            self._clerk.submit(HandBack(claims=claims, retire=self.owner), left)
            await left
        except HarkError as error:
            _log.warning("Steps could not be handed back: %s They run again when the lease is over.", error)
        finally:
            self._clerk.worker = None
            answer_all([(done, None)])

    def _renew(self, ready: Reply[None]) -> None:
        assert self._renewing is not None
        lease: Lease | None = None
        length = int(self._lease * 1_000_000)
        answered = False
        while not self._renewing.is_set():
            wait = self._lease / 3
            try:
                lease = lease or self._clerk.store.lease()
                names = ",".join(f"{name}@{version}" for name, version in self._registry.lanes())  # some come later
                lease.renew(self.owner, length, names)
                now = time.monotonic()
                if answered and now - self._renewed > self._lease:
                    self._quiet = now + self._lease
                self._renewed = now
                if not answered:
                    answered = True
                    answer_all([(ready, None)])
            except Exception as error:
                if not answered and not isinstance(error, StoreFault):
                    answer_all([(ready, error)])
                    return
                _log.warning("The lease could not be renewed: %s. Trying again.", error)
                self._renewed = -math.inf
                wait = min(1.0, wait)
            self._renewing.wait(wait)
        if lease is not None:
            lease.close()

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    def __enter__(self) -> Worker:
        """In plain code the steps run on a loop in a thread of their own."""
        refuse_to_block_a_loop("`with app.worker():`", "async with")
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=loop.run_forever, name="hark-worker", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result()
        except BaseException:
            self._end_thread(loop)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result()
        self._end_thread(self._loop)

    def _end_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._thread is not None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


def _plainly(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except StopIteration as error:  # a future cannot carry it: the step would never end
        raise RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration") from error


def _failed(claim: Claim, error: object) -> Decision:
    return Decision("stop", claim.step, claim.state, Finish("failed", error=error_text(error)))
