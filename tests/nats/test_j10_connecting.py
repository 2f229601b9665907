"""J10: how a connection is made: TLS that is demanded, several servers, a DNS that does not answer."""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hark import Hark, Nats
from hark.engine.nats import connection
from hark.engine.nats.connection import ConnectionLost, connected
from tests.support.nats_server import NatsServer
from tests.support.postgres import free_port
from tests.support.stores import Store

FILES = Path(__file__).parent / "files"
INFO = {"server_id": "x", "version": "2.11.0", "headers": True, "max_payload": 1 << 20, "proto": 1}
TLS = f'tls {{ cert_file: "{FILES / "certificate.pem"}", key_file: "{FILES / "key.pem"}"'


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(FILES / "certificate.pem"))


@asynccontextmanager
async def fake_server(**info: Any) -> AsyncIterator[tuple[int, bytearray]]:
    """A server that only sends its INFO; yields its port, and what it was sent."""
    seen = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO | info).encode() + b"\r\n")
        while data := await reader.read(1000):
            seen.extend(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_j10_nothing_is_sent_to_a_server_without_tls_if_tls_is_demanded(scheme: str) -> None:
    async with fake_server(auth_required=True) as (port, seen):
        options = Nats(f"{scheme}://hark:hunter2@127.0.0.1:{port}", tls=trusting() if scheme == "nats" else None)
        with pytest.raises(ConnectionLost) as caught:
            async with connected(options):
                pass
    way = "Use nats://" if scheme == "tls" else "Leave out tls="
    assert str(caught.value) == (
        f"the server at {scheme}://127.0.0.1:{port} does not offer TLS. {way} or enable TLS on the server"
    )
    assert seen == b"", "no CONNECT with a password in clear text"


async def test_j10_tls_is_used_with_a_server_that_also_takes_clients_without_it(tmp_path: Path) -> None:
    with NatsServer(tmp_path, config=f"{TLS} }}\nallow_non_tls: true\n") as server:
        async with connected(Nats(server.url)) as plain:
            assert transport(plain).get_extra_info("ssl_object") is None
        async with connected(Nats(server.url.replace("nats://", "tls://"), tls=trusting())) as secured:
            assert transport(secured).get_extra_info("ssl_object") is not None


def transport(found: connection.Connection) -> Any:
    return found._client._transport._io_writer  # type: ignore[union-attr]


async def test_j10_a_server_that_does_not_answer_leaves_time_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_CONNECT", 0.5)
    monkeypatch.setattr(connection, "_CONNECT_EACH", 0.5)
    monkeypatch.setattr("random.sample", lambda servers, _: list(servers))  # the paused one first
    (tmp_path / "paused").mkdir()
    with NatsServer(tmp_path / "paused") as paused, NatsServer(tmp_path) as server:
        paused.pause()
        async with connected(Nats(f"{paused.url},{server.url}")) as found:
            assert found.server == server.url
        server.kill()
        with pytest.raises(ConnectionLost) as caught:
            async with connected(Nats(f"{paused.url},{server.url}")):
                pass
    why = str(caught.value)
    assert f"{paused.url}: no answer within 0.5 s" in why
    assert f"{server.url}: connection refused" in why


async def test_j10_an_app_closes_while_the_dns_does_not_answer(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up, asked = socket.getaddrinfo, asyncio.Event()
    loop = asyncio.get_running_loop()

    def no_answer(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "nats.example":
            return look_up(host, *arguments, **options)
        loop.call_soon_threadsafe(asked.set)
        time.sleep(30)  # as a resolver does, in its own thread
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", no_answer)
    app = Hark(sqlite_store.url, nats="nats://nats.example")
    async with app:
        await asyncio.wait_for(asked.wait(), 30)
        began = time.monotonic()
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_j10_a_refused_connection_is_the_reason_also_if_the_host_has_several_addresses(host: str) -> None:
    with pytest.raises(ConnectionLost, match=r"^connection refused\. Start nats-server there, or correct the URL$"):
        async with connected(Nats(f"nats://{host}:{free_port()}")):
            pass


async def test_j10_a_host_name_that_does_not_exist_is_named_as_the_reason() -> None:
    with pytest.raises(ConnectionLost, match="the host name cannot be resolved"):
        async with connected(Nats("nats://host.invalid")):
            pass


async def test_j10_a_program_that_is_not_a_nats_server_is_named_as_the_reason() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectionLost, match="not a NATS server"):
        async with connected(Nats(f"nats://127.0.0.1:{port}")):
            pass
    server.close()
