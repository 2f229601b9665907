"""NatsBridge: the thread of an app that talks to NATS, with an event loop of its own.

The clerk only gains a queue to put items into: neither the NATS client nor a slow server can hold up a turn. The app
opens and works without a connection. After a failure there is another one, for ever, with a growing pause; the log says
so, and says when it works again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from nats.aio.msg import Msg

from hark.engine.nats.bucket import BadBucket, SignalBucket
from hark.engine.nats.connection import (
    ApiError,
    Connection,
    ConnectionLost,
    JetStreamOff,
    NotAllowed,
    connected,
    jetstream_off,
)
from hark.engine.nats.counters import NatsCounters
from hark.engine.nats.failures import Denial
from hark.engine.nats.outgoing import Outgoing
from hark.engine.nats.problem_log import ProblemLog
from hark.engine.nats.reader import Outcome, Reader
from hark.engine.nats.senders import SignalSender, StreamSender, wake_up_subject
from hark.engine.turns.reply import Reply
from hark.kernel.requests import Deliver
from hark.model.errors import NotOpen
from hark.model.log import get_logger
from hark.model.nats import WITHOUT_NATS, Nats

if TYPE_CHECKING:
    from hark.engine.turns.clerk import Clerk

_log = get_logger()
_FIRST_PAUSE: Final = 0.1  # seconds before the second attempt to connect; each further pause is twice as long
_LONGEST_PAUSE: Final = 5.0
_TRY_AGAIN: Final = 5.0  # seconds until a bucket that cannot be used is tried again
_LAST_ITEMS: Final = 1.0  # seconds to send what is left when the app closes
_END: Final = 5.0  # seconds for the thread to end; it is a daemon, and is left behind then


class NatsBridge:
    """The connection of one app. `run` is on the clerk's loop, everything else on the thread."""

    def __init__(self, options: Nats, clerk: Clerk, max_payload: int, counters: NatsCounters) -> None:
        self._options = options
        self._clerk = clerk
        self._max_payload = max_payload
        self.counters = counters
        self.outgoing = Outgoing(options, self.counters)
        self._connection: Connection | None = None
        self._signals: SignalSender | None = None  # while there is a bucket
        self._problems = ProblemLog(counters)

    async def run(self) -> None:
        """Use NATS for as long as the app is open."""
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        loop.set_default_executor(_DaemonThreads())
        thread = threading.Thread(target=self._main, args=(loop, stop), name="hark-nats", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stop.set)
            await asyncio.to_thread(thread.join, _END)

    def _main(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._live(stop))

    async def _live(self, stop: asyncio.Event) -> None:
        connecting = asyncio.create_task(self._connect_for_ever())
        await stop.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._send_rest(), _LAST_ITEMS)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

    async def _send_rest(self) -> None:
        while self._connection is not None and self._has_rest():
            await asyncio.sleep(0.005)
        if self._connection is not None:
            with contextlib.suppress(ConnectionLost):
                await self._connection.flush()

    def _has_rest(self) -> bool:
        if self._signals is not None and (self.outgoing.has_signals or self._signals.has_unanswered):
            return True
        return self.outgoing.has_chunks

    # -- connections ------------------------------------------------------------------------------

    async def _connect_for_ever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                async with connected(self._options, self._note_denial) as connection:
                    await self._use_as_allowed(connection)
            except ConnectionLost as lost:
                self._problems.report(
                    f"NATS at {self._options.address} cannot be used: {lost}. {WITHOUT_NATS}. Trying again."
                )
            except Exception:
                _log.exception("The connection to NATS failed with an unexpected error; it is made again.")
            if time.monotonic() - began > 2 * _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _use_as_allowed(self, connection: Connection) -> None:
        """Read and send until the connection fails. If a missing permission made the server silent, log that
        permission."""
        try:
            await self._use(connection)
        except ConnectionLost:
            if connection.is_closed or connection.denial is None:
                raise
            self._report_denial(connection.denial)

    def _note_denial(self, denial: Denial) -> None:
        """Note that the server refuses a message or a subscription."""
        if denial.verb == "publish":
            self.counters.denied += 1
            if self._signals is not None:
                self._signals.drop_denied(denial)
        self._report_denial(denial)

    def _report_denial(self, denial: Denial) -> None:
        self._problems.report(f"NATS at {self._options.address}: {denial}.", kind=denial.kind, lasting=True)

    async def _use(self, connection: Connection) -> None:
        """Read and send until the connection fails."""
        if self._options.wake_ups:
            await connection.subscribe(wake_up_subject(self._options.bucket), self._hint)
            await connection.flush()  # from now on no wake-up is missed
        self._connection = connection
        self.counters.is_connected = True
        self.counters.connects += 1
        ready = asyncio.Event()  # there is a bucket
        streams = StreamSender(connection, self.outgoing, self._options.bucket, self.counters)
        parts = (
            connection.wait_closed(), self._read(connection, ready), streams.run(),
            self._send_signals(connection, ready),
        )  # fmt: skip
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._connection = None
            self.counters.is_connected = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hint(self, message: Msg) -> None:
        self._clerk.hint()

    async def _send_signals(self, connection: Connection, ready: asyncio.Event) -> None:
        await ready.wait()
        self._signals = SignalSender(connection, self.outgoing, self._options.bucket, self.counters)
        try:
            await self._signals.run()
        finally:
            self._signals = None

    # -- signals ----------------------------------------------------------------------------------

    async def _read(self, connection: Connection, ready: asyncio.Event) -> None:
        bucket = SignalBucket(connection, self._options.bucket)
        while True:
            reader = Reader(
                connection,
                bucket,
                self._options.keep_micros,
                self._max_payload,
                self._commit,
                self._clerk.submit,
                self.counters,
            )
            try:
                await bucket.ensure()
                self._problems.solve(f"Connected to NATS {connection.server_version} at {connection.server}.")
                ready.set()
                await reader.run()
            except NotOpen:
                await asyncio.Event().wait()  # the app closes, and cancels this
            except JetStreamOff:
                self._report_bucket(jetstream_off(), lasting=False)
            except (ApiError, BadBucket) as error:
                # With a bucket that exists and cannot be read, or may not be, the next attempt seems to succeed too.
                self._report_bucket(str(error), lasting=ready.is_set() or isinstance(error, NotAllowed))
            await asyncio.sleep(_TRY_AGAIN)

    def _report_bucket(self, problem: str, *, lasting: bool) -> None:
        text = f"NATS at {self._options.address}: {problem}. No signals are read from there."
        self._problems.report(text, lasting=lasting)

    async def _commit(self, requests: Sequence[Deliver]) -> list[Outcome]:
        """Deliver signals in one turn. The outcome of each is what `Hark.signal` returns or raises."""
        replies: list[Reply[Any]] = [Reply() for _ in requests]
        self._clerk.submit_together(requests, replies)
        outcomes: list[Outcome] = []
        for reply in replies:
            try:
                outcomes.append(await reply)
            except asyncio.CancelledError:
                for unread in replies:
                    unread.expect_nothing()
                raise
            except Exception as error:
                outcomes.append(error)
        return outcomes


class _DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a daemon thread. The loop looks up host names in its executor: a DNS that does not answer must
    keep neither the app nor the process from ending."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, name="hark-nats-dns", daemon=True).start()
        return future
