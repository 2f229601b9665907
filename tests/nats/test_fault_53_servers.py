"""Fault 53: NATS is stopped, killed, wiped, paused, full or not there, in the middle of a load.

SQL delivers, nothing is lost or doubled, and the app reconnects by itself.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.js.errors import APIError

from hark import Handle, Hark, Nats
from hark.engine.nats import bridge, reader
from tests.nats.support import Collector, collected, until_collected, until_read, until_reader
from tests.support.inspect import until
from tests.support.nats_client import PlainClient, plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store


@asynccontextmanager
async def collecting(store: Store, server: NatsServer, **options: Any) -> AsyncIterator[tuple[Hark, Handle[Any]]]:
    app = Hark(store.url, **store.options, nats=Nats(server.url, **options))
    app.register(Collector)
    async with app, app.worker():
        yield app, await app.start(Collector)


async def put_all(client: PlainClient, instance: Handle[Any], numbers: range) -> None:
    for n in numbers:
        await client.put_surely(f"{instance.id}.s", str(n), f"{instance.id} {n}")


@pytest.mark.parametrize("end", [NatsServer.stop, NatsServer.kill], ids=["stopped", "killed"])
async def test_j10_fault_53_a_server_that_restarts_in_the_middle_of_a_load_loses_and_doubles_nothing(
    store: Store, own_server: NatsServer, end: Callable[[NatsServer], None], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hark")
    async with (
        collecting(store, own_server) as (app, instance),
        plain_client(own_server.url, "signals") as client,
    ):
        load = asyncio.create_task(put_all(client, instance, range(600)))
        for number in (100, 300):
            await until_collected(store, instance, number)
            end(own_server)
            await until(lambda: "cannot be used" in caplog.text, "the log to say so", 30)
            assert "EOF" not in caplog.text
            assert "Errno" not in caplog.text
            assert (await app.signal(instance, "other", 1)).status == "stored", "SQL delivers meanwhile"
            caplog.clear()
            own_server.start()
            await until(lambda: "Connected to NATS" in caplog.text, "the log to say so", 30)
        await load
        assert await until_collected(store, instance, 600) == list(range(600))
        await until_read(client)
        assert await collected(store, instance) == list(range(600))


async def test_j10_fault_53_the_first_signals_of_a_wiped_server_are_not_taken_for_duplicates(
    store: Store, own_server: NatsServer
) -> None:
    async with collecting(store, own_server) as (app, instance):
        expected = 0
        for _ in range(3):
            async with plain_client(own_server.url, "signals") as client:
                await until_reader(app)
                await put_all(client, instance, range(expected, expected + 20))  # sequences 1 to 20 each time
                expected += 20
                assert await until_collected(store, instance, expected) == list(range(expected))
                assert (await client.state()).first_seq == 1
            own_server.kill()
            own_server.wipe()
            own_server.start()
        assert await collected(store, instance) == list(range(expected))


async def test_j10_fault_53_a_bucket_that_is_deleted_and_made_again_is_read_again(
    sqlite_store: Store, own_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with collecting(sqlite_store, own_server) as (app, instance):
        for n in range(3):
            await until_reader(app)
            async with plain_client(own_server.url, "signals") as client:
                await client.put(f"{instance.id}.s", str(n))
                assert await until_collected(sqlite_store, instance, n + 1) == list(range(n + 1))
                await client.js.delete_stream("KV_signals")
        assert caplog.text.count("The NATS bucket 'signals' is a new one") == 2, (
            "once for each that was deleted and read"
        )


async def test_j10_fault_53_a_paused_server_delays_and_loses_nothing(
    store: Store, own_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(reader, "_SILENT", 0.6)
    async with (
        collecting(store, own_server) as (app, instance),
        plain_client(own_server.url, "signals") as client,
    ):
        load = asyncio.create_task(put_all(client, instance, range(300)))
        await until_collected(store, instance, 50)
        own_server.pause()
        await until(lambda: "silent" in caplog.text, "the log to say so", 30)
        began = time.monotonic()
        assert (await app.signal(instance, "other", 1)).status == "stored"
        assert time.monotonic() - began < 2, "a server that does not answer does not delay SQL"
        own_server.resume()
        await load
        assert await until_collected(store, instance, 300) == list(range(300))
        await until_read(client)
        assert await collected(store, instance) == list(range(300))


async def test_j10_fault_53_a_full_bucket_refuses_puts_and_keeps_what_is_not_read(
    store: Store, own_server: NatsServer
) -> None:
    """The bucket has room for 40 values. What was read is removed, so the load goes on."""
    async with collecting(store, own_server) as (app, instance):
        await until_reader(app)
    size = 1000
    async with plain_client(own_server.url, "signals") as client:
        config = (await client.js.stream_info("KV_signals")).config
        await client.js.update_stream(config.evolve(max_bytes=40 * size))
        put = await fill(client, instance, size)
        assert 20 < put < 50
        load = asyncio.create_task(put_more(client, instance, put, size))
        app = Hark(store.url, **store.options, nats=Nats(own_server.url, keep=0))
        app.register(Collector)
        async with app, app.worker():
            assert await until_collected(store, instance, 200) == list(range(200))
            await load
            await until_read(client)
        assert await collected(store, instance) == list(range(200))


async def fill(client: PlainClient, instance: Handle[Any], size: int) -> int:
    """Put values until the bucket refuses one. Returns how many it has taken."""
    for n in range(1000):
        try:
            await client.put(f"{instance.id}.s", f"{n:<{size}}")
        except APIError as error:
            if "maximum bytes exceeded" not in str(error.description):
                raise
            return n
    raise AssertionError("The bucket has no limit.")


async def put_more(client: PlainClient, instance: Handle[Any], start: int, size: int) -> None:
    for n in range(start, 200):
        await client.put_surely(f"{instance.id}.s", f"{n:<{size}}", str(n))


async def test_j10_fault_53_an_app_opens_and_works_without_a_server_and_connects_when_there_is_one(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = NatsServer(tmp_path)
    began = time.monotonic()
    async with collecting(store, server) as (app, instance):
        assert time.monotonic() - began < 5
        await until(lambda: "cannot be used" in caplog.text, "the log to say so", 30)
        assert "connection refused. Start nats-server there, or correct the URL" in caplog.text
        assert "Trying again" in caplog.text
        await app.signal(instance, "s", "over SQL")
        with server:
            async with plain_client(server.url, "signals") as client:
                seen = await client.watch()
                await until(lambda: seen, "the signal from before, which the app kept for NATS", 30)
                await client.put(f"{instance.id}.s", '"over NATS"')
                assert await until_collected(store, instance, 2) == ["over SQL", "over NATS"]


async def test_j10_a_server_without_jetstream_is_reported_and_read_once_it_has_it(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bridge, "_TRY_AGAIN", 0.1)
    server = NatsServer(tmp_path, jetstream=False)
    with server:
        async with collecting(sqlite_store, server) as (_, instance):
            await until(lambda: "JetStream is off" in caplog.text, "the log to say so", 30)
            server.stop()
            server.jetstream = True
            server.start()
            async with plain_client(server.url, "signals") as client:
                await client.put(f"{instance.id}.s", "1")
                assert await until_collected(sqlite_store, instance, 1) == [1]


async def test_j10_what_hark_sends_while_nats_is_down_is_bounded_and_counted(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hark.engine.nats.outgoing._MOST_ITEMS", 10)
    server = NatsServer(tmp_path)
    async with collecting(sqlite_store, server) as (app, instance):
        for n in range(25):
            await app.signal(instance, "s", n)
        counters = app._clerk.counters.nats
        assert counters is not None
        await until(lambda: counters.sent["dropped"] == 15, "the count")
        assert caplog.text.count("are not published there") == 1
        assert await collected(sqlite_store, instance) == list(range(25))
        with server:
            async with plain_client(server.url, "signals") as client:
                seen = await client.watch()
                await until(lambda: len(seen) >= 10, "the last ten", 30)
                assert [entry.value for entry in seen] == [str(n).encode() for n in range(15, 25)]
