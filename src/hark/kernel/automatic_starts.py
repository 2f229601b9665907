"""Instances that broadcasts and messages start, and the automatic starts that a deployed definition brings.

A broadcast starts an instance of every definition that has an automatic start for its name, and counts them. They do
not receive the broadcast itself: its subscribers were read before they existed. A message starts one only if no
live instance takes it. What a schedule starts is in schedules.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import message, start
from hark.kernel.kept_messages import Sent
from hark.kernel.requests import Deploy, Message, Publish, SignalWithStart, StartInstances
from hark.model.decisions import NewInstance
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Triggered:
    """The instances that the broadcasts and messages of one turn start."""

    __slots__ = ("by_broadcast", "by_message", "started", "starters")

    def __init__(self) -> None:
        self.starters: dict[str, list[str]] = {}  # automatic starts by the name of a broadcast
        self.by_broadcast: list[tuple[str, Publish]] = []  # the automatic start, and what causes it
        self.by_message: list[tuple[str, Message]] = []
        self.started: dict[Publish, int] = {}  # how many instances a broadcast has started


def replace(turn: Turn, deploy: Deploy, version: int) -> None:
    """Replace the automatic starts of a definition by those of this version; `remove` deletes them.

    Nothing is written here: the rows are locked after the instances, see schedules.py."""
    turn.schedules.deployed[deploy.name] = (() if deploy.remove else tuple(deploy.starts), version)


async def apply(turn: Turn, sent: Sent | None) -> None:
    """Start what the broadcasts and messages of this turn start. `sent`: what is written about the messages."""
    if not turn.has_triggered:
        return
    triggered = turn.triggered
    caused: list[tuple[str, Publish | Message]] = [*triggered.by_broadcast, *triggered.by_message]
    if not caused:
        return
    ids = sorted({id for id, _ in caused})
    found = {row.id: row for row in await turn.tx.fetch(sql.starts_by_id, ids=ids)}
    starts: list[tuple[NewInstance, StartInstances | SignalWithStart]] = []
    requests: list[tuple[StartInstances, Publish | Message]] = []
    for id, cause in caused:
        row = found.get(id)
        if row is None or row.paused:  # removed since the turn read its id
            if isinstance(cause, Message) and sent is not None:
                message.give_up(turn, cause, sent)
            continue
        item = NewInstance(
            definition=row.definition,
            state=cause.payload if row.state is None else row.state,
            id=new_id(),
            version=row.version,
            step=row.element or None,
            correlation_key=cause.key if isinstance(cause, Message) else None,
        )
        request = StartInstances(items=[item], result=[])
        starts.append((item, request))
        requests.append((request, cause))
    if starts:
        await start.begin(turn, starts)
    for request, cause in requests:
        [answer] = request.result
        if isinstance(cause, Message):
            cause.result = answer
            if isinstance(answer, Exception):
                message.report(turn, cause)
        elif not isinstance(answer, Exception):
            triggered.started[cause] = triggered.started.get(cause, 0) + 1
    if not turn.broadcasts.large:
        for cause, count in triggered.started.items():
            cause.result += count
