"""Decide which process reads the bucket: one at a time, so that the signals of one client are committed in order (S10).

The reader answers requests on a subject; the others ask every second. NATS says at once that nothing subscribes to the
subject, or, if another program does (`nats sub '>'`), JetStream shows that no process waits for values. If no process
reads, or the reader does not answer in time, because it is paused, the first to notice takes over: it makes a new
consumer, which begins behind everything that was acknowledged, and deletes the earlier ones. The earlier reader, if it
still lives, cannot fetch anything more.

Order does not depend on there being one reader only. Each reader commits without gaps from a sequence up to which
everything is committed. If two of them overlap, the second commit of a value is a duplicate by its dedup key, and
whichever of them commits a value has committed, or found committed, all values before it.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.msg import Msg

from hark.engine.nats.bucket import SignalBucket, Stream
from hark.engine.nats.connection import Connection

_ASK: Final = 1.0  # seconds between two questions, and for an answer
_WORDS: Final = 9  # of the subject on which a value is acknowledged
_FEWER: Final = 10  # times fewer values at a time after a reader that ended before it acknowledged them
_MOST_UNANSWERED: Final = 3  # questions in a row: then the reader is paused, or cut off


def reader_subject(bucket: str) -> str:
    """The subject on which the process that reads a bucket answers."""
    return f"hark.{bucket}.reader"


class ReaderState(msgspec.Struct):
    """The answer of the reader. `is_stuck` has no default, so that no answer of another program is taken for one."""

    is_stuck: bool  # it has failed to commit for a while; another process may be able to
    last_error: str | None = None
    error_age: float | None = None  # seconds
    process: str = ""  # which process it is, for people


async def ask_reader(connection: Connection, bucket: str) -> ReaderState | None:
    """Ask the process that reads the bucket for its state; None if no process reads it.

    Raises:
        nats.errors.TimeoutError: A process waits for values, and does not answer in time.
        NotAllowed: The user may not ask.
    """
    try:
        answer = await connection.request_until(reader_subject(bucket), _is_of_reader, timeout=_ASK)
    except nats.errors.NoRespondersError:
        return None
    except nats.errors.TimeoutError:
        if await SignalBucket(connection, bucket).is_waited_for():
            raise
        return None
    return msgspec.json.decode(answer.data, type=ReaderState)


def _is_of_reader(answer: Msg) -> bool:
    """Return True if the answer is from a reader: a stream that stores everything on `hark.>` answers too."""
    try:
        msgspec.json.decode(answer.data, type=ReaderState)
    except msgspec.DecodeError:
        return False
    return True


async def wait_until_needed(connection: Connection, bucket: str) -> None:
    """Wait until no other process reads the bucket."""
    unanswered = 0
    while True:
        try:
            state = await ask_reader(connection, bucket)
        except nats.errors.TimeoutError:
            unanswered += 1
            if unanswered >= _MOST_UNANSWERED:
                return
            continue
        if state is None or state.is_stuck:
            return
        unanswered = 0
        await asyncio.sleep(_ASK)


class ValuePosition(NamedTuple):
    """The position of a value in the stream, as the server sends it with each value."""

    sequence: int
    nth: int  # how many values the consumer was sent, this one included
    time: str  # when it was put, ns


def position_of(value: Msg) -> ValuePosition:
    """The position of a value. From the text: the client rounds the time."""
    # $JS.ACK.{stream}.{consumer}.{times sent}.{sequence}.{nth}.{time}.{left}; newer servers may put two words before
    # the stream, and more behind.
    words = value.reply.split(".")
    shift = 0 if len(words) == _WORDS else 2
    return ValuePosition(int(words[5 + shift]), int(words[6 + shift]), words[7 + shift])


class Unacknowledged(NamedTuple):
    """The values that were sent to the readers before, and that none of them has acknowledged.

    One of them may have ended the connection: the NATS client does not survive a key that is not UTF-8. Then each
    reader asks for fewer of them at a time than the one before, until the value is the first. The first is looked at
    without receiving it, and left out if it cannot be received."""

    up_to: int  # sequence
    batch: int  # how many of them to ask for at a time
    unreadable: tuple[str, ...] = ()  # keys that are left out


class Term(NamedTuple):
    """The time in which this process reads: the consumer of its own, on a stream that was created at one time."""

    bucket: SignalBucket
    consumer: str
    stream: Stream
    before: Unacknowledged

    def dedup_key(self, position: ValuePosition) -> str:
        """The key that tells a value from all others: a wiped server counts sequences from 1 again, and one that lost
        its last writes in a crash gives the same sequence to another value."""
        return f"nats:{self.stream.created}:{position.sequence}:{position.time}"


async def take_over(bucket: SignalBucket) -> Term | None:
    """Become the reader; None if another process became it at the same time."""
    stream = await bucket.ensure()
    earlier = await bucket.consumers()
    floor = max((consumer.floor for consumer in earlier), default=0)
    # A floor above the last value belongs to values that the server has lost: which of the others are new is not known.
    start = floor + 1 if 0 < floor <= stream.last else None
    start, before = await _look_at_unacknowledged(bucket, start, max((one.sent for one in earlier), default=0))
    number = earlier[-1].number + 1 if earlier else 1
    mine = await bucket.add_consumer(number, start)
    present = await bucket.consumers()
    now = await bucket.state()
    if not present or present[-1].name != mine or now is None or now.created != stream.created:
        await bucket.delete_consumer(mine)
        return None
    for consumer in present[:-1]:
        await bucket.delete_consumer(consumer.name)
    return Term(bucket, mine, stream, before)


async def _look_at_unacknowledged(
    bucket: SignalBucket, start: int | None, sent: int
) -> tuple[int | None, Unacknowledged]:
    """Find the first value that is not acknowledged (`start`), and what was sent from there on before."""
    unreadable: list[str] = []
    while sent >= (start or 1):
        first = await bucket.first_from(start or 1)
        if first is None or first.is_readable:
            break
        unreadable.append(first.key)
        start = first.sequence + 1
    left = sent + 1 - (start or 1)
    return start, Unacknowledged(sent, max(1, left // _FEWER), tuple(unreadable))
