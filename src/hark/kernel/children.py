"""Count the children that ended against the waits of their parents (M8).

Each end counts once, against its own wait and no other; the last one that the wait needs is its answer. With
`answers_each`, every end is an answer: an inbox row with the id of the child, how it ended, and its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from hark.kernel.rows import LockedRow
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_encode = msgspec.json.Encoder().encode


class ChildEnd(NamedTuple):
    """The end of a child: the wait of the parent that it counts against, and what an answer says about it. The status
    `refused`: it has no row under this id, because it could not start or is not kept any more."""

    wait: str
    id: str
    status: str
    error: str | None


class _EndPayload(Struct, frozen=True, gc=False, omit_defaults=True):
    """The payload of an answer to a wait with `answers_each`."""

    status: str
    error: str | None = None


class Children:
    """The children that ended or could not start in one turn."""

    __slots__ = ("ended", "failed_to_start")

    def __init__(self) -> None:
        self.ended: list[ChildEnd] = []
        self.failed_to_start: dict[str, list[ChildEnd]] = {}  # by the parent's wait, if this turn arms it


def post_end(turn: Turn, parent: LockedRow, end: ChildEnd) -> None:
    """Answer a wait with `answers_each`."""
    payload = _encode(_EndPayload(end.status, end.error)).decode()
    turn.inbox.post(parent, "children", end.id, payload, wait_id=end.wait)


async def count_ended(turn: Turn) -> None:
    ended = turn.children.ended
    if not ended:
        return
    turn.children.ended = []
    counts: dict[str, int] = {}
    for end in ended:
        counts[end.wait] = counts.get(end.wait, 0) + 1
    each: dict[str, LockedRow] = {}  # the parents whose waits every end answers, by the wait
    for wait, parent, remaining, answers_each in await turn.tx.fetch(sql.count_children, sorted(counts.items())):
        row = turn.rows.get(parent)
        if row is None:
            continue
        if answers_each:
            each[wait] = row
            continue
        for armed in row.waits:
            if armed.id == wait:
                armed.remaining = remaining
        # Reached by this turn, not before. Also posted to a failed parent: its retry must find it in the inbox.
        if remaining <= 0 < remaining + counts[wait]:
            turn.inbox.post(row, "children", "", "null", wait_id=wait)
            turn.history.event(parent, "joined")
    for end in ended if each else ():
        if end.wait in each:
            post_end(turn, each[end.wait], end)
    await turn.inbox.flush()
