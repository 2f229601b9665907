"""The feed: one reader of events per process, however many clients follow however many instances.

It looks when a turn was committed here, and twice a second for what other processes did. A client that is slow
is left out of the next look until it has caught up: its place is a seq, and nothing is kept for it here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque

from hark.app import Hark
from hark.model.errors import HarkError, NotOpen
from hark.model.values import Event

_PAGE = 100  # events of one instance per look
_ROOM = 500  # events a client may be behind before it is left out
_GLANCE = 0.02  # seconds between glances at our own turns
_LOOK = 0.5  # seconds between looks into the store


class Stream:
    """One client and its place."""

    def __init__(self, id: str, seq: int) -> None:
        self.id = id
        self.seq = seq
        self.events: deque[Event] = deque()
        self.over = False
        """Its instance had ended before the last event was read: there are no more."""
        self.closed = False
        self.ready = asyncio.Event()

    def put(self, event: Event) -> None:
        if event.seq > self.seq:
            self.seq = event.seq
            self.events.append(event)
            self.ready.set()

    def end(self) -> None:
        self.over = True
        self.ready.set()


class Feed:
    def __init__(self, app: Hark) -> None:
        self._app = app
        self._streams: set[Stream] = set()
        self._reader: asyncio.Task[None] | None = None
        self._bell = asyncio.Event()
        self.looks = 0

    def follow(self, id: str, seq: int) -> Stream:
        """Events of this instance after a seq, from now on, until `leave`."""
        stream = Stream(id, seq)
        self._streams.add(stream)
        self._bell.set()
        if self._reader is None or self._reader.done():
            self._bell = asyncio.Event()
            self._reader = asyncio.ensure_future(self._read())
        return stream

    def leave(self, stream: Stream) -> None:
        self._streams.discard(stream)
        self._bell.set()

    def taken(self, stream: Stream) -> None:
        """The client has caught up: it may be looked for again."""
        if len(stream.events) < _ROOM:
            self._bell.set()

    def close(self) -> None:
        """The server stops: everybody is sent home, and may come back elsewhere."""
        for stream in self._streams:
            stream.closed = True
            stream.ready.set()

    async def _read(self) -> None:
        while self._streams:
            turns = self._app.turns
            self._bell.clear()
            hungry = [stream for stream in self._streams if len(stream.events) < _ROOM and not stream.over]
            try:
                more = await self._look(hungry) if hungry else False
            except NotOpen:
                self.close()
                return
            except HarkError:  # the store is away: the clients wait, and nothing of theirs is lost
                await asyncio.sleep(1)
                continue
            if not more:
                await self._news(turns)

    async def _look(self, streams: list[Stream]) -> bool:
        """Read once for all of them. True when somebody has more to read at once."""
        self.looks += 1
        places: dict[str, int] = {}
        for stream in streams:
            places[stream.id] = min(stream.seq, places.get(stream.id, stream.seq))
        events, over = await self._app.follow(places, limit=_PAGE)
        found = Counter(event.instance_id for event in events)
        by_id: dict[str, list[Stream]] = {}
        for stream in streams:
            by_id.setdefault(stream.id, []).append(stream)
        for event in events:
            for stream in by_id[event.instance_id]:
                stream.put(event)
        for id in over:
            if found[id] < _PAGE:
                for stream in by_id[id]:
                    stream.end()
        return any(number == _PAGE for number in found.values())

    async def _news(self, turns: int) -> None:
        """Until there may be something: a turn of ours, a bell, or long enough."""
        end = asyncio.get_running_loop().time() + _LOOK
        while self._app.turns == turns and asyncio.get_running_loop().time() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._bell.wait(), _GLANCE)
                return
