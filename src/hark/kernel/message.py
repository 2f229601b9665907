"""Deliver messages: each to the oldest open wait for its name and key.

All waits for one name and key belong to one instance: a turn that arms one reserves name and key
(`Locks.reserve_message`), and an outcome that arms one which another instance holds is refused. A message without a
receiver starts an instance if a definition has such a trigger, with the key of the message as its correlation
key. Otherwise it is kept for its time to live (kept_messages.py), or not stored if it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hark.kernel.effects import request_for
from hark.kernel.kept_messages import MessagesToStore
from hark.kernel.requests import Commit, Message
from hark.model.decisions import Advance, Arm, Finish, Hold, Park, Proceed, Redo, Release, SendMessage
from hark.model.errors import Duplicate, NoTarget
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn


@request_for(SendMessage)
def _request(effect: SendMessage, sender: Commit) -> Message:
    # An effect cannot run again in a later turn: the key is reserved at once, in case that it starts an instance.
    return Message(name=effect.name, key=effect.key, payload=effect.payload, sender=sender, may_start=True)


def plan_names(turn: Turn) -> None:
    """Reserve the keys of messages that will start an instance, and the names of those that may be kept or repeated."""
    for message in turn.batch.of(Message):
        if message.may_start:
            turn.locks.reserve(message.key)
        if message.ttl or message.dedup_key is not None:
            turn.locks.reserve_message(message.name, message.key)


async def plan(turn: Turn) -> None:
    messages = turn.batch.of(Message)
    if messages:
        asked = {(message.name, message.key) for message in messages}
        for row in await turn.tx.fetch(sql.message_waits, sorted(asked)):
            turn.locks.ids.add(row.instance_id)


async def refuse_held(turn: Turn) -> None:
    """Refuse outcomes that would wait for a message which another instance waits for: nothing of them is written, and
    their program gets the error. This comes before all other parts of an outcome, also its effects."""
    arming = [(commit, arm) for commit, arm in turn.batch.message_waits if not commit.fenced]
    if not arming:
        return
    asked = sorted({(arm.name, arm.key) for _, arm in arming})
    committing = {commit.claim.id: commit for commit in turn.batch.of(Commit) if not commit.fenced}
    holders: dict[tuple[str | None, str | None], tuple[str, str]] = {}
    for wait in await turn.tx.fetch(sql.message_waits, asked):
        commit = committing.get(wait.instance_id)
        if commit is None or not _drops(commit, wait.id):
            holders[wait.name, wait.key] = (wait.instance_id, wait.place)
    for commit, arm in arming:
        if commit.fenced:  # another of its waits was refused
            continue
        holder, place = holders.setdefault((arm.name, arm.key), (commit.claim.id, arm.place))
        if holder != commit.claim.id:
            commit.fenced = True
            commit.result = _held(commit, arm, holder, place)


def _drops(commit: Commit, wait_id: str) -> bool:
    """Return True if an outcome ends this wait of its instance."""
    match commit.decision.move:
        case Park(disarm=None) | Advance() | Finish():
            return True
        case Park(disarm=disarm) | Proceed(disarm=disarm):
            return disarm is not None and wait_id in disarm
        case Redo(drop_waits=drops):
            return drops
        case Hold() | Release():
            return False


def _held(commit: Commit, arm: Arm, holder: str, place: str) -> Duplicate:
    here = f" at {arm.place!r}" if arm.place else ""
    there = f" at {place!r}" if place else ""
    return Duplicate(
        f"{commit.claim.id} cannot wait{here} for message {arm.name!r} with key {arm.key!r}: instance {holder} waits "
        f"for it{there}, and a message has one receiver. Use another key, or retry when that instance has its message.",
        holder=holder,
    )


async def apply(turn: Turn) -> MessagesToStore | None:
    """Deliver the messages. Returns the rows to write about them once their instances have started."""
    messages = [m for m in turn.batch.of(Message) if m.sender is None or not m.sender.fenced]
    if not messages:
        return None
    for message in messages:
        message.result = None  # an attempt of this turn that was rolled back may have set it
    to_store = MessagesToStore()
    await to_store.load(turn, messages)
    asked = sorted({(message.name, message.key) for message in messages})
    receivers: dict[tuple[str, str], list[sql.MessageReceiver]] = {}  # the oldest wait first
    starters: set[str] = set()  # the names of messages that start instances
    found = await turn.tx.fetch(sql.message_receivers, asked, names=sorted({name for name, _ in asked}))
    # Of waits that were armed together, "…~9" is older than "…~10".
    for wait in sorted(found, key=lambda wait: (wait.since, len(wait.id), wait.id)):
        row = turn.rows.get(wait.instance_id)
        if wait.start:
            starters.add(wait.name)
        elif row is not None and not row.terminal:
            receivers.setdefault((wait.name, wait.key), []).append(wait)
    answered: list[str] = []
    for message in messages:
        if to_store.is_repeat(message):
            continue
        waits = receivers.get((message.name, message.key))
        if not waits:
            if message.name not in starters:
                give_up(turn, message, to_store)
            elif message.may_start:
                turn.triggered.by_message.append(message)
            else:  # run it again with its key reserved
                message.may_start = True
                turn.result.again.append(message)
            continue
        wait, row = waits[0], turn.rows[waits[0].instance_id]
        turn.inbox.post(row, "message", message.name, message.payload, wait_id=wait.id)
        turn.history.event(row.id, "message", None, name=message.name, key=message.key)
        message.result = row.id
        if wait.answers_each:
            continue
        # Exactly one message answers this wait: the next one goes to the next oldest.
        del waits[0]
        for armed in row.waits:
            if armed.id == wait.id:
                armed.fired_at = turn.now
        answered.append(wait.id)
    if answered:
        await turn.tx.fetch(sql.fire_waits, ids=answered)
    return to_store


def give_up(turn: Turn, message: Message, to_store: MessagesToStore) -> None:
    """Keep a message without a receiver and a trigger if it has a time to live; otherwise refuse it."""
    if message.ttl:
        to_store.keep(message)
    else:
        refuse(turn, message)


def refuse(turn: Turn, message: Message) -> None:
    """Set the error of a message that no instance takes."""
    message.result = NoTarget(
        f"No instance waits for message {message.name!r} with key {message.key!r}. "
        "See `hark instance list` for what waits, then send it again, or send it with a ttl: it is kept for so long.",
        target=message.key,
    )
    turn.history.near_miss("message", message.key, message.name, "missing")
    report(turn, message)


def report(turn: Turn, message: Message) -> None:
    """Tell the instance that sent a message that it was not delivered, by an event."""
    if message.sender is not None:
        claim = message.sender.claim
        turn.history.event(
            claim.id, "undelivered", claim.step, target=message.key, name=message.name, error=str(message.result)
        )
