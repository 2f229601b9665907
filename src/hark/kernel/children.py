"""Count the children that ended against the waits of their parents (M8).

Each end counts once, against its own wait and no other; the last one that the wait needs is its answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Children:
    """The children that ended or could not start in one turn."""

    __slots__ = ("ended", "failed_to_start")

    def __init__(self) -> None:
        self.ended: list[str] = []  # the parent's wait, once per child
        self.failed_to_start: dict[str, int] = {}  # how many, by the parent's wait


async def count_ended(turn: Turn) -> None:
    ended = turn.children.ended
    if not ended:
        return
    turn.children.ended = []
    counts: dict[str, int] = {}
    for wait in ended:
        counts[wait] = counts.get(wait, 0) + 1
    for wait, parent, remaining, _ in await turn.tx.fetch(sql.count_children, sorted(counts.items())):
        row = turn.rows.get(parent)
        if row is None:
            continue
        for armed in row.waits:
            if armed.id == wait:
                armed.remaining = remaining
        # Reached by this turn, not before. Also posted to a failed parent: its retry must find it in the inbox.
        if remaining <= 0 < remaining + counts[wait]:
            turn.inbox.post(row, "children", "", "null", wait_id=wait)
            turn.history.event(parent, "joined")
    await turn.inbox.flush()
