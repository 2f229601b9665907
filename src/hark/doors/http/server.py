"""`serve`: the HTTP door and a worker in one process (D1), until SIGTERM or Ctrl-C.

Requests from this machine need no credential (see auth.py). The server refuses to listen on any other address while the
store has no token, and requires a token there.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from hark.app import Hark
from hark.app.door_access import DoorAccess
from hark.app.opening import open_when_reachable, start_unless_stopped
from hark.doors.http.access_log import hide_link_tokens
from hark.doors.http.api import METRICS_ROUTES, ROUTES
from hark.doors.http.asgi import AsgiApp
from hark.doors.http.connections import ConnectionLimits, Connections, LimitedProtocol, default_connections
from hark.doors.http.listening import WAITING_TO_CONNECT, address, listen, reachable_address
from hark.model.addresses import is_loopback
from hark.model.errors import InvalidInput, StoreUnavailable
from hark.model.reasons import reason

_log = logging.getLogger("hark.http")
_SHUTDOWN_TIMEOUT = 10  # seconds that open connections get
# An event loop accepts this many connections before it looks at the first of them, and so before the limits apply.
_ACCEPTED_AT_ONCE = 16


async def serve(
    app: Hark,
    *,
    host: str,
    port: int,
    worker: bool,
    queues: dict[str, int] | None,
    grace: float,
    require_token: bool,
    say: Callable[[str], None] | None,
    max_connections: int | None = None,
    max_connections_per_client: int | None = None,
    metrics_only: bool = False,
    inherited: socket.socket | None = None,
    before_work: Callable[[], None] | None = None,
) -> None:
    """Carry out `Hark.serve`, which describes the parameters.

    With `metrics_only`, the server has the routes /metrics and /health and no others (`hark worker --metrics-port`).
    With `inherited`, this process is one of several that a supervisor has started (cli/supervisor.py): it accepts on
    that socket, which was opened for `host`, and the second of two stop signals is ignored. `before_work` is called
    when the store is open and all options are checked, before the worker starts and requests are accepted.
    """
    say = say or functools.partial(print, flush=True)
    connections = Connections(limits(max_connections, max_connections_per_client))
    listener = listen(host, port) if inherited is None else inherited
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        if not app.is_open:
            await open_when_reachable(app)
            stack.push_async_exit(app)
        only_loopback = all(is_loopback(address) for address in _addresses(host))
        if not only_loopback:
            await _refuse_without_tokens(app, host)
        if not metrics_only:
            try:
                await DoorAccess(app).record_origin(reachable_address(listener))
            except StoreUnavailable as error:
                _log.warning("Links of other processes do not get the address of this server: %s", error)
        steps = app.worker(queues, grace=grace) if worker else None
        application = AsgiApp(
            app,
            require_token=require_token or not only_loopback,
            routes=METRICS_ROUTES if metrics_only else ROUTES,
            origin_is_known=True,
        )
        server = LimitedServer(config(application, connections), connections)
        stopped = asyncio.Event()

        def stop() -> None:
            stopped.set()
            server.should_exit = True
            application.feed.close()  # otherwise the server waits for open streams

        def stop_on_signal() -> None:
            stopping = server.should_exit
            stop()
            if not stopping:
                say(f"stopping: {'running steps finish or are handed back' if worker else 'open requests finish'}")

        with _call_on_signals(stop_on_signal, keep=inherited is not None):
            if before_work is not None:
                before_work()
            if steps is not None:
                if not await start_unless_stopped(steps, stopped):
                    return
                stack.push_async_exit(steps)
            place = address(listener)  # a server that is stopped at once closes it
            serving = asyncio.ensure_future(server.serve([listener]))
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            if server.started:
                serving_what = "working; metrics" if metrics_only else "serving"
                say(f"{serving_what} on {place}; press Ctrl-C or send SIGTERM to stop")
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                stop()
                await serving
                raise


def limits(connections: int | None, per_client: int | None) -> ConnectionLimits:
    """The limits of a server; a client address may have half of the connections by default."""
    for name, number in (("max_connections", connections), ("max_connections_per_client", per_client)):
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidInput(f"{name}={number!r}: give a whole number above zero, or leave it out.")
    total = default_connections() if connections is None else connections
    return ConnectionLimits(total, max(1, total // 2) if per_client is None else per_client)


class LimitedServer(uvicorn.Server):
    """uvicorn with the limits of connections."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # uvicorn has just set the backlog to _ACCEPTED_AT_ONCE. Set it back: other processes may share the socket.
            listener.listen(WAITING_TO_CONNECT)

    async def on_tick(self, counter: int) -> bool:
        """Count a tick of about a second. uvicorn calls this ten times a second."""
        if counter % 10 == 0:
            self._connections.tick()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`: uvicorn would raise them again at its end, and so interrupt the worker's stop."""
        yield


def config(application: Any, connections: Connections) -> uvicorn.Config:
    protocol: Any = functools.partial(LimitedProtocol, connections)
    # proxy_headers=False: a request through a proxy keeps the headers that reveal it, and so needs a token (auth.py).
    hide_link_tokens()  # in case the access log is turned on
    return uvicorn.Config(
        application, http=protocol, loop="none", lifespan="off", access_log=False, log_config=None, proxy_headers=False,
        server_header=False, date_header=True, ws="none", timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
        backlog=_ACCEPTED_AT_ONCE,
    )  # fmt: skip


def _addresses(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError as error:
        raise InvalidInput(
            f"{host!r} is not an address of this machine: {reason(error)}. Choose another --host."
        ) from error


async def _refuse_without_tokens(app: Hark, host: str) -> None:
    if not await DoorAccess(app).has_tokens():
        raise InvalidInput(
            f"Other machines can reach {host}, and the store has no token to authenticate them. "
            "Make one with `hark token create --scope read`, or serve on 127.0.0.1."
        )


@contextlib.contextmanager
def _call_on_signals(stop: Callable[[], None], *, keep: bool) -> Iterator[None]:
    """Call `stop` on SIGTERM and Ctrl-C. Outside the main thread there are no signals: cancel `serve` instead.

    With `keep`, until the event loop is closed: a process with a supervisor gets SIGTERM from it and often a second one
    from the service manager, which must not end it while its worker hands back steps.
    """
    loop = asyncio.get_running_loop()
    handled: list[Any] = []
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
            handled.append(number)
    try:
        yield
    finally:
        for number in () if keep else handled:
            loop.remove_signal_handler(number)
