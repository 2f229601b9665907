"""Keep messages that have no receiver yet, and deliver them in the turn that arms a wait for them (B4).

A turn that sends a message with a time to live, and one that arms a wait, reserve its name and key: so an open wait
and a message that is kept for it never exist side by side, and a kept message has one receiver. The time is that of the
database: a message whose time is over is never delivered, whether or not retention has removed it (fault 62).

The table `messages` also has the dedup keys of received messages, until retention removes them. A message that was kept
until its time was over was not received: it may be sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hark.kernel.requests import Message
from hark.kernel.rows import LockedRow
from hark.store import statements as sql

if TYPE_CHECKING:
    from hark.kernel.turn import Turn

_ALL = 2**62


class Receiver(NamedTuple):
    """A wait for a message that has just been armed."""

    row: LockedRow
    wait: str
    name: str
    key: str
    answers_each: bool


class MessagesToStore:
    """The messages of one turn that are kept, or whose dedup keys are kept."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str], Message | sql.SeenMessage] = {}  # by name, key and dedup key
        self._repeats: list[tuple[Message, Message]] = []  # a message, and the one of this turn that it repeats
        self._to_keep: list[Message] = []
        self._to_record: list[Message] = []
        self._expired: list[int] = []  # rows whose dedup key is free again

    async def load(self, turn: Turn, messages: Sequence[Message]) -> None:
        """Find the messages with the same dedup keys that were sent before."""
        keys = sorted({(m.name, m.key, m.dedup_key) for m in messages if m.dedup_key is not None})
        for seen in await turn.tx.fetch(sql.seen_messages, keys) if keys else ():
            if seen.receiver is None and seen.expires_at <= turn.now:
                self._expired.append(seen.seq)
            else:
                self._first[seen.name, seen.key, seen.dedup_key] = seen

    def is_repeat(self, message: Message) -> bool:
        """Return True when a message with this dedup key was sent before; this one gets the result of the first."""
        if message.dedup_key is None:
            return False
        first = self._first.setdefault((message.name, message.key, message.dedup_key), message)
        if first is message:
            self._to_record.append(message)
            return False
        if isinstance(first, Message):
            self._repeats.append((message, first))
        else:
            message.result = first.receiver
        return True

    def keep(self, message: Message) -> None:
        """Keep a message without a receiver for its time to live."""
        message.result = None
        self._to_keep.append(message)

    async def record(self, turn: Turn) -> None:
        """Write the kept and the received messages, after the messages of the turn have started their instances."""
        kept = {id(message) for message in self._to_keep}
        received = [m for m in self._to_record if id(m) not in kept and isinstance(m.result, str)]
        for message, first in self._repeats:
            message.result = first.result
            if first in turn.result.again:
                turn.result.again.append(message)
        rows = [(m.name, m.key, m.payload, m.dedup_key, turn.now + m.ttl, None) for m in self._to_keep]
        rows += [(m.name, m.key, "null", m.dedup_key, turn.now, m.result) for m in received]
        if not rows:
            return
        if self._expired:
            await turn.tx.fetch(sql.delete_messages, seqs=self._expired)
        await turn.tx.fetch(sql.insert_messages, rows)


async def take(turn: Turn, armed: Sequence[Receiver]) -> None:
    """Deliver the kept messages that these waits receive, the oldest first: one to each wait, or all of them to one
    that `answers_each`. The waits are in the store."""
    waiting: dict[tuple[str, str], list[Receiver]] = {}
    for receiver in armed:
        waiting.setdefault((receiver.name, receiver.key), []).append(receiver)
    if not waiting:
        return
    each = any(receiver.answers_each for receiver in armed)
    most = _ALL if each else max(len(receivers) for receivers in waiting.values())
    taken: list[int] = []
    recorded: list[tuple[int, str]] = []
    answered: list[str] = []
    for kept in await turn.tx.fetch(sql.kept_messages, sorted(waiting), most=most):
        receivers = waiting[kept.name, kept.key]
        if not receivers:
            continue
        row, wait, answers_each = receivers[0].row, receivers[0].wait, receivers[0].answers_each
        turn.inbox.post(row, "message", kept.name, kept.payload, wait_id=wait)
        turn.history.event(row.id, "message", None, name=kept.name, key=kept.key)
        if kept.dedup_key is None:
            taken.append(kept.seq)
        else:
            recorded.append((kept.seq, row.id))
        if not answers_each:
            del receivers[0]
            answered.append(wait)
            for armed_wait in row.waits:
                if armed_wait.id == wait:
                    armed_wait.fired_at = turn.now
    if taken:
        await turn.tx.fetch(sql.delete_messages, seqs=taken)
    if recorded:
        await turn.tx.fetch(sql.receive_messages, recorded)
    if answered:
        await turn.tx.fetch(sql.fire_waits, ids=answered)


async def take_for_outcomes(turn: Turn) -> None:
    """Deliver the messages that are kept for the waits that the outcomes of this turn arm."""
    armed = [
        Receiver(turn.rows[commit.claim.id], arm.id, arm.name or "", arm.key or "", arm.answers_each)
        for commit, arm in turn.batch.message_waits
        if not commit.fenced
    ]
    await take(turn, armed)
