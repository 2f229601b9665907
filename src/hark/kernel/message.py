"""Deliver messages: each to the one instance that waits for its name and key.

Turns that arm a wait for a message reserve its name and key (`Locks.reserve_message`), and the unique index allows
one open wait for them. A message without a receiver starts an instance if a definition has such an automatic
start, with the key of the message as its correlation key; otherwise it is not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.requests import Message
from hark.model.errors import NoTarget
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


def plan_names(turn: Turn) -> None:
    """Reserve the keys of messages that are going to start an instance."""
    for message in turn.batch.of(Message):
        if message.may_start:
            turn.locks.reserve(message.key)


async def plan(turn: Turn) -> None:
    messages = turn.batch.of(Message)
    if messages:
        asked = {(message.name, message.key) for message in messages}
        for id, _, _, _ in await turn.tx.fetch(sql.message_waits, sorted(asked)):
            turn.locks.ids.add(id)


async def apply(turn: Turn) -> None:
    messages = turn.batch.of(Message)
    if not messages:
        return
    asked = sorted({(message.name, message.key) for message in messages})
    receivers: dict[tuple[str, str], tuple[str, str]] = {}
    starters: dict[str, str] = {}  # by the name of the message: the first automatic start
    names = sorted({name for name, _ in asked})
    for id, wait, start, name, key in await turn.tx.fetch(sql.message_receivers, asked, names=names):
        if start is None:
            receivers[name, key] = (id, wait)
        else:
            starters[name] = min(start, starters.get(name, start))
    answered: list[str] = []
    for message in messages:
        id, wait = receivers.get((message.name, message.key), (None, None))
        row = turn.rows.get(id) if id is not None else None
        if row is None or wait is None or row.terminal:
            if message.name not in starters:
                refuse(turn, message)
            elif message.may_start:
                turn.triggered.by_message.append((starters[message.name], message))
            else:  # once more, with its key reserved
                message.may_start = True
                turn.result.again.append(message)
            continue
        turn.inbox.post(row, "message", message.name, message.payload, wait_id=wait)
        turn.history.event(row.id, "message", None, name=message.name, key=message.key)
        message.result = row.id
        # Exactly one message answers this wait: the next one with the same key needs another.
        del receivers[(message.name, message.key)]
        for armed in row.waits:
            if armed.id == wait:
                armed.fired_at = turn.now
        answered.append(wait)
    if answered:
        await turn.tx.fetch(sql.fire_waits, ids=answered)


def refuse(turn: Turn, message: Message) -> None:
    """No instance takes this message."""
    message.result = NoTarget(
        f"No instance waits for message {message.name!r} with key {message.key!r}. "
        "See `hark instance list` for what waits, then send it again.",
        target=message.key,
    )
    turn.history.near_miss("message", message.key, message.name, "missing")
