"""The socket of the server: TCP, so that responses are sent immediately; idle connections stay open long enough."""

import socket

from hark.doors.http.listening import listen
from hark.doors.http.server import limits


def test_small_responses_are_sent_immediately() -> None:
    with listen("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_an_idle_connection_outlives_the_idle_timeout_of_common_proxies() -> None:
    """Otherwise the server closes a connection on which a proxy is just sending a request, which fails."""
    assert limits(None, None).idle_time > 60
