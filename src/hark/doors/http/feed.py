"""The feed: one reader of events per process, however many clients follow however many instances.

It looks when a turn was committed here, and twice a second for what other processes did. Everybody in it is up to
date: who comes reads the past by itself first, and who falls behind is sent to do so again (stream.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque

from hark.app.door_access import DoorAccess
from hark.model.errors import HarkError, NotOpen
from hark.model.values import Event

PAGE = 500  # events of one instance per look
_ROOM = 2 * PAGE  # events a client may be behind
_GLANCE = 0.02  # seconds between glances at our own turns
_LOOK = 0.5  # seconds between looks into the store


class StreamClient:
    """One client and its place."""

    def __init__(self, id: str, seq: int) -> None:
        self.id = id
        self.seq = seq
        self.events: deque[Event] = deque()
        self.over = False
        """Its instance had ended before the last event was read: there are no more."""
        self.behind = False
        """It was too slow: it has been left out since `seq`."""
        self.closed = False
        self.ready = asyncio.Event()

    def put(self, event: Event) -> None:
        self.behind = self.behind or len(self.events) >= _ROOM
        if event.seq > self.seq and not self.behind:
            self.seq = event.seq
            self.events.append(event)
        self.ready.set()

    def end(self) -> None:
        self.over = True
        self.ready.set()


class Feed:
    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._streams: set[StreamClient] = set()
        self._reader: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self._closed = False
        self.reads = 0

    def follow(self, id: str, seq: int) -> StreamClient:
        """Events of this instance after a seq, from now on, until `leave`."""
        stream = StreamClient(id, seq)
        stream.closed = self._closed
        self._streams.add(stream)
        self._bell.set()
        if self._reader is None or self._reader.done():
            self._bell = asyncio.Event()
            self._reader = asyncio.ensure_future(self._read())
        return stream

    def unfollow(self, stream: StreamClient) -> None:
        self._streams.discard(stream)
        self._bell.set()

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        """The server stops: everybody is sent home, also who comes now, and may come back elsewhere."""
        self._closed = True
        self._close_streams()

    def _close_streams(self) -> None:
        for stream in self._streams:
            stream.closed = True
            stream.ready.set()

    async def _read(self) -> None:
        while self._streams:
            turns = self._access.turns
            self._bell.clear()
            here = [stream for stream in self._streams if not stream.over and not stream.behind]
            try:
                more = await self._look(here) if here else False
            except NotOpen:
                self._close_streams()
                return
            except HarkError:  # the store is away: the clients wait, and nothing of theirs is lost
                await asyncio.sleep(1)
                continue
            if not more:
                await self._news(turns)

    async def _look(self, streams: list[StreamClient]) -> bool:
        """Read once for all of them. True when somebody has more to read at once."""
        self.reads += 1
        places: dict[str, int] = {}
        for stream in streams:
            places[stream.id] = min(stream.seq, places.get(stream.id, stream.seq))
        events, over = await self._access.follow(places, limit=PAGE)
        found = Counter(event.instance_id for event in events)
        by_id: dict[str, list[StreamClient]] = {}
        for stream in streams:
            by_id.setdefault(stream.id, []).append(stream)
        for event in events:
            for stream in by_id[event.instance_id]:
                stream.put(event)
        for id in over:
            if found[id] < PAGE:
                for stream in by_id[id]:
                    stream.end()
        return any(number == PAGE for number in found.values())

    async def _news(self, turns: int) -> None:
        """Until there may be something: a turn of ours, a bell, or long enough."""
        end = asyncio.get_running_loop().time() + _LOOK
        while self._access.turns == turns and asyncio.get_running_loop().time() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), _GLANCE)
                return
