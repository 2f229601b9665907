"""Reader: brings the values of the bucket into SQL, in their order, and acknowledges them after the commit.

What has arrived since the last commit goes into the clerk together, so a burst of puts is a few turns. A value is given
up only for an error that is certain for the value itself, for example that its run does not exist. After all other
errors nothing is acknowledged, and the same values are tried again before any later one. Which process reads is decided
in election.py; what a value means in incoming.py.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
from nats.aio.msg import Msg

from hark.engine.nats.bucket import SignalBucket
from hark.engine.nats.cleaning import clean_for_ever
from hark.engine.nats.connection import Connection, ConnectionLost
from hark.engine.nats.counters import NatsCounters
from hark.engine.nats.election import ReaderState, Term, position_of, reader_subject, take_over, wait_until_needed
from hark.engine.nats.incoming import BadSignal, is_signal, read_signal
from hark.kernel.requests import Deliver, RecordRefusal
from hark.model.errors import InvalidInput, NoTarget, NotOpen, StoreUnavailable
from hark.model.log import get_logger
from hark.model.reasons import reason
from hark.model.values import Delivery

_log = get_logger()
_BATCH: Final = 500  # values in one request to the server
_EXPIRES: Final = 30.0  # seconds of such a request
_HEARTBEAT: Final = 2.0  # seconds: how often the server says that it has nothing
_SILENT: Final = 3 * _HEARTBEAT
_TRY_AGAIN: Final = 0.5  # seconds until values are tried again that the database did not take
_STUCK: Final = 15.0  # seconds without a commit: longer than one attempt takes to fail
_LOG_PERIOD: Final = 60.0  # seconds
_MOST_LOGGED: Final = 20  # refusals in that time
_IDLE: Final = "100"  # statuses of the server
_TOO_OLD: Final = "408"
_NO_RESPONDERS: Final = "503"
_ASK_AGAIN: Final = ("batch completed", "exceeds maxbytes", "leadership change")
_SECOND: Final = 1_000_000_000  # ns

Outcome = Delivery | BaseException
Commit = Callable[[Sequence[Deliver]], Awaitable[list[Outcome]]]


class Reader:
    """Reads the bucket on one connection, whenever no other process does."""

    def __init__(
        self,
        connection: Connection,
        bucket: SignalBucket,
        keep: int,
        max_payload: int,
        commit: Commit,
        record: Callable[[RecordRefusal], None],
        counters: NatsCounters,
    ) -> None:
        """`commit` delivers signals in one turn and returns the outcome of each; `record` stores what was refused, for
        `why`; `keep` is the option, µs."""
        self._connection = connection
        self._bucket = bucket
        self._keep = keep
        self._max_payload = max_payload
        self._commit = commit
        self._record = record
        self._counters = counters
        self._uncommitted_since: float | None = None
        self._logged = 0  # refusals in this period
        self._logged_since = 0.0
        self._failure_logged = -_LOG_PERIOD  # when an unexpected error of the database was logged

    async def run(self) -> None:
        """Read for as long as the connection lasts.

        Raises:
            ConnectionLost: The connection has failed, or the server is silent.
            ApiError, BadBucket, JetStreamOff: The bucket cannot be used.
            NotOpen: The app closes.
        """
        while True:
            await wait_until_needed(self._connection, self._bucket.name)
            # Before the take-over, so that not all processes that notice at the same time begin one.
            answering = await self._connection.subscribe(reader_subject(self._bucket.name), self._answer)
            try:
                term = await take_over(self._bucket)
                if term is not None:
                    await self._read(term)
            finally:
                await self._connection.unsubscribe(answering)
            await asyncio.sleep(_TRY_AGAIN)

    async def _answer(self, question: Msg) -> None:
        """Tell another process that this one reads."""
        since = self._uncommitted_since
        stuck = since is not None and time.monotonic() - since > _STUCK
        counters = self._counters
        state = ReaderState(stuck, counters.last_error, counters.error_age, counters.process)
        await self._connection.publish(question.reply, msgspec.json.encode(state))

    async def _read(self, term: Term) -> None:
        _log.info("Reading signals from the NATS bucket %r.", self._bucket.name)
        if self._counters.stream_created not in (None, term.stream.created):
            _log.warning(
                "The NATS bucket %r is a new one: the last one was deleted, or the server was wiped. Signals that were "
                "not read before that are lost.",
                self._bucket.name,
            )
        self._counters.stream_created = term.stream.created
        for key in term.before.unreadable:
            self._refuse(key, "the key is not UTF-8")
        cleaning = asyncio.create_task(clean_for_ever(term, self._keep))
        self._counters.is_reader = True
        try:
            await self._read_until_replaced(term)
            _log.info("This process no longer reads the NATS bucket %r.", self._bucket.name)
        finally:
            self._counters.is_reader = False
            cleaning.cancel()

    async def _read_until_replaced(self, term: Term) -> None:
        fetch = _Fetch(self._connection, term)
        await fetch.begin()
        try:
            while True:
                values = await fetch.next()
                if values:
                    if not await self._commit_all(term, values):
                        return
                    await self._connection.publish(values[-1].reply, b"+ACK")  # and with it all before
                if fetch.is_replaced:
                    return
        finally:
            await fetch.end()

    # -- values -----------------------------------------------------------------------------------

    async def _commit_all(self, term: Term, values: Sequence[Msg]) -> bool:
        """Commit these values; those that are not signals, or that Hark refuses, must not block those behind them.
        Return False if another process has taken over before all of them were committed."""
        waiting: list[tuple[str, Deliver]] = []
        for value in values:
            if not is_signal(value.headers):
                continue
            key = value.subject[len(self._bucket.prefix) :]
            dedup_key = term.dedup_key(position_of(value))
            try:
                waiting.append((key, read_signal(key, value.data, dedup_key, self._max_payload)))
            except BadSignal as refusal:
                self._refuse(key, str(refusal))
                if refusal.target is not None and refusal.name is not None:
                    self._record(RecordRefusal(target=refusal.target, name=refusal.name, why=str(refusal)))
        self._uncommitted_since = time.monotonic()
        try:
            return await self._commit_in_order(term, waiting)
        finally:
            self._uncommitted_since = None

    async def _commit_in_order(self, term: Term, waiting: list[tuple[str, Deliver]]) -> bool:
        most = len(waiting)
        while waiting:
            left = await self._try_commit(waiting[:most])
            waiting = left + waiting[most:]
            # After a failure one signal shows whether the database takes any.
            most = 1 if left else len(waiting)
            # If a reader went on that has been replaced, it would answer as stuck in the place of its successor.
            if left and not await term.bucket.has_consumer(term.consumer):
                return False
        return True

    async def _try_commit(self, waiting: list[tuple[str, Deliver]]) -> list[tuple[str, Deliver]]:
        """Commit signals. Return those to try again: from the first that the database did not take, in order. What was
        committed behind it is then a duplicate.

        Only an error that is certain for the signal itself refuses it. A table that is missing, a privilege that was
        revoked or a mistake of our own may be corrected, and a signal that is acknowledged is gone."""
        outcomes = await self._commit([request for _, request in waiting])
        for place, ((key, _), outcome) in enumerate(zip(waiting, outcomes, strict=True)):
            match outcome:
                case Delivery(status="duplicate"):
                    self._counters.received["duplicate"] += 1
                case Delivery():
                    self._counters.received["delivered"] += 1
                case NoTarget() | InvalidInput():
                    self._refuse(key, reason(outcome))
                case NotOpen():
                    raise outcome
                case _:
                    self._note_failure(key, outcome)
                    await asyncio.sleep(_TRY_AGAIN)
                    return waiting[place:]
        return []

    def _note_failure(self, key: str, error: BaseException) -> None:
        self._counters.last_error = reason(error)
        now = time.monotonic()
        # That the database does not answer is in the log already.
        if not isinstance(error, StoreUnavailable) and now - self._failure_logged >= _LOG_PERIOD:
            self._failure_logged = now
            text = "The NATS key %r cannot be delivered, and those behind it wait: %s. It is tried again."
            _log.error(text, key, reason(error), exc_info=error)

    def _refuse(self, key: str, why: str) -> None:
        self._counters.received["refused"] += 1
        self._counters.last_error = f"The key {key!r} was refused: {why}"
        now = time.monotonic()
        if now - self._logged_since > _LOG_PERIOD:
            self._logged, self._logged_since = 0, now
        self._logged += 1
        if self._logged <= _MOST_LOGGED:
            _log.warning("A signal on NATS was refused, key %r: %s. It is not tried again.", key, why)
        elif self._logged == _MOST_LOGGED + 1:
            _log.warning("More signals on NATS are refused; for a minute they are only counted, in the metrics.")


class _Fetch:
    """Fetches values: one request to the server at a time, each for a number of values and some seconds."""

    def __init__(self, connection: Connection, term: Term) -> None:
        self._connection = connection
        self._term = term
        self._inbox = connection.new_inbox()
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{term.bucket.stream}.{term.consumer}"
        self._arrived: deque[Msg] = deque()
        self._news = asyncio.Event()
        self._left = 0  # of the present request
        self._next = 1  # the next number that the consumer counts
        self._sequence = 0  # of the last value that has arrived
        self.is_replaced = False  # the consumer is gone

    async def begin(self) -> None:
        self._subscription = await self._connection.subscribe(self._inbox, self._receive)

    async def end(self) -> None:
        await self._connection.unsubscribe(self._subscription)

    async def _receive(self, message: Msg) -> None:
        self._arrived.append(message)
        self._news.set()

    async def next(self) -> list[Msg]:
        """Return all values that have arrived, in order; wait for the first."""
        if self._left <= 0:
            await self._request()
        try:
            await asyncio.wait_for(self._news.wait(), _SILENT)
        except TimeoutError:
            raise ConnectionLost(f"the server has been silent for {_SILENT:g} s") from None
        self._news.clear()
        values: list[Msg] = []
        while self._arrived:
            message = self._arrived.popleft()
            if message.subject != self._inbox:  # values have the subject of their key; a client may set any header
                position = position_of(message)
                if position.nth != self._next:
                    raise ConnectionLost("values were lost on the way")
                self._next += 1
                self._sequence = position.sequence
                self._left -= 1
                values.append(message)
                continue
            status = (message.headers or {}).get("Status")
            if status is not None and status != _IDLE:
                self._left = 0
                self._end_request(status, str((message.headers or {}).get("Description", "")).strip())
        return values

    def _end_request(self, status: str, about: str) -> None:
        """Note that the server has ended the request: it is fulfilled or too old, or the consumer is gone."""
        if status == _NO_RESPONDERS or "deleted" in about.lower():
            self.is_replaced = True
        elif status != _TOO_OLD and not any(reason in about.lower() for reason in _ASK_AGAIN):
            raise ConnectionLost(f"the server sends no values: {status} {about}")

    async def _request(self) -> None:
        before = self._term.before
        self._left = _BATCH if self._sequence >= before.up_to else min(_BATCH, before.batch)
        question = {
            "batch": self._left,
            "expires": int(_EXPIRES * _SECOND),
            "idle_heartbeat": int(_HEARTBEAT * _SECOND),
            "max_bytes": max(8 << 20, 2 * self._connection.max_payload),
        }
        await self._connection.publish(self._subject, msgspec.json.encode(question), reply=self._inbox)
