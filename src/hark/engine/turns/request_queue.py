"""RequestQueue: the requests that wait for a turn, in the order of the calls.

`take` decides which of them share the next turn; turn_order.py has the rule. The streams of tasks fill a part of a turn
at most, so that no other request waits for a long one. How fast tasks write them is decided by stream_pace.py.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from hark.engine.turns.reply import Reply
from hark.engine.turns.turn_order import TurnOrder
from hark.kernel.requests import Commit, CommitNote, Publish, Request
from hark.model.notes import NoteEvents

_MOST_EVENTS = 500  # noted by tasks; the note that reaches it is the last one of a turn


class Queued(Struct, gc=False):
    """A request, the reply of its caller (None for outcomes) and when it was queued."""

    request: Request
    reply: Reply[Any] | None
    at: float


class RequestQueue:
    """Requests are added by any thread, and taken by the clerk."""

    def __init__(self) -> None:
        self._items: deque[Queued] = deque()
        self.busy_at = 0.0  # when a turn last had more to do than notes, by the monotonic clock

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, request: Request, reply: Reply[Any] | None) -> None:
        self._items.append(Queued(request, reply, time.monotonic()))

    def add_together(self, requests: Sequence[Request], replies: Sequence[Reply[Any]]) -> None:
        """Add requests whose order matters, also when the database is gone: all of them have the same age, so that none
        is answered as late while one behind it stays in the queue."""
        now = time.monotonic()
        self._items.extend([Queued(*one, now) for one in zip(requests, replies, strict=True)])

    def add_outcomes(self, outcomes: Sequence[Commit]) -> None:
        now = time.monotonic()
        self._items.extend([Queued(outcome, None, now) for outcome in outcomes])

    def put_back(self, items: Sequence[Queued]) -> None:
        """Put requests back to the front of the queue, in their order."""
        self._items.extendleft(reversed(items))

    def take(self, most: int) -> list[Queued]:
        """Take the requests of the next turn: all, up to one that must not overtake another it may depend on."""
        items: list[Queued] = []
        order = TurnOrder()
        queue = self._items
        publishing = bool(queue) and isinstance(queue[0].request, Publish)
        events = notes = 0
        left: list[Queued] = []  # notes of streams, and what these tasks have noted after them
        waiting: set[str] = set()  # their tasks
        while queue and len(items) < most:
            request = queue[0].request
            if isinstance(request, Publish) is not publishing:
                break  # broadcasts have turns of their own
            if type(request) is not Commit:
                if isinstance(request, CommitNote):
                    note = request.note
                    size = len(note.events) if isinstance(note, NoteEvents) else 0
                    if (size and events >= _MOST_EVENTS) or note.task_id in waiting:
                        waiting.add(note.task_id)
                        left.append(queue.popleft())
                        continue
                    events += size
                    notes += 1
                elif items and not order.fits(request):
                    break
                order.add(request)
            items.append(queue.popleft())
        if left:
            self.put_back(left)
        if len(items) > notes:
            self.busy_at = time.monotonic()
        return items

    def keep(self, wanted: Callable[[Queued], bool]) -> None:
        """Keep these requests and remove all others. Requests that are added meanwhile stay, in their place behind."""
        waiting = [self._items.popleft() for _ in range(len(self._items))]
        self.put_back([item for item in waiting if wanted(item)])

    def clear(self) -> list[Reply[Any]]:
        """Remove all requests. Return the replies of their callers."""
        replies = [item.reply for item in self._items if item.reply is not None]
        self._items.clear()
        return replies
