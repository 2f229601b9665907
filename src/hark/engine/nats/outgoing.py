"""Keep the items that wait to be sent to NATS after their commit: signals for the bucket, streams of tasks, wake-ups.

All of it is for others to see, and nothing depends on it: while NATS is down a bounded number of items waits, and what
is above it is dropped and counted. A turn only puts its items into a queue here; senders.py writes them out, on the
NATS thread. Signals and streams wait apart, because signals need the bucket and streams do not.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from hark.engine.nats.counters import NatsCounters
from hark.engine.turns.request_queue import Queued
from hark.kernel.requests import CommitNote, Deliver, SignalWithStart
from hark.kernel.result import TurnResult
from hark.model.log import get_logger
from hark.model.nats import Nats
from hark.model.notes import NoteEvents
from hark.model.values import Delivery

_log = get_logger()
_MOST_ITEMS: Final = 20_000  # of each kind
_MOST_BYTES: Final = 32 << 20


class SentSignal(msgspec.Struct, frozen=True, gc=False):
    """A signal that was committed. `id` tells it from all others: the server drops a repeat of it."""

    run: str
    name: str
    payload: str
    id: str

    @property
    def size(self) -> int:
        return len(self.payload)


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk of the stream of a task: the data of its event."""

    run: str
    task: str
    data: str

    @property
    def size(self) -> int:
        return len(self.data)


_Item = TypeVar("_Item", SentSignal, Chunk)


class _Queue(Generic[_Item]):
    """Items of one kind. Above a number or a size, the oldest are dropped."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._size = 0  # bytes

    def __len__(self) -> int:
        return len(self._items)

    def add(self, items: Sequence[_Item]) -> int:
        """Add items. Return the number of dropped ones."""
        self._items.extend(items)
        self._size += sum(item.size for item in items)
        dropped = 0
        while len(self._items) > _MOST_ITEMS or self._size > _MOST_BYTES:
            self._size -= self._items.popleft().size
            dropped += 1
        return dropped

    def take(self) -> _Item | None:
        if not self._items:
            return None
        item = self._items.popleft()
        self._size -= item.size
        return item

    def put_back(self, items: Sequence[_Item]) -> None:
        self._items.extendleft(reversed(items))
        self._size += sum(item.size for item in items)


class Outgoing:
    """The items that wait to be sent. Added on the clerk's thread, taken on the NATS thread."""

    def __init__(self, options: Nats, counters: NatsCounters) -> None:
        self._sends_signals = options.send_signals
        self._may_wake_others = options.wake_ups
        self._counters = counters
        self._signals: _Queue[SentSignal] = _Queue()
        self._chunks: _Queue[Chunk] = _Queue()
        self._lock = threading.Lock()
        self._process = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._warned = False
        self._wakes_others = False
        self._listeners: tuple[Callable[[], object], ...] = ()

    def add_turn(self, result: TurnResult, items: Sequence[Queued]) -> None:
        """Take the items of a turn that other programs or processes want to see."""
        signals: list[SentSignal] = []
        chunks: list[Chunk] = []
        if self._sends_signals and result.deliveries:
            for request in result.deliveries:
                match request:
                    case Deliver(is_in_bucket=False, result=Delivery(status="woke" | "stored", instance_id=run)):
                        signals.append(SentSignal(run, request.name, request.payload, self._next_id()))
                    case SignalWithStart(was_delivered=True, result=run):
                        signals.append(SentSignal(run, request.name, request.payload, self._next_id()))
                    case _:  # a duplicate, one that was refused, a broadcast
                        pass
        for item in items:
            if type(item.request) is CommitNote and item.request.result is None:
                note = item.request.note
                if type(note) is NoteEvents and note.run_id is not None:
                    run, task = note.run_id, note.step or ""
                    chunks += [Chunk(run, task, event.data or "") for event in note.events if event.type == "stream"]
        if signals or chunks:
            self._add(signals, chunks)

    def _next_id(self) -> str:
        return f"hark-{self._process}-{next(self._numbers)}"

    def add_wake_up(self) -> None:
        """Wake the other processes: a turn has done something that they may wait for."""
        if self._may_wake_others:
            with self._lock:
                self._wakes_others = True
            self._wake_senders()

    def _add(self, signals: Sequence[SentSignal], chunks: Sequence[Chunk]) -> None:
        with self._lock:
            dropped = self._signals.add(signals) + self._chunks.add(chunks)
        self._wake_senders()
        if dropped:
            self._counters.sent["dropped"] += dropped
            if not self._warned:
                self._warned = True
                _log.warning(
                    "NATS does not take what Hark sends as fast as it is sent. The oldest signals and chunks of "
                    "streams are not published there; in the database all of them are stored."
                )

    def _wake_senders(self) -> None:
        for wake in self._listeners:
            wake()

    # -- the NATS thread --------------------------------------------------------------------------

    def listen(self, wake: Callable[[], object]) -> None:
        """Call `wake` after items were added, from any thread."""
        self._listeners = (*self._listeners, wake)

    def ignore(self, wake: Callable[[], object]) -> None:
        """Stop calling the function given to `listen`."""
        self._listeners = tuple(one for one in self._listeners if one is not wake)

    def take_signal(self) -> SentSignal | None:
        """The oldest signal; None if there is none."""
        with self._lock:
            return self._taken(self._signals.take())

    def take_chunk(self) -> Chunk | None:
        """The oldest chunk; None if there is none."""
        with self._lock:
            return self._taken(self._chunks.take())

    def _taken(self, item: _Item | None) -> _Item | None:
        if item is None:
            self._warned = False
        return item

    def put_back_signals(self, signals: Iterable[SentSignal]) -> None:
        """Keep signals that were not sent, or not answered, for the next connection."""
        with self._lock:
            self._signals.put_back(list(signals))

    def put_back_chunk(self, chunk: Chunk) -> None:
        """Keep a chunk for the next connection."""
        with self._lock:
            self._chunks.put_back([chunk])

    def take_wake_up(self) -> bool:
        """Return True once after a wake-up was added."""
        with self._lock:
            wakes, self._wakes_others = self._wakes_others, False
        return wakes

    @property
    def has_signals(self) -> bool:
        return bool(self._signals)

    @property
    def has_chunks(self) -> bool:
        return bool(self._chunks)
