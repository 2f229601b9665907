"""Publish the items of outgoing.py on one connection: streams and wake-ups at once, signals when there is a bucket.

A signal is put into the bucket and answered by the server. What is not answered when the connection ends is put again
on the next one, with the same id, so the server drops a repeat. A chunk of a stream is core NATS, without an answer.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from hark.engine.nats.connection import Connection
from hark.engine.nats.counters import NatsCounters
from hark.engine.nats.failures import Denial
from hark.engine.nats.incoming import SENT_BY_HARK
from hark.engine.nats.keys import signal_key, stream_subject
from hark.engine.nats.outgoing import Chunk, Outgoing, SentSignal
from hark.model.byte_values import on_the_wire
from hark.model.log import get_logger

_log = get_logger()
_MOST_UNANSWERED: Final = 500  # puts that the server has not answered: it drops those above its own limit
_ANSWER: Final = 20.0  # seconds to wait for such an answer: longer than a dead connection takes to be noticed


def wake_up_subject(bucket: str) -> str:
    """The subject on which processes with the same store wake each other."""
    return f"hark.{bucket}.wake"


class _ChunkData(msgspec.Struct):
    chunk: msgspec.Raw


_chunk: Final = msgspec.json.Decoder(_ChunkData).decode


class _Sender(ABC):
    """Waits for items in the queue."""

    def __init__(self, connection: Connection, outgoing: Outgoing, counters: NatsCounters) -> None:
        self._connection = connection
        self._outgoing = outgoing
        self._counters = counters
        self._added = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._added.set)

    async def run(self) -> None:
        """Publish for as long as the connection lasts."""
        wake = self._wake
        self._outgoing.listen(wake)
        try:
            while True:
                self._added.clear()  # before the look: what is added after it is not missed
                await self._send_all()
                await self._added.wait()
        finally:
            self._outgoing.ignore(wake)

    @abstractmethod
    async def _send_all(self) -> None: ...

    def _drop_large(self, what: str, run: str) -> None:
        self._counters.sent["dropped"] += 1
        _log.warning(
            "%s of %s is larger than the NATS server accepts (%d bytes with its headers), and was not published there.",
            what, run, self._connection.max_payload,
        )  # fmt: skip


class StreamSender(_Sender):
    """Publishes the chunks of streams, and wake-ups."""

    def __init__(self, connection: Connection, outgoing: Outgoing, bucket: str, counters: NatsCounters) -> None:
        super().__init__(connection, outgoing, counters)
        self._wake_ups = wake_up_subject(bucket)

    async def _send_all(self) -> None:
        if self._outgoing.take_wake_up():
            await self._connection.publish(self._wake_ups)
        while (chunk := self._outgoing.take_chunk()) is not None:
            try:
                await self._publish(chunk)
            except BaseException:
                self._outgoing.put_back_chunk(chunk)
                raise

    async def _publish(self, chunk: Chunk) -> None:
        try:
            data = on_the_wire(bytes(_chunk(chunk.data).chunk).decode())
            await self._connection.publish(stream_subject(chunk.run, chunk.task), data)
        except nats.errors.MaxPayloadError:
            self._drop_large("A chunk of a stream", chunk.run)
        else:
            self._counters.sent["chunk"] += 1


class SignalSender(_Sender):
    def __init__(self, connection: Connection, outgoing: Outgoing, bucket: str, counters: NatsCounters) -> None:
        super().__init__(connection, outgoing, counters)
        self._prefix = f"$KV.{bucket}."
        self._inbox = connection.new_inbox()
        self._answered = asyncio.Event()
        self._number = 0
        self._unanswered: dict[str, tuple[str, SentSignal]] = {}  # subject and signal by number, in their order
        self._refusal: str | None = None  # the present one

    @property
    def has_unanswered(self) -> bool:
        return bool(self._unanswered)

    async def run(self) -> None:
        """Put signals for as long as the connection lasts."""
        answers = await self._connection.subscribe(f"{self._inbox}.*", self._receive_answer)
        try:
            await super().run()
        finally:
            self._outgoing.put_back_signals(signal for _, signal in self._unanswered.values())
            self._unanswered.clear()
            await self._connection.unsubscribe(answers)

    async def _send_all(self) -> None:
        while True:
            await self._wait_for_answers()
            if (signal := self._outgoing.take_signal()) is None:
                return
            await self._put(signal)

    async def _put(self, signal: SentSignal) -> None:
        self._number += 1
        number = str(self._number)
        subject = self._prefix + signal_key(signal.run, signal.name)
        self._unanswered[number] = subject, signal
        headers = {SENT_BY_HARK: "1", "Nats-Msg-Id": signal.id}
        try:
            await self._connection.publish(
                subject, on_the_wire(signal.payload), reply=f"{self._inbox}.{number}", headers=headers
            )
        except nats.errors.MaxPayloadError:
            del self._unanswered[number]
            self._drop_large("A signal", signal.run)

    async def _wait_for_answers(self) -> None:
        while len(self._unanswered) >= _MOST_UNANSWERED:
            self._answered.clear()
            try:
                await asyncio.wait_for(self._answered.wait(), _ANSWER)
            except TimeoutError:
                self._refuse(len(self._unanswered), f"there is no answer within {_ANSWER:g} s")
                self._unanswered.clear()

    async def _receive_answer(self, answer: Msg) -> None:
        if self._unanswered.pop(answer.subject.rpartition(".")[2], None) is None:
            return
        self._answered.set()
        why = _refusal(answer)
        if why is not None:
            self._refuse(1, why)
            return
        self._counters.sent["signal"] += 1
        if self._refusal is not None and self._counters.last_error == self._refusal:
            self._counters.last_error = None
        self._refusal = None

    def _refuse(self, number: int, why: str) -> None:
        self._counters.sent["dropped"] += number
        text = f"NATS does not take the signals that Hark sends: {why}. In the database they are stored."
        self._counters.last_error = text
        if self._refusal is None:
            _log.warning("%s", text)
        self._refusal = text

    def drop_denied(self, denial: Denial) -> None:
        """Drop a signal that the user may not put. The server answers this with an error, not to the put."""
        for number, (subject, _) in self._unanswered.items():
            if subject.lower() == denial.subject.lower():
                del self._unanswered[number]
                self._counters.sent["dropped"] += 1
                self._answered.set()
                return


def _refusal(answer: Msg) -> str | None:
    """The reason why the server refused a put; None if it accepted it."""
    if (answer.headers or {}).get("Status"):
        return "the server has no such bucket"
    error = msgspec.json.decode(answer.data).get("error")
    return None if error is None else str(error.get("description", "no reason given"))
