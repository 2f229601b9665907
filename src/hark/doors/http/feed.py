"""The feed: one reader of new events per process, for all clients and all instances that they follow.

It reads when this process has committed a turn, and twice a second for events of other processes. Every client in it
is up to date: a client reads the past itself before it joins, and does so again when it has fallen behind (stream.py).

A client follows one instance, or a run: a job with all its tasks. A position in an instance is the seq of an event, as
(0, seq); in a run it is the cursor of an event, because tasks on several workers commit at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hark.model.errors import HarkError, NotOpen
from hark.model.values import Event

if TYPE_CHECKING:  # only a server needs it; the command line reads the table of routes
    from hark.app.door_access import DoorAccess

PAGE = 500  # events of one instance per read
_MAX_BUFFERED = 2 * PAGE  # events that wait for one client
_TURN_INTERVAL = 0.02  # seconds between two checks for turns of this process
_POLL_INTERVAL = 0.5  # seconds between two reads of the store


class StreamClient:
    """A client of the feed: the instance or the run it follows, and the position up to which it has the events."""

    def __init__(self, id: str, position: tuple[int, int], *, is_run: bool = False) -> None:
        self.id = id
        self.position = position
        self.is_run = is_run
        self.events: deque[Event] = deque()
        self.ended = False
        """The instance had ended before the last event was read: there are no more."""
        self.behind = False
        """The client was too slow; the events after `position` are not buffered for it."""
        self.closed = False
        """The server stops: close the connection. The client may connect again elsewhere."""
        self.ready = asyncio.Event()

    def put(self, event: Event) -> None:
        self.behind = self.behind or len(self.events) >= _MAX_BUFFERED
        position = event.cursor if self.is_run else (0, event.seq)
        if position > self.position and not self.behind:
            self.position = position
            self.events.append(event)
        self.ready.set()

    def end(self) -> None:
        self.ended = True
        self.ready.set()


class Feed:
    def __init__(self, access: DoorAccess) -> None:
        self._access = access
        self._clients: set[StreamClient] = set()
        self._reader: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # the set of clients
        self._closed = False
        self._waiting: set[Callable[[], None]] = set()
        self.reads = 0

    def follow(self, id: str, position: tuple[int, int], *, is_run: bool = False) -> StreamClient:
        """Add a client for the events of this instance or run after a position; `unfollow` removes it."""
        client = StreamClient(id, position, is_run=is_run)
        client.closed = self._closed
        self._clients.add(client)
        self._changed.set()
        if self._reader is None or self._reader.done():
            self._changed = asyncio.Event()
            self._reader = asyncio.ensure_future(self._run())
        return client

    def unfollow(self, client: StreamClient) -> None:
        self._clients.discard(client)
        self._changed.set()

    def open(self) -> None:
        self._closed = False

    def close(self) -> None:
        """Close the connections of all clients, and of those that still come: the server stops."""
        self._closed = True
        self._close_clients()
        for end in list(self._waiting):
            end()

    @contextlib.contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the server stops, at once if it has: for a request that waits for something else."""
        self._waiting.add(end)
        if self._closed:
            end()
        try:
            yield
        finally:
            self._waiting.discard(end)

    def _close_clients(self) -> None:
        for client in self._clients:
            client.closed = True
            client.ready.set()

    async def _run(self) -> None:
        while self._clients:
            turns = self._access.turns
            self._changed.clear()
            waiting = [client for client in self._clients if not client.ended and not client.behind]
            try:
                has_more = await self._read(waiting) if waiting else False
            except NotOpen:
                self._close_clients()
                return
            except HarkError:  # the store does not respond: the clients wait, and miss nothing
                await asyncio.sleep(1)
                continue
            if not has_more:
                await self._wait_for_changes(turns)

    async def _read(self, clients: list[StreamClient]) -> bool:
        """Read once for all clients; return True when there are more events to read."""
        self.reads += 1
        of_runs = [client for client in clients if client.is_run]
        of_instances = [client for client in clients if not client.is_run]
        more = await self._read_instances(of_instances) if of_instances else False
        return await self._read_runs(of_runs) or more if of_runs else more

    async def _read_runs(self, clients: list[StreamClient]) -> bool:
        """Read for clients of runs. All are near the newest events: one scan from the earliest position serves them."""
        start = min(client.position for client in clients)
        ids = {client.id for client in clients}
        events, end, ended, more = await self._access.scan_runs(ids, start)
        owned = [(event, self._access.run_of(event, ids)) for event in events]
        for client in clients:
            for event, run in owned:
                if run == client.id:
                    client.put(event)
            if not client.behind:
                client.position = max(client.position, end)
            if client.id in ended:
                client.end()
        return more

    async def _read_instances(self, clients: list[StreamClient]) -> bool:
        positions: dict[str, int] = {}
        for client in clients:
            positions[client.id] = min(client.position[1], positions.get(client.id, client.position[1]))
        events, ended = await self._access.follow(positions, limit=PAGE)
        counts = Counter(event.instance_id for event in events)
        by_id: dict[str, list[StreamClient]] = {}
        for client in clients:
            by_id.setdefault(client.id, []).append(client)
        for event in events:
            for client in by_id[event.instance_id]:
                client.put(event)
        for id in ended:
            if counts[id] < PAGE:
                for client in by_id[id]:
                    client.end()
        return any(count == PAGE for count in counts.values())

    async def _wait_for_changes(self, turns: int) -> None:
        """Wait until there may be new events: a turn of this process, another client, or the poll interval."""
        end = asyncio.get_running_loop().time() + _POLL_INTERVAL
        while self._access.turns == turns and asyncio.get_running_loop().time() < end:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), _TURN_INTERVAL)
                return
