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
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from nats.aio.msg import Msg

from hark.kernel.requests import Deliver
from hark.model.errors import NotOpen
from hark.model.log import get_logger
from hark.model.nats import Nats
from hark.runtime.nats.bucket import BadBucket, SignalBucket
from hark.runtime.nats.connection import ApiError, Connection, ConnectionLost, JetStreamOff, connected, jetstream_off
from hark.runtime.nats.counters import NatsCounters
from hark.runtime.nats.outgoing import Outgoing, Sender, wake_up_subject
from hark.runtime.nats.reader import Outcome, Reader
from hark.runtime.reply import Reply

if TYPE_CHECKING:
    from hark.runtime.clerk import Clerk

_log = get_logger()
_FIRST_PAUSE: Final = 0.1  # seconds before the second attempt to connect; each further pause is twice as long
_LONGEST_PAUSE: Final = 5.0
_TRY_AGAIN: Final = 5.0  # seconds until a bucket that cannot be used is tried again
_SAY_AGAIN: Final = 60.0  # seconds until the same problem is logged again
_LAST_ITEMS: Final = 1.0  # seconds to send what is left when the app closes


class NatsBridge:
    """The connection of one app. `run` is on the clerk's loop, everything else on the thread."""

    def __init__(self, options: Nats, clerk: Clerk, max_payload: int, counters: NatsCounters) -> None:
        self._options = options
        self._clerk = clerk
        self._max_payload = max_payload
        self.counters = counters
        self.outgoing = Outgoing(options, self.counters)
        self._connection: Connection | None = None
        self._logged = ("", 0.0)  # the present problem, and when it was logged

    async def run(self) -> None:
        """For as long as the app is open."""
        loop, stop = asyncio.new_event_loop(), asyncio.Event()
        thread = threading.Thread(target=self._main, args=(loop, stop), name="hark-nats", daemon=True)
        thread.start()
        try:
            await asyncio.Event().wait()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stop.set)
            await asyncio.to_thread(thread.join)

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
        while self._connection is not None and self.outgoing:
            await asyncio.sleep(0.005)
        if self._connection is not None:
            with contextlib.suppress(ConnectionLost):
                await self._connection.flush()

    # -- connections ------------------------------------------------------------------------------

    async def _connect_for_ever(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                async with connected(self._options) as connection:
                    self._solve(f"Connected to NATS {connection.server_version} at {self._options.address}.")
                    await self._use(connection)
            except ConnectionLost as lost:
                self._report(
                    f"NATS at {self._options.address} cannot be used: {lost}. Signals that are put there wait, and all "
                    "else goes on. Trying again."
                )
            except Exception:
                _log.exception("The connection to NATS failed with an unexpected error; it is made again.")
            if time.monotonic() - began > 2 * _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1))
            pause = min(_LONGEST_PAUSE, pause * 2)

    async def _use(self, connection: Connection) -> None:
        """Read and send until the connection fails."""
        if self._options.wake_ups:
            await connection.subscribe(wake_up_subject(self._options.bucket), self._hint)
            await connection.flush()  # from now on no wake-up is missed
        self._connection = connection
        self.counters.is_connected = True
        self.counters.connects += 1
        ready = asyncio.Event()  # there is a bucket
        parts = (connection.wait_closed(), self._read(connection, ready), self._send(connection, ready))
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

    async def _send(self, connection: Connection, ready: asyncio.Event) -> None:
        await ready.wait()
        await Sender(connection, self.outgoing, self._options.bucket, self.counters).run()

    # -- signals ----------------------------------------------------------------------------------

    async def _read(self, connection: Connection, ready: asyncio.Event) -> None:
        bucket = SignalBucket(connection, self._options.bucket)
        while True:
            reader = Reader(
                connection, bucket, self._options.keep_micros, self._max_payload, self._commit, self.counters
            )
            try:
                await bucket.ensure()
                ready.set()
                await reader.run()
            except NotOpen:
                await asyncio.Event().wait()  # the app closes, and cancels this
            except JetStreamOff:
                self._report(f"NATS at {self._options.address}: {jetstream_off()}. No signals are read from there.")
            except (ApiError, BadBucket) as error:
                self._report(f"NATS at {self._options.address}: {error}. No signals are read from there.")
            await asyncio.sleep(_TRY_AGAIN)

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

    # -- the log ----------------------------------------------------------------------------------

    def _report(self, problem: str) -> None:
        """Log a problem: once, and again after a while if it lasts."""
        self.counters.last_error = problem
        text, at = self._logged
        if problem != text or time.monotonic() - at > _SAY_AGAIN:
            self._logged = (problem, time.monotonic())
            _log.warning("%s", problem)

    def _solve(self, text: str) -> None:
        self._logged = ("", 0.0)
        _log.info("%s", text)
