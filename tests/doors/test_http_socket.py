"""The socket is created as TCP: otherwise asyncio does not set TCP_NODELAY, and every response waits 40 ms."""

import socket

from hark.doors.http.server import listen


def test_small_responses_are_sent_immediately() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
