"""Start instances by broadcasts and messages, and replace the triggers that a deployed definition brings.

A broadcast starts an instance of every definition that has a trigger for its name, and counts them. They do
not receive the broadcast itself: its subscribers were read before they existed. A message starts one only if no
live instance takes it. Schedules are in schedules.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel import message, start
from hark.kernel.kept_messages import MessagesToStore
from hark.kernel.requests import Deploy, Message, Publish, SignalWithStart, StartInstances
from hark.model.decisions import NewInstance
from hark.model.errors import NotFound
from hark.model.names import new_id
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


class Triggered:
    """The instances that the broadcasts and messages of one turn start."""

    def __init__(self) -> None:
        self.names: set[str] = set()  # of broadcasts that have triggers
        self.by_broadcast: list[Publish] = []
        self.by_message: list[Message] = []
        self.started: dict[Publish, int] = {}  # the number of instances that a broadcast has started


def replace(turn: Turn, deploy: Deploy, version: int) -> None:
    """Replace the triggers of a definition by those of this version; `remove` deletes them.

    Nothing is written here: the rows are locked after the instances, see schedules.py."""
    turn.schedules.deployed[deploy.name] = (() if deploy.remove else tuple(deploy.starts), version)


async def apply(turn: Turn, to_store: MessagesToStore | None) -> None:
    """Start the instances of the broadcasts and messages of this turn. `to_store` has the rows about the messages."""
    if not turn.has_triggered:
        return
    triggered = turn.triggered
    caused: list[Publish | Message] = [*triggered.by_broadcast, *triggered.by_message]
    if not caused:
        return
    # Read by name in one statement, and not by the ids that were found before: while a new version replaces them, that
    # gives all start events of one version.
    events = sorted({("message" if isinstance(cause, Message) else "broadcast", cause.name) for cause in caused})
    found: dict[tuple[str, str], list[sql.TriggerRow]] = {}
    for row in await turn.tx.fetch(sql.triggers_by_event, events):
        if not row.paused:
            found.setdefault((row.kind, row.name), []).append(row)
    starts: list[tuple[NewInstance, StartInstances | SignalWithStart]] = []
    requests: list[tuple[StartInstances, Publish | Message]] = []
    for cause in caused:
        if isinstance(cause, Message):
            chosen = found.get(("message", cause.name), [])[:1]  # one receiver
            if not chosen and to_store is not None:
                message.give_up(turn, cause, to_store)  # the trigger was removed since the turn found it
        else:
            chosen = found.get(("broadcast", cause.name), [])
        for row in chosen:
            item = _instance(row, cause)
            request = StartInstances(items=[item], result=[])
            starts.append((item, request))
            requests.append((request, cause))
    if starts:
        await start.begin(turn, starts)
    for request, cause in requests:
        [answer] = request.result
        if isinstance(cause, Message):
            cause.result = answer
            if isinstance(answer, NotFound) and to_store is not None:
                message.give_up(turn, cause, to_store)  # undeployed since the turn read its triggers
            elif isinstance(answer, Exception):
                message.report(turn, cause)
        elif not isinstance(answer, Exception):
            triggered.started[cause] = triggered.started.get(cause, 0) + 1
    if not turn.broadcasts.large:
        for cause, count in triggered.started.items():
            cause.result += count


def _instance(row: sql.TriggerRow, cause: Publish | Message) -> NewInstance:
    key = None
    if isinstance(cause, Message):
        # A process that throws a message with its own key holds that key itself: what it starts has none.
        is_own = cause.sender is not None and cause.sender.claim.correlation_key == cause.key
        key = None if is_own else cause.key
    return NewInstance(
        definition=row.definition,
        state=cause.payload if row.state is None else row.state,
        id=new_id(),
        version=row.version,
        step=row.element or None,
        correlation_key=key,
    )
