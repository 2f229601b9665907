"""ClerkState: the parts that the clerk, its turns and its peers share. Used on the clerk's loop."""

from __future__ import annotations

from hark.engine.turns.database_clock import DatabaseClock
from hark.engine.turns.local_worker import LocalWorker
from hark.engine.turns.request_queue import RequestQueue
from hark.engine.turns.thread_loop import ThreadLoop
from hark.engine.turns.work_left import WorkLeft
from hark.store.protocol import Store


class ClerkState:
    store: Store  # set when the app opens

    def __init__(self, clock: DatabaseClock) -> None:
        self.clock = clock
        self.loop = ThreadLoop()
        self.queue = RequestQueue()
        self.work_left = WorkLeft()
        self.worker: LocalWorker | None = None
