"""What Hark sends to NATS after it has committed: signals into the bucket, streams of tasks, wake-ups.

All of it is for others to see, and nothing depends on it: while NATS is down a bounded number of items waits, and what
is above it is dropped and counted. A turn only puts its items into a queue here; they are written out on the NATS
thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from hark.kernel.requests import Deliver, SignalWithStart, TakeNote
from hark.kernel.result import TurnResult
from hark.model.log import get_logger
from hark.model.nats import Nats
from hark.model.notes import NoteEvents
from hark.model.values import Delivery
from hark.runtime.nats.connection import Connection
from hark.runtime.nats.counters import NatsCounters
from hark.runtime.nats.incoming import SENT_BY_HARK
from hark.runtime.nats.keys import signal_key, stream_subject
from hark.runtime.request_queue import Queued

_log = get_logger()
_MOST_ITEMS: Final = 20_000
_MOST_BYTES: Final = 32 << 20
_MOST_UNANSWERED: Final = 500  # puts that the server has not answered
_ANSWER: Final = 5.0  # seconds to wait for such an answer
_HEADERS: Final = {SENT_BY_HARK: "1"}


def wake_up_subject(bucket: str) -> str:
    """The subject on which processes with the same store wake each other."""
    return f"hark.{bucket}.wake"


class SentSignal(msgspec.Struct, frozen=True, gc=False):
    """A signal that was committed."""

    run: str
    name: str
    payload: str


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk of the stream of a task: the data of its event."""

    run: str
    task: str
    data: str


class _ChunkData(msgspec.Struct):
    chunk: msgspec.Raw


_chunk: Final = msgspec.json.Decoder(_ChunkData).decode


class Outgoing:
    """The items that wait to be sent. Added on the clerk's thread, taken on the NATS thread."""

    def __init__(self, options: Nats, counters: NatsCounters) -> None:
        self._sends_signals = options.send_signals
        self._may_wake_others = options.wake_ups
        self._counters = counters
        self._items: deque[SentSignal | Chunk] = deque()
        self._size = 0  # bytes
        self._lock = threading.Lock()
        self._warned = False
        self._wakes_others = False
        self.wake: Callable[[], object] = _do_nothing
        """Called after items were added; set while there is a connection."""

    def add_turn(self, result: TurnResult, items: Sequence[Queued]) -> None:
        """Take what a turn has committed that others want to see."""
        found: list[SentSignal | Chunk] = []
        if self._sends_signals and result.deliveries:
            for request in result.deliveries:
                match request:
                    case Deliver(is_in_bucket=False, result=Delivery(status="woke" | "stored", instance_id=run)):
                        found.append(SentSignal(run, request.name, request.payload))
                    case SignalWithStart(was_delivered=True, result=run):
                        found.append(SentSignal(run, request.name, request.payload))
                    case _:  # a duplicate, one that was refused, a broadcast
                        pass
        for item in items:
            if type(item.request) is TakeNote and item.request.result is None:
                note = item.request.note
                if type(note) is NoteEvents and note.run_id is not None:
                    run, task = note.run_id, note.step or ""
                    found += [Chunk(run, task, event.data or "") for event in note.events if event.type == "stream"]
        if found:
            self._add(found)

    def add_wake_up(self) -> None:
        """Wake the other processes: a turn has done something that they may wait for."""
        if self._may_wake_others:
            with self._lock:
                self._wakes_others = True
            self.wake()

    def _add(self, found: list[SentSignal | Chunk]) -> None:
        dropped = 0
        with self._lock:
            self._items.extend(found)
            self._size += sum(map(_size, found))
            while len(self._items) > _MOST_ITEMS or self._size > _MOST_BYTES:
                self._size -= _size(self._items.popleft())
                dropped += 1
        self.wake()
        if dropped:
            self._counters.sent["dropped"] += dropped
            if not self._warned:
                self._warned = True
                _log.warning(
                    "NATS does not take what Hark sends as fast as it is sent. The oldest signals and chunks of "
                    "streams are not published there; in the database all of them are stored."
                )

    def take(self) -> SentSignal | Chunk | None:
        """The oldest item; None if there is none."""
        with self._lock:
            if not self._items:
                self._warned = False
                return None
            item = self._items.popleft()
            self._size -= _size(item)
            return item

    def put_back(self, item: SentSignal | Chunk) -> None:
        """Keep an item that could not be sent for the next connection."""
        with self._lock:
            self._items.appendleft(item)
            self._size += _size(item)

    def take_wake_up(self) -> bool:
        """Whether to wake other processes."""
        with self._lock:
            wakes, self._wakes_others = self._wakes_others, False
        return wakes

    def __bool__(self) -> bool:
        return bool(self._items)


def _size(item: SentSignal | Chunk) -> int:
    return len(item.payload) if isinstance(item, SentSignal) else len(item.data)


def _do_nothing() -> None:
    """What wakes the sender while there is no connection."""


class Sender:
    """Publishes the items on one connection."""

    def __init__(self, connection: Connection, outgoing: Outgoing, bucket: str, counters: NatsCounters) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._prefix = f"$KV.{bucket}."
        self._wake_ups = wake_up_subject(bucket)
        self._counters = counters
        self._added = asyncio.Event()
        self._answered = asyncio.Event()
        self._unanswered = 0
        self._is_refused = False

    async def run(self) -> None:
        """Publish for as long as the connection lasts."""
        loop = asyncio.get_running_loop()
        inbox = self._connection.new_inbox()
        answers = await self._connection.subscribe(inbox, self._receive_answer)
        self._outgoing.wake = lambda: loop.call_soon_threadsafe(self._added.set)
        try:
            while True:
                self._added.clear()
                if self._outgoing.take_wake_up():
                    await self._connection.publish(self._wake_ups)
                while (item := self._outgoing.take()) is not None:
                    try:
                        await self._publish(item, inbox)
                    except BaseException:
                        self._outgoing.put_back(item)
                        raise
                await self._added.wait()
        finally:
            self._outgoing.wake = _do_nothing
            await self._connection.unsubscribe(answers)

    async def _publish(self, item: SentSignal | Chunk, inbox: str) -> None:
        try:
            if isinstance(item, Chunk):
                await self._connection.publish(stream_subject(item.run, item.task), bytes(_chunk(item.data).chunk))
                self._counters.sent["chunk"] += 1
                return
            await self._wait_for_answers()
            self._unanswered += 1
            subject = self._prefix + signal_key(item.run, item.name)
            await self._connection.publish(subject, item.payload.encode(), reply=inbox, headers=_HEADERS)
        except nats.errors.MaxPayloadError:
            self._counters.sent["dropped"] += 1
            what = "A signal" if isinstance(item, SentSignal) else "A chunk of a stream"
            _log.warning(
                "%s of %s is larger than the NATS server accepts (%d bytes), and was not published there.",
                what, item.run, self._connection.max_payload,
            )  # fmt: skip

    async def _wait_for_answers(self) -> None:
        """Not more puts than the server can take: it drops those above its own limit."""
        while self._unanswered >= _MOST_UNANSWERED:
            self._answered.clear()
            try:
                await asyncio.wait_for(self._answered.wait(), _ANSWER)
            except TimeoutError:
                self._counters.sent["dropped"] += self._unanswered
                self._unanswered = 0

    async def _receive_answer(self, answer: Msg) -> None:
        self._unanswered = max(0, self._unanswered - 1)
        self._answered.set()
        why = _refusal(answer)
        if why is None:
            self._counters.sent["signal"] += 1
            self._is_refused = False
            return
        self._counters.sent["dropped"] += 1
        self._counters.last_error = why
        if not self._is_refused:
            self._is_refused = True
            _log.warning("NATS does not take the signals that Hark sends: %s. In the database they are stored.", why)


def _refusal(answer: Msg) -> str | None:
    """Why the server did not take a put; None if it did."""
    if (answer.headers or {}).get("Status"):
        return "the server has no such bucket"
    error = msgspec.json.decode(answer.data).get("error")
    return None if error is None else str(error.get("description", "no reason given"))
