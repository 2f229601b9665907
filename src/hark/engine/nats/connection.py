"""Connection: one connection to a NATS server, from its beginning to its end.

It is never repaired: after any failure it is closed, and bridge.py makes another one. So no part of this package sees a
subscription or a request that belongs to a server from before a restart. The NATS client does nothing here but speak
the protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from hark.engine.nats.failures import CLOSED, Denial, explain, read_denial
from hark.model.nats import Nats

_CONNECT: Final = 5.0  # seconds
_CONNECT_EACH: Final = 2.0  # seconds at least for each of several servers: one that does not answer leaves time for all
_CLOSE: Final = 1.0  # seconds: a server that does not read keeps no process from stopping
_REQUEST: Final = 5.0  # seconds
_PING: Final = 5  # seconds between two pings; after two without an answer the connection is closed


class ConnectionLost(Exception):
    """The connection has failed, or could not be made; the text says why, without credentials."""


class ApiError(Exception):
    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code


class NotAllowed(ApiError):
    """The user may not make this request; the text says what to do."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(403, 0, str(denial))
        self.denial = denial


class JetStreamOff(Exception):
    """The server, or the account, has no JetStream."""


def jetstream_off() -> str:
    """The text of the error: JetStream is off, and how to turn it on."""
    return "JetStream is off; start the server with `-js -sd DIRECTORY`, or enable it for the account"


class _Client(Client):
    """The client of one server. It sends nothing to a server without TLS if it must not."""

    def __init__(self, server: str, options: Nats) -> None:
        super().__init__()
        self._server = server
        self._has_context = options.tls is not None
        self._needs_tls = server.startswith("tls://") or (self._has_context and server.startswith("nats://"))

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # The client begins TLS only if the server demands it. A server that also takes clients without TLS offers it.
        if self._needs_tls and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """The first message to the server, with the credentials."""
        if self._needs_tls and not self._server_info.get("tls_required"):
            without = "Leave out tls=" if self._server.startswith("nats://") else "Use nats://"
            raise ConnectionLost(
                f"the server at {self._server} does not offer TLS. {without} or enable TLS on the server"
            )
        return super()._connect_command()

    def own_case(self, text: str) -> str:
        """An error of the server as it was sent: the client writes it in lower case, also the subject in it."""
        line = bytes(self._ps.buf).partition(b"\r\n")[0].decode("utf-8", "replace")  # the parser has not removed it yet
        return line if text.removeprefix("nats: ") in line.lower() else text


class Connection:
    """An open connection. Used on the loop that made it."""

    def __init__(self, options: Nats, server: str, on_denied: Callable[[Denial], None]) -> None:
        """`on_denied` is called with what the user may not do, except for requests: those raise `NotAllowed`."""
        self.server = server
        self._options = options
        self._client = _Client(server, options)
        self._closed = asyncio.Event()
        self._on_denied = on_denied
        self._problem: Exception | None = None  # what the client has reported last
        self._asked: set[str] = set()  # subjects of requests, in lower case
        self._refused: dict[str, Denial] = {}  # those of them that the user may not make
        self.denial: Denial | None = None
        """The reasons why requests are not answered, if the user may not send them, or not receive the answers."""

    async def open(self, limit: float) -> None:
        """Connect, within a number of seconds.

        Raises:
            ConnectionLost: It did not succeed.
        """
        options = self._options
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
            async with asyncio.timeout(limit):
                await self._client.connect(
                    [self.server],
                    name="hark",
                    allow_reconnect=False,
                    no_echo=True,  # a process does not wake itself
                    connect_timeout=math.ceil(limit),
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=_PING,
                    error_cb=self._note,
                    disconnected_cb=self._end,
                    closed_cb=self._end,
                    **secrets,
                )
        except asyncio.CancelledError:  # the app closes meanwhile
            await self.close()
            raise
        except Exception as error:  # the client raises errors of many types for a malformed .creds file
            await self.close()
            known = self._problem if isinstance(error, nats.errors.NoServersError) and self._problem else error
            why = str(known) if isinstance(known, ConnectionLost) else explain(known, options, limit)
            raise ConnectionLost(why) from None
        self._problem = None

    async def close(self) -> None:
        """End the connection. It may be half open; nothing is left to do with it."""
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._client.close(), _CLOSE)

    async def _note(self, error: Exception) -> None:
        denial = read_denial(self._client.own_case(str(error)))
        if denial is None:
            self._problem = error
            return
        if denial.subject.lower().startswith(("$js.api.", "_inbox.")):
            self.denial = denial
        if denial.subject.lower() in self._asked:
            self._refused[denial.subject.lower()] = denial
        else:
            self._on_denied(denial)

    async def _end(self) -> None:
        self._closed.set()

    def _lost(self, error: BaseException) -> ConnectionLost:
        return ConnectionLost(explain(error, self._options, _REQUEST))

    @property
    def is_closed(self) -> bool:
        """Return True if the connection has ended, by the server or by the network."""
        return self._closed.is_set()

    @property
    def server_version(self) -> str:
        version = self._client.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    @property
    def max_payload(self) -> int:
        """The number of bytes of data that the server accepts in a message."""
        return self._client.max_payload

    async def wait_closed(self) -> None:
        """Wait for the end of the connection.

        Raises:
            ConnectionLost: It has ended; the text says why, as far as it is known.
        """
        await self._closed.wait()
        known = self._problem or self._client.last_error
        raise ConnectionLost(CLOSED) if known is None else self._lost(known)

    async def publish(
        self, subject: str, data: bytes = b"", *, reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        """Send a message. It is not known whether it arrives.

        Raises:
            nats.errors.MaxPayloadError: It is larger than the server accepts, which would close the connection.
            ConnectionLost: The connection has ended.
        """
        if headers and len(data) + _header_size(headers) > self.max_payload:
            raise nats.errors.MaxPayloadError
        try:
            await self._client.publish(subject, data, reply=reply, headers=headers)
        except nats.errors.MaxPayloadError:
            raise
        except (nats.errors.Error, OSError) as error:
            raise self._lost(error) from error

    async def subscribe(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Subscription:
        """Call `receive` with each message on a subject."""
        try:
            return await self._client.subscribe(subject, cb=receive)
        except (nats.errors.Error, OSError) as error:
            raise self._lost(error) from error

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription. Nothing happens if the connection has ended before."""
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
            NotAllowed: The user may not send this request.
            ConnectionLost: The connection has ended.
        """
        self._asked.add(subject.lower())
        try:
            return await self._client.request(subject, data, timeout=timeout)
        except nats.errors.NoRespondersError:
            raise
        except nats.errors.TimeoutError:
            raise self._unanswered(subject) from None
        except (nats.errors.Error, OSError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._closed.is_set():
                raise
            raise self._lost(error) from error

    async def request_until(self, subject: str, accept: Callable[[Msg], bool], *, timeout: float) -> Msg:
        """Send a request on a subject on which other programs may answer too. Return the first answer that is
        accepted."""
        self._asked.add(subject.lower())
        inbox, answers = self.new_inbox(), asyncio.Queue[Msg]()
        subscription = await self.subscribe(inbox, answers.put)
        try:
            await self.publish(subject, reply=inbox)
            async with asyncio.timeout(timeout):
                while True:
                    answer = await answers.get()
                    if (answer.headers or {}).get("Status") == _NO_RESPONDERS:
                        raise nats.errors.NoRespondersError
                    if accept(answer):
                        return answer
        except TimeoutError:
            raise self._unanswered(subject) from None
        finally:
            await self.unsubscribe(subscription)

    def _unanswered(self, subject: str) -> Exception:
        """Return the error for a request that the server did not answer: it reports a missing permission separately."""
        denial = self._refused.pop(subject.lower(), None)
        return nats.errors.TimeoutError() if denial is None else NotAllowed(denial)

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
            why = f"the server does not answer within {_REQUEST:g} s" if self.denial is None else str(self.denial)
            raise ConnectionLost(why) from None
        found: dict[str, Any] = msgspec.json.decode(answer.data)
        if (error := found.get("error")) is not None:
            if error.get("err_code") in _JETSTREAM_OFF_CODES:
                raise JetStreamOff
            raise ApiError(error.get("code", 0), error.get("err_code", 0), error.get("description", "no reason given"))
        return found

    async def flush(self) -> None:
        """Wait until the server has received what was published before."""
        try:
            await self._client.flush(timeout=int(_REQUEST))
        except (nats.errors.Error, OSError) as error:
            raise self._lost(error) from error


_NO_RESPONDERS: Final = "503"
_JETSTREAM_OFF_CODES: Final = (10039, 10076)  # not enabled for the account, or for the server


@asynccontextmanager
async def connected(options: Nats, on_denied: Callable[[Denial], None] | None = None) -> AsyncIterator[Connection]:
    """Connect to a server, and close the connection at the end.

    The servers are tried one after the other, in any order, so that processes are spread over a cluster. The client is
    given one at a time: it would try no other one after a server that accepts the connection and then does not answer.

    Raises:
        ConnectionLost: No server could be reached, or it refuses the credentials.
    """
    connection = await _connect(options, on_denied or _ignore)
    try:
        yield connection
    finally:
        await connection.close()


async def _connect(options: Nats, on_denied: Callable[[Denial], None]) -> Connection:
    number = len(options.servers)
    limit = _CONNECT if number == 1 else max(_CONNECT_EACH, _CONNECT / number)
    failed: dict[str, str] = {}
    for server in random.sample(options.servers, number):
        connection = Connection(options, server, on_denied)
        try:
            await connection.open(limit)
        except ConnectionLost as lost:
            failed[server] = str(lost)
        else:
            return connection
    if len(set(failed.values())) == 1:
        raise ConnectionLost(failed[server])
    raise ConnectionLost("; ".join(f"{server}: {failed[server]}" for server in sorted(failed)))


def _ignore(denial: Denial) -> None:
    """Ignore reports about anything but requests: they are not important for a look at the server."""


def _header_size(headers: Mapping[str, str]) -> int:
    """The bytes of headers in a message: the server counts them too."""
    return len("NATS/1.0\r\n\r\n") + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
