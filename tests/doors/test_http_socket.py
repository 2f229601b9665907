"""The server's socket says that it is TCP: asyncio sets TCP_NODELAY on no other, and every answer waits 40 ms."""

import socket

from hark.doors.http.server import listen


def test_small_answers_are_sent_at_once() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
