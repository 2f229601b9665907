"""LeaseRenewal: renews the lease of a worker, in a thread with a connection of its own.

A step that blocks the event loop, or a long turn, does not lose the lease.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from hark.engine.turns.reply import Reply, answer_all
from hark.engine.worker.registry import Registry
from hark.model.log import RepeatedWarning, get_logger
from hark.model.reasons import reason
from hark.store.protocol import Lease, Store, StoreFault

_log = get_logger()
_LOG_AGAIN = 60.0  # seconds
_SAY_AGAIN = 10.0  # seconds, while the worker cannot start
_CANNOT_START = (
    "The worker cannot start, because the database accepts no lease: %s. It must accept writes, and one more "
    "connection. Trying again."
)


class LeaseRenewal:
    def __init__(
        self, owner: str, registry: Registry, seconds: float, info: Callable[[], str], renewed: Callable[[float], None]
    ) -> None:
        """Make the thread. `owner`: the id of the worker; `registry`: the lanes it can run; `seconds`: of the lease;
        `info`: what to record about the worker, as JSON, with each renewal; `renewed`: called after each."""
        self._owner = owner
        self._registry = registry
        self._seconds = seconds
        self._info = info
        self._on_renewed = renewed
        self._stopped = threading.Event()
        self._warning = RepeatedWarning(_log, "The lease could not be renewed: %s. Trying again.", _LOG_AGAIN)
        self._start_warning = RepeatedWarning(_log, _CANNOT_START, _SAY_AGAIN)
        self._renewed = -math.inf  # when it was last renewed, unless the last try failed
        self._sound_from = 0.0  # after a lost lease: one lease later, so that other workers renew theirs first

    def start(self, store: Store) -> Reply[None]:
        """Start the thread. The reply is answered once the lease is held for the first time."""
        held: Reply[None] = Reply()
        threading.Thread(target=self._run, args=(store, held), name="hark-lease", daemon=True).start()
        return held

    def stop(self) -> None:
        self._stopped.set()

    def is_sound(self) -> bool:
        """Return True if the lease is held and was not lost lately.

        A worker that could not renew its lease was cut off from the database, maybe together with the workers that look
        dead now: they get a whole lease to renew theirs before it reclaims their instances (M5).
        """
        now = time.monotonic()
        return now >= self._sound_from and now - self._renewed <= self._seconds

    def _run(self, store: Store, held: Reply[None]) -> None:
        lease: Lease | None = None
        length = int(self._seconds * 1_000_000)
        while not self._stopped.is_set():
            wait = self._seconds / 3
            try:
                lease = lease or store.lease()
                lanes = ",".join(self._registry.lanes())  # read each time: more may be registered
                lease.renew(self._owner, length, lanes, self._info())
                now = time.monotonic()
                if held.done() and now - self._renewed > self._seconds:
                    self._sound_from = now + self._seconds
                self._renewed = now
                self._on_renewed(self._seconds)
                answer_all([(held, None)])
            except Exception as error:
                if not held.done() and not isinstance(error, StoreFault):
                    answer_all([(held, error)])
                    return
                (self._warning if held.done() else self._start_warning).log(reason(error))
                self._renewed = -math.inf  # any failure counts as a lost lease: the database may be away for all
                wait = min(1.0, wait)
            self._stopped.wait(wait)
        if lease is not None:
            lease.close()
