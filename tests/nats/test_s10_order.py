"""S10, J10: puts of one client to one run keep their order, also when the process that reads them changes."""

import signal
from pathlib import Path

import pytest

from hark import Hark
from tests.nats.processes import Workers
from tests.nats.support import Collector, collected, until_collected, until_read
from tests.support.nats_client import PlainClient, plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

pytestmark = pytest.mark.slow


async def burst(client: PlainClient, key: str, numbers: range) -> None:
    """Put values as fast as the client can, without waiting for answers."""
    for n in numbers:
        await client.client.publish(f"$KV.signals.{key}", str(n).encode())
    await client.client.flush()


async def test_j10_s10_a_reader_that_is_killed_in_the_middle_of_a_burst_is_replaced_in_order(
    store: Store, own_server: NatsServer, tmp_path: Path
) -> None:
    app = Hark(store.url, **store.options)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        with Workers(store, own_server, tmp_path) as workers:
            reading = workers.start()
            await reading.until_reads()
            async with plain_client(own_server.url, "signals") as client:
                for killed in range(1, 4):
                    standby = workers.start()
                    await standby.until_logged("Connected to NATS")
                    await burst(client, f"{instance.id}.s", range(1000 * (killed - 1), 1000 * killed))
                    await until_collected(store, instance, 1000 * (killed - 1) + 100)
                    reading.process.kill()
                    await standby.until_reads()
                    await until_collected(store, instance, 1000 * killed)
                    reading = standby
                assert await collected(store, instance) == list(range(3000))
                await until_read(client)
                assert await collected(store, instance) == list(range(3000))


async def test_j10_s10_a_reader_that_is_paused_and_resumes_later_changes_neither_order_nor_number(
    pg_store: Store, own_server: NatsServer, tmp_path: Path
) -> None:
    app = Hark(pg_store.url, **pg_store.options)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        with Workers(pg_store, own_server, tmp_path) as workers:
            paused = workers.start()
            await paused.until_reads()
            standby = workers.start()
            await standby.until_logged("Connected to NATS")
            async with plain_client(own_server.url, "signals") as client:
                await burst(client, f"{instance.id}.s", range(2000))
                await until_collected(pg_store, instance, 100)
                paused.process.send_signal(signal.SIGSTOP)
                await standby.until_reads()
                await burst(client, f"{instance.id}.s", range(2000, 2500))
                paused.process.send_signal(signal.SIGCONT)
                await burst(client, f"{instance.id}.s", range(2500, 3000))
                assert await until_collected(pg_store, instance, 3000) == list(range(3000))
                await until_read(client)
                await paused.until_logged("no longer reads")
                assert await collected(pg_store, instance) == list(range(3000))


async def test_j10_a_worker_that_stops_hands_the_bucket_to_another(
    sqlite_store: Store, own_server: NatsServer, tmp_path: Path
) -> None:
    app = Hark(sqlite_store.url, **sqlite_store.options)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        with Workers(sqlite_store, own_server, tmp_path) as workers:
            first = workers.start()
            await first.until_reads()
            second = workers.start()
            await second.until_logged("Connected to NATS")
            first.process.send_signal(signal.SIGTERM)
            assert first.process.wait(30) == 0
            await second.until_reads()
            async with plain_client(own_server.url, "signals") as client:
                await client.put(f"{instance.id}.s", "1")
                assert await until_collected(sqlite_store, instance, 1) == [1]
                consumers = await client.js.consumers_info("KV_signals")
                assert len(consumers) == 1, "the consumer of the first process was deleted"
