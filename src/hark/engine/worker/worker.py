"""The worker: runs what this process has code for.

It has three parts: slots.py counts what it holds, on the clerk's thread; activations.py runs the steps, on the worker's
loop; lease_renewal.py renews its lease, in a thread. This file starts and stops them; attached_worker.py is what the
clerk holds of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

from hark.engine.turns.caller_errors import not_open
from hark.engine.turns.clerk import Clerk
from hark.engine.turns.reply import Reply, answer_all, refuse_to_block_a_loop
from hark.engine.worker.activations import Activations
from hark.engine.worker.attached_worker import AttachedWorker
from hark.engine.worker.contained_tasks import contain_exits
from hark.engine.worker.lease_renewal import LeaseRenewal
from hark.engine.worker.registry import Registry
from hark.engine.worker.slots import Slots
from hark.engine.worker.worker_services import WorkerServices
from hark.kernel.requests import HandBack
from hark.model.errors import EXIT_ADVICE, HarkError, InvalidInput, NotOpen
from hark.model.log import get_logger
from hark.model.names import micros, new_id
from hark.programs.cancellation import cancel
from hark.views.worker_info import describe_worker

_log = get_logger()
_END_OF_TASKS = 0.5  # seconds for tasks that a stopped worker leaves on its loop
_AFTER_CANCEL = 3.0  # seconds: a command that ignores SIGTERM is killed within them (engine/commands/)


class Worker:
    """Runs the registered definitions in this process. `Hark.worker` makes one; an app has one at a time.

    In synchronous code it is `with app.worker():`, and the steps run on an event loop in a thread.

    Attributes:
        owner: The id of the worker, as leases and events name it.

    Example:
        async with app, app.worker({"default": 100}):
            ...
    """

    def __init__(
        self,
        clerk: Clerk,
        registry: Registry,
        services: WorkerServices,
        queues: dict[str, int] | None,
        *,
        lease: float,
        grace: float,
        residents: int,
    ) -> None:
        self.owner = new_id()
        self._clerk = clerk
        self._services = services
        self._grace = micros(grace, "grace", zero=True) / 1_000_000
        self._slots = Slots(self.owner, registry, queues)
        self._activations = Activations(clerk, registry, services, residents)
        self._lease = LeaseRenewal(
            self.owner,
            registry,
            lease,
            lambda: describe_worker(*self._slots.room(), lease, registry.own_codes()),
            services.lease_relay.renewed,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_ending = threading.Event()  # of that thread
        self._release_loop: Callable[[], None] = _nothing

    @property
    def open(self) -> bool:
        """Return True while the worker claims work: not when it stops or has stopped."""
        return self._activations.open

    @property
    def tally(self) -> dict[str, int]:
        """The number of steps it ran (`steps`), and of outcomes of each kind."""
        return self._activations.tally

    # -- starting and stopping, on the worker's loop -----------------------------------------------

    async def start(self) -> None:
        """Take a lease and start to claim. `async with` does this.

        Raises:
            NotOpen: The app is not open.
            InvalidInput: The app has a worker already, or this worker has stopped.
        """
        self._loop = asyncio.get_running_loop()
        if not self._clerk.is_open:
            raise not_open()
        if not self.open:
            raise InvalidInput("This worker has stopped. Make another one with app.worker(…).")
        if self._clerk.worker is not None:
            raise InvalidInput(
                "This app has a worker already; `app.serve()` runs one too, unless it gets worker=False. "
                "To run more at once, give that worker more slots: app.worker({queue: slots})."
            )
        self._services.attach(self._loop)
        self._services.is_full = self._slots.is_full
        self._release_loop = contain_exits(self._loop)
        try:
            if self._clerk.store.durable:
                await self._lease.start(self._clerk.store)  # for as long as the database accepts no lease
            attached: Reply[None] = Reply()
            self._clerk.spawn(self._attach, attached)
            await attached
        except BaseException:
            self._activations.open = False
            self._close()
            with contextlib.suppress(NotOpen):
                self._clerk.spawn(self._detach)
            raise

    async def _attach(self, attached: Reply[None]) -> None:
        assert self._loop is not None
        self._clerk.state.worker = AttachedWorker(
            self.owner, self._slots, self._activations, self._services, self._lease, self._loop
        )
        self._clerk.code_changed()
        with contextlib.suppress(NotOpen):  # the app is closing
            self._clerk.spawn(self._clerk.peers.reclaim_gone)
        answer_all([(attached, None)])

    async def _detach(self) -> None:
        worker = self._clerk.state.worker
        if worker is not None and worker.owner == self.owner:
            self._clerk.state.worker = None

    async def settle(self) -> None:
        """Wait until nothing can run: nothing executes, and a turn has claimed nothing. For tests: see `Harness`."""
        while True:
            await self._activations.until_idle()
            turn: Reply[None] = Reply()
            self._clerk.hint()
            self._clerk.submit(HandBack(), turn)
            await turn
            if not self._slots.claims() and not self._clerk.work_left:
                return
            await asyncio.sleep(0)

    async def stop(self) -> None:
        """Claim nothing more, let steps finish within the grace period, hand back the rest. `async with` does this."""
        activations = self._activations
        activations.open = False
        await asyncio.sleep(0)  # a round that was to begin has begun: every step left waits in a task of its own
        self._services.park_waiting()
        if tasks := activations.waiting():
            await asyncio.wait(tasks, timeout=self._grace)
        left = activations.waiting()
        for task in left:
            cancel(task)
        if left:
            await asyncio.wait(left, timeout=_AFTER_CANCEL)
        activations.flush()
        done: Reply[None] = Reply()
        # Behind the commits just queued, on the thread that counts the claims.
        self._clerk.spawn(self._hand_back, done)
        await done
        self._close()

    def _close(self) -> None:
        self._activations.close()
        self._release_loop()
        self._lease.stop()
        self._services.close()

    async def _hand_back(self, done: Reply[None]) -> None:
        try:
            committed: Reply[None] = Reply()
            self._clerk.submit(HandBack(), committed)
            await committed  # outcomes queued before this are in the store now
            handed_back: Reply[None] = Reply()
            self._clerk.submit(HandBack(claims=self._slots.claims(), retire=self.owner), handed_back)
            await handed_back
        except HarkError as error:
            _log.warning("Steps could not be handed back: %s They run again when the lease is over.", error)
        finally:
            self._clerk.state.worker = None
            answer_all([(done, None)])

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # -- in sync code the steps run on a loop in a thread of their own -----------------------------

    def __enter__(self) -> Worker:
        refuse_to_block_a_loop("`with app.worker():`", "async with")
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run_loop, args=(loop, self._is_ending), name="hark-worker", daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(self.start(), loop)
        try:
            starting.result()
        except BaseException:
            starting.cancel()  # a Ctrl-C while it waits for the database
            self._end_thread(loop)
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result()
        self._end_thread(self._loop)

    def _end_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        assert self._thread is not None
        self._is_ending.set()
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()


def _run_loop(loop: asyncio.AbstractEventLoop, is_ending: threading.Event) -> None:
    """Run the loop of a thread until the worker stops, also if a callback of a step's code calls `sys.exit`, or a step
    stops the loop (M5)."""
    while not is_ending.is_set():
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            _log.exception("A callback on the loop of the worker has exited; the worker goes on. %s", EXIT_ADVICE)
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:  # Python would report each task that a closed loop leaves behind
        loop.run_until_complete(asyncio.wait(left, timeout=_END_OF_TASKS))


def _nothing() -> None:
    """Take no task factory away: the worker has not started."""
