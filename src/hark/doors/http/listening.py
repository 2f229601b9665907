"""Listening sockets, opened in this process or inherited from a supervisor, and their addresses.

Needs no package of the extra `server`: the supervisor (cli/supervisor.py) opens sockets and serves nothing.
"""

from __future__ import annotations

import socket
from typing import Final

from hark.model.errors import InvalidInput
from hark.model.reasons import reason

WAITING_TO_CONNECT: Final = 2048
"""How many connections may wait to be accepted."""


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; raise InvalidInput when the address cannot be used."""
    if type(port) is not int or not 0 <= port < 65536:
        raise InvalidInput(f"port={port!r}: give a number from 0 (any free port) to 65535.")
    # IPPROTO_TCP is explicit: asyncio sets TCP_NODELAY, so that small responses go out immediately, only if it is set.
    listener = socket.socket(_family(host), socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(WAITING_TO_CONNECT)
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"Cannot listen on {host}:{port}: {reason(error)}. Choose another --host or --port."
        ) from error
    return listener


def inherited(descriptor: int, host: str) -> socket.socket:
    """The listening socket that another process has opened with `listen` and passed on. Commands do not inherit it."""
    # Not detected from the descriptor: not every platform tells the protocol, and then TCP_NODELAY would be missing.
    listener = socket.socket(_family(host), socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=descriptor)
    listener.set_inheritable(False)
    return listener


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reachable_address(listener: socket.socket) -> str:
    """The address for links: that of the listener, or the name of this machine if it listens on all its addresses."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        return f"http://{socket.gethostname()}:{port}"
    return address(listener)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
