"""`serve`: the HTTP door and a worker in one process (D1), until SIGTERM or Ctrl-C.

A loopback address needs no credential (see auth.py). Any other bind is refused while the store has no token:
whoever can reach it could start, answer and cancel everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from hark.app import Hark
from hark.app.door_access import DoorAccess
from hark.doors.http.asgi import AsgiApp
from hark.doors.http.auth import is_loopback
from hark.model.errors import InvalidInput

_GRACE = 10


async def serve(
    app: Hark,
    *,
    host: str = "127.0.0.1",
    port: int = 4097,
    worker: bool = True,
    queues: dict[str, int] | None = None,
    grace: float = 10.0,
    require_token: bool = False,
    say: Callable[[str], None] = lambda line: print(line, flush=True),
) -> None:
    """Serve until told to stop; `port=0` takes a free one. `say` is told the address once requests are taken."""
    listener = listen(host, port)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        if not app.is_open:
            await stack.enter_async_context(app)
        near = all(is_loopback(address) for address in _addresses(host))
        if not near:
            await _refuse_strangers(app, host)
        access = DoorAccess(app)
        access.origin = access.origin or address(listener)
        if worker:
            await stack.enter_async_context(app.worker(queues, grace=grace))
        door = AsgiApp(app, require_token=require_token or not near)
        server = _Server(config(door))

        def stop() -> None:
            server.should_exit = True
            door.feed.close()  # else who follows an instance would be waited for

        with _told(stop):
            serving = asyncio.ensure_future(server.serve([listener]))
            while not server.started and not serving.done():
                await asyncio.sleep(0.005)
            if server.started:
                say(f"serving on {address(listener)}; SIGTERM or Ctrl-C stops")
            try:
                await asyncio.shield(serving)
            except asyncio.CancelledError:
                stop()
                await serving
                raise


def run(app: Hark, **options: Any) -> None:
    """`serve` for plain code: a process of its own, on the fastest loop there is."""
    try:
        import uvloop

        fastest: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:  # not made for this platform
        fastest = None
    with asyncio.Runner(loop_factory=fastest) as runner:
        runner.run(serve(app, **options))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours: uvicorn raises a signal again when it is done, which would cut the worker's stop short."""
        yield


def config(door: Any) -> uvicorn.Config:
    """How an ASGI application is served here."""
    # No proxy headers: who comes through a proxy says so, and needs a token.
    logging.getLogger("uvicorn.access").addFilter(_without_query)
    return uvicorn.Config(
        door, loop="none", lifespan="off", access_log=False, log_config=None, proxy_headers=False,
        server_header=False, date_header=True, ws="none", timeout_graceful_shutdown=_GRACE,
    )  # fmt: skip


def _without_query(record: logging.LogRecord) -> bool:
    """There is no access log; who turns one on does not get the tokens of links with it."""
    if isinstance(record.args, tuple):
        record.args = tuple(arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args)
    return True


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; refused with a reason when the address cannot be had."""
    if type(port) is not int or not 0 <= port < 65536:
        raise InvalidInput(f"port={port!r}: give a number from 0 (any free one) to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said in so many words: asyncio sends small answers at once (TCP_NODELAY) only on a socket that says it is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InvalidInput(f"{host}:{port} cannot be listened on: {error}. Choose another --host or --port.") from error
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _addresses(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError as error:
        raise InvalidInput(f"{host!r} is no address here: {error}. Give --host an address of this machine.") from error


async def _refuse_strangers(app: Hark, host: str) -> None:
    if not await DoorAccess(app).has_tokens():
        raise InvalidInput(
            f"{host} can be reached from other machines, and the store has no token to tell friend from stranger. "
            "Make one (`hark token create --scope read`), or serve on 127.0.0.1."
        )


@contextlib.contextmanager
def _told(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C stop the server; where signals cannot be had (not the main thread), its owner cancels us."""
    loop = asyncio.get_running_loop()
    caught: list[Any] = []
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
            caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
