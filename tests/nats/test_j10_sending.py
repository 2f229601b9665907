"""J10: what Hark sends survives the end of a connection, and what cannot be sent is counted."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest

from hark import Dag, Hark, Nats
from hark.engine.nats import bridge
from hark.engine.nats.counters import NatsCounters
from hark.engine.nats.senders import SignalSender
from tests.nats.support import Collector, until_reader
from tests.support.inspect import until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store


def make(store: Store, server: NatsServer, **options: Any) -> tuple[Hark, NatsCounters]:
    app = Hark(store.url, nats=server.url, **options)
    app.register(Collector)
    assert app._clerk.counters.nats is not None
    return app, app._clerk.counters.nats


async def test_j10_signals_in_flight_when_the_server_dies_are_put_again_in_order(
    sqlite_store: Store, own_server: NatsServer
) -> None:
    app, counters = make(sqlite_store, own_server)
    async with app, plain_client(own_server.url, "signals") as client:
        instance = await app.start(Collector)
        await until_reader(app)
        own_server.pause()
        for n in range(300):
            await app.signal(instance, "s", n)
        own_server.kill()
        own_server.start()
        await until(lambda: counters.sent["signal"] == 300, "all signals on NATS", 60)
        seen = await client.watch()
        await until(lambda: len(seen) >= 300, "the entries", 30)
        assert [int(entry.value or b"") for entry in seen] == list(range(300))
        assert counters.sent["dropped"] == 0


async def test_j10_a_signal_whose_answer_was_lost_is_put_again_and_stored_once(
    sqlite_store: Store, own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, counters = make(sqlite_store, own_server)
    receive = SignalSender._receive_answer
    lost: list[Any] = []

    async def lose(self: SignalSender, answer: Any) -> None:
        if counters.connects == 1:
            lost.append(answer)
        else:
            await receive(self, answer)

    monkeypatch.setattr(SignalSender, "_receive_answer", lose)
    async with app, plain_client(own_server.url, "signals") as client:
        instance = await app.start(Collector)
        await until_reader(app)
        for n in range(10):
            await app.signal(instance, "s", n)
        await until(lambda: len(lost) == 10, "the answers", 30)
        own_server.kill()
        own_server.start()
        await until(lambda: counters.sent["signal"] == 10, "the answers", 60)
        assert (await client.state()).messages == 10


async def test_j10_a_signal_that_is_too_large_with_its_headers_does_not_cut_the_connection(
    sqlite_store: Store, own_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    app, counters = make(sqlite_store, own_server, max_payload=4 << 20)
    async with app, plain_client(own_server.url, "signals") as client:
        instance = await app.start(Collector)
        await until_reader(app)
        limit = client.client.max_payload
        await app.signal(instance, "s", "x" * (limit - 5))
        await app.signal(instance, "s", "x" * (limit - 200))
        await until(lambda: counters.sent["signal"] == 1, "the second", 30)
        assert (counters.sent["dropped"], counters.connects) == (1, 1)
        assert "is larger than the NATS server accepts" in caplog.text


async def test_j10_streams_and_wake_ups_need_no_jetstream(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hark")
    monkeypatch.setattr(bridge, "_TRY_AGAIN", 0.1)
    server = NatsServer(tmp_path, jetstream=False)
    with server:
        app = Hark(sqlite_store.url, nats=Nats(server.url, wake_ups=True))
        app.register(Collector)
        dag = Dag("streaming")
        dag.task("talk", "talk")

        @app.handler("talk")
        async def talk(task: Any) -> None:
            for n in range(20):
                await task.put_stream(n)

        app.register(dag)
        async with listening(server, "stream.>", "hark.signals.wake") as seen, app, app.worker():
            instance = await app.start(Collector)
            await app.signal(instance, "s", 1)
            await (await app.start("streaming")).result(timeout=30)
            await until(lambda: len([one for one in seen if one.startswith("stream.")]) == 20, "the chunks", 30)
            await until(lambda: "hark.signals.wake" in seen, "a wake-up", 30)
            assert "Connected to NATS" not in caplog.text
            server.stop()
            server.jetstream = True
            server.start()
            async with plain_client(server.url, "signals") as client:
                entries = await client.watch()
                await until(lambda: len(entries) == 1, "the signal, which has waited for the bucket", 30)


@asynccontextmanager
async def listening(server: NatsServer, *subjects: str) -> AsyncIterator[list[str]]:
    """The subjects of the messages that a program sees; the list grows."""
    seen: list[str] = []

    async def note(message: Any) -> None:
        seen.append(message.subject)

    async def say_nothing(error: Exception) -> None:
        """The server goes away in between."""

    client = await nats.connect(server.url, error_cb=say_nothing)
    for subject in subjects:
        await client.subscribe(subject, cb=note)
    await client.flush()
    try:
        yield seen
    finally:
        await client.close()
