"""Count the children that ended against the waits of their parents (M8).

Each end counts once, against its own wait and no other; the last one that the wait needs is its answer. With
`answers_each`, every end is an answer: an inbox row with the id of the child, how it ended, and its error; for a
process also a short result, so that it need not read the rows of its children. A child can also tell such a parent
something before it ends (`TellParent`): a row of the same kind, which counts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from hark.kernel.effects import request_for
from hark.kernel.requests import Commit, InformParent
from hark.kernel.rows import LockedRow
from hark.model.bpmn_state import control_wait
from hark.model.decisions import TellParent
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_encode = msgspec.json.Encoder().encode
_SHORT = 4096  # characters of a result that is in the row of an end


class ChildNews(NamedTuple):
    """News of a live child for its parent: the parent and its wait, the child, and the payload of the row."""

    parent: str
    wait: str
    id: str
    payload: str


class ChildEnd(NamedTuple):
    """The end of a child: the wait of the parent that it counts against, and the data of an answer. With the status
    `refused` the child has no row under this id, because it could not start or is not kept any more."""

    wait: str
    id: str
    status: str
    error: str | None
    result: str | None = None  # JSON, if it is done


class _EndPayload(Struct, frozen=True, gc=False, omit_defaults=True):
    """The payload of an answer to a wait with `answers_each`."""

    status: str
    error: str | None = None
    result: Raw | UnsetType = UNSET


class Children:
    """The children that ended or could not start in one turn."""

    __slots__ = ("ended", "failed_to_start")

    def __init__(self) -> None:
        self.ended: list[ChildEnd] = []
        self.failed_to_start: dict[str, list[ChildEnd]] = {}  # by the parent's wait, if this turn arms it


def post_end(turn: Turn, parent: LockedRow, end: ChildEnd) -> None:
    """Answer a wait with `answers_each`."""
    result: Raw | UnsetType = UNSET
    if end.status == "done" and end.wait == control_wait(parent.id) and len(text := end.result or "null") <= _SHORT:
        result = Raw(text.encode())
    payload = _encode(_EndPayload(end.status, end.error, result)).decode()
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
        # Zero was reached by this turn, not before. A failed parent gets the row too: its retry must find it.
        if remaining <= 0 < remaining + counts[wait]:
            turn.inbox.post(row, "children", "", "null", wait_id=wait)
            turn.history.event(parent, "joined")
    for end in ended if each else ():
        if end.wait in each:
            post_end(turn, each[end.wait], end)
    await turn.inbox.flush()


# -- news of live children --------------------------------------------------------------------------


@request_for(TellParent)
def _request(effect: TellParent, sender: Commit) -> InformParent:
    return InformParent(payload=effect.payload, sender=sender)


def plan_news(turn: Turn) -> None:
    for request in turn.batch.of(InformParent):
        if request.sender.claim.parent_id is not None:
            turn.locks.ids.add(request.sender.claim.parent_id)


async def apply_news(turn: Turn) -> None:
    """Post the news of outcomes before the ends of the same turn are counted, so that news arrive before the end."""
    news = []
    for request in turn.batch.of(InformParent):
        claim = request.sender.claim
        if not request.sender.fenced and claim.parent_id is not None and claim.parent_wait is not None:
            news.append(ChildNews(claim.parent_id, claim.parent_wait, claim.id, request.payload))
    await post_news(turn, news)


async def post_news(turn: Turn, news: Sequence[ChildNews]) -> list[bool]:
    """Post news to the parents that wait for each end of their children. Returns whether each parent does.

    A failed parent gets them too, as it gets ends: its retry must find them in the inbox."""
    if not news:
        return []
    waits = {id for (id,) in await turn.tx.fetch(sql.waits_for_each_end, ids=sorted({one.wait for one in news}))}
    told = []
    for one in news:
        row = turn.rows.get(one.parent)
        told.append(row is not None and one.wait in waits)
        if row is not None and one.wait in waits:
            turn.inbox.post(row, "children", one.id, one.payload, wait_id=one.wait)
    await turn.inbox.flush()
    return told
