"""Connection: one connection to a NATS server, from its beginning to its end.

It is never repaired: after any failure it is closed, and bridge.py makes another one. So no part of this package sees a
subscription or a request that belongs to a server from before a restart. The NATS client does nothing here but speak
the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hark.model.nats import Nats
from hark.model.reasons import reason

_CONNECT: Final = 5.0  # seconds
_CLOSE: Final = 1.0  # seconds: a server that does not read keeps no process from stopping
_REQUEST: Final = 5.0  # seconds
_PING: Final = 5  # seconds between two pings; after two without an answer the connection is closed


class ConnectionLost(Exception):
    """The connection has failed, or could not be made; the text says why, without credentials."""


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code


class JetStreamOff(Exception):
    """The server, or the account, has no JetStream."""


def jetstream_off() -> str:
    """What is wrong then, and what to do."""
    return "JetStream is off; start the server with `-js -sd DIRECTORY`, or enable it for the account"


class Connection:
    """An open connection. Used on the loop that made it."""

    def __init__(self, client: Client, closed: asyncio.Event, problems: list[Exception]) -> None:
        """`closed` is set at its end; `problems` is what the client has reported."""
        self._client = client
        self._closed = closed
        self._problems = problems

    @property
    def server_version(self) -> str:
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def max_payload(self) -> int:
        """How many bytes of data the server accepts in a message."""
        return self._client.max_payload

    async def wait_closed(self) -> None:
        """Wait for the end of the connection.

        Raises:
            ConnectionLost: It has ended; the text says why, as far as it is known.
        """
        await self._closed.wait()
        raise ConnectionLost(_last(self._problems) or "the connection was closed")

    async def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message. It is not known whether it arrives."""
        try:
            await self._client.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError:
            raise
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(reason(error)) from error

    async def subscribe(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call `receive` with each message on a subject."""
        try:
            return await self._client.subscribe(subject, cb=receive)
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(reason(error)) from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription; nothing happens if the connection has ended before."""
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()

    def new_inbox(self) -> str:
        """A subject of our own, for answers."""
        return self._client.new_inbox()

    async def request(self, subject: str, data: bytes = b"", *, timeout: float = _REQUEST) -> Msg:
        """Send a request and return the answer.

        Raises:
            nats.errors.NoRespondersError: No program answers requests on this subject.
            nats.errors.TimeoutError: There is no answer yet.
            ConnectionLost: The connection has ended.
        """
        try:
            return await self._client.request(subject, data, timeout=timeout)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
            raise
        except (nats.errors.Error, OSError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._closed.is_set():
                raise
            raise ConnectionLost(reason(error)) from error

    async def ask(self, subject: str, question: Any = None) -> dict[str, Any]:
        """Ask the JetStream API, for example "STREAM.INFO.KV_signals".

        The API is asked in JSON, not through the client's JetStream classes: those of version 2.11 drop the creation
        times of streams and messages.

        Raises:
            ApiError: It refused.
            JetStreamOff: There is no JetStream.
            ConnectionLost: It did not answer.
        """
        data = b"" if question is None else msgspec.json.encode(question)
        try:
            answer = await self.request(f"$JS.API.{subject}", data)
        except nats.errors.NoRespondersError:
            raise JetStreamOff from None
        except nats.errors.TimeoutError:
            # It does not answer a request that the user is not allowed to make either, but reports that.
            why = _last(self._problems) or f"the server does not answer within {_REQUEST:g} s"
            raise ConnectionLost(why) from None
        found: dict[str, Any] = msgspec.json.decode(answer.data)
        if (error := found.get("error")) is not None:
            if error.get("err_code") in _OFF:
                raise JetStreamOff
            raise ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", "no reason given"))
        return found

    async def flush(self) -> None:
        """Wait until the server has received what was published before."""
        try:
            await self._client.flush(timeout=int(_REQUEST))
        except (nats.errors.Error, OSError) as error:
            raise ConnectionLost(reason(error)) from error


_OFF: Final = (10039, 10076)  # JetStream not enabled for the account, or for the server


@asynccontextmanager
async def connected(options: Nats) -> AsyncIterator[Connection]:
    """Connect to a server, and close the connection at the end.

    Raises:
        ConnectionLost: No server could be reached, or it refuses the credentials.
    """
    closed = asyncio.Event()
    problems: list[Exception] = []
    client = Client()

    async def note(error: Exception) -> None:
        problems.append(error)

    async def end() -> None:
        closed.set()

    secrets: dict[str, Any] = {
        name: value
        for name, value in (
            ("user", options.user),
            ("password", options.password),
            ("token", options.token),
            ("nkeys_seed_str", options.nkey_seed),
            ("user_credentials", None if options.credentials is None else str(options.credentials)),
            ("tls", options.tls),
        )
        if value is not None
    }
    try:
        async with asyncio.timeout(_CONNECT):
            await client.connect(
                list(options.servers),
                name="hark",
                allow_reconnect=False,
                no_echo=True,  # a process does not wake itself
                connect_timeout=int(_CONNECT),
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                ping_interval=_PING,
                error_cb=note,
                disconnected_cb=end,
                closed_cb=end,
                **secrets,
            )
    except asyncio.CancelledError:  # the app closes meanwhile
        await _close(client)
        raise
    except Exception as error:  # a wrong seed is a ValueError, a missing .creds file an OSError
        await _close(client)
        raise ConnectionLost(_last([*problems, error])) from None
    try:
        problems.clear()
        yield Connection(client, closed, problems)
    finally:
        await _close(client)


def _last(problems: list[Exception]) -> str:
    """What the client has reported last. That it has no more servers to try says nothing."""
    known = [problem for problem in problems if not isinstance(problem, nats.errors.NoServersError)]
    if not known:
        return ""
    if isinstance(known[-1], TimeoutError):  # also that of the client
        return f"no answer within {_CONNECT:g} s"
    text = reason(known[-1])
    return "the server refuses these credentials" if "authorization" in text.lower() else text


async def _close(client: Client) -> None:
    with contextlib.suppress(Exception):  # it may be half open; nothing is left to do with it
        await asyncio.wait_for(client.close(), _CLOSE)
