"""J10: the bucket keeps every signal until it is read, and does not grow for ever."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js import api
from nats.js.errors import APIError

from hark import Hark, Nats
from hark.engine.nats import bridge, cleaning
from hark.engine.nats.bucket import SignalBucket
from hark.engine.nats.connection import connected
from hark.engine.nats.election import Term, Unacknowledged, take_over
from tests.nats.support import Collector, until_collected, until_read, until_reader
from tests.support.inspect import until
from tests.support.nats_client import PlainClient, plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store


@asynccontextmanager
async def jetstream(server: NatsServer) -> AsyncIterator[Any]:
    client = await nats.connect(server.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@pytest.mark.parametrize(
    "settings", [{}, {"history": 64}, {"ttl": 60.0}, {"max_bytes": 1 << 20}], ids=["default", "history", "ttl", "size"]
)
async def test_j10_an_ordinary_bucket_that_exists_is_changed_so_that_it_keeps_every_signal(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, settings: dict[str, Any]
) -> None:
    async with jetstream(nats_server) as js:
        await js.create_key_value(bucket=bucket, **settings)
    app = Hark(sqlite_store.url, nats=Nats(nats_server.url, bucket=bucket))
    app.register(Collector)
    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await until_reader(app)
        for n in range(100):
            await client.client.publish(f"$KV.{bucket}.{instance.id}.s", str(n).encode())
        assert await until_collected(sqlite_store, instance, 100) == list(range(100))
        config = (await client.js.stream_info(client.stream)).config
        assert (config.max_msgs_per_subject, config.discard, config.max_age) == (2**31 - 1, "new", 0)
        assert config.max_bytes == settings.get("max_bytes", -1), "what is harmless stays as it is"


async def test_j10_a_bucket_that_cannot_be_changed_is_reported_with_what_to_do(
    sqlite_store: Store,
    nats_server: NatsServer,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(bridge, "_TRY_AGAIN", 0.1)
    async with jetstream(nats_server) as js:
        await js.add_stream(name=f"KV_{bucket}", subjects=[f"$KV.{bucket}.>"], retention=api.RetentionPolicy.WORK_QUEUE)
        app = Hark(sqlite_store.url, nats=Nats(nats_server.url, bucket=bucket))
        async with app:
            await until(lambda: "has the retention 'workqueue'" in caplog.text, "the log to say so", 30)
            assert "Delete it" in caplog.text
            await js.delete_stream(f"KV_{bucket}")
            await until_reader(app)


async def test_j10_what_was_read_is_removed_and_what_was_not_stays(nats_server: NatsServer, bucket: str) -> None:
    async with connected(Nats(nats_server.url, bucket=bucket)) as connection:
        mine = SignalBucket(connection, bucket)
        await mine.ensure()
        async with plain_client(nats_server.url, bucket) as client:
            for n in range(10):
                await client.put("run.s", str(n))
            term = await take_over(mine)
            assert term is not None
            await cleaning.Cleaner(term, 0).clean()
            assert (await client.state()).messages == 10, "nothing was acknowledged"
            fetching = await client.js.pull_subscribe_bind(term.consumer, client.stream)
            values = await fetching.fetch(10)
            await values[5].ack_sync()  # and with it all before
            await cleaning.Cleaner(term, 3_600_000_000).clean()
            assert (await client.state()).messages == 10, "it is kept for an hour"
            await cleaning.Cleaner(term, 0).clean()
            state = await client.state()
            assert (state.messages, state.first_seq) == (4, 7)


async def test_j10_values_are_removed_by_their_age(nats_server: NatsServer, bucket: str) -> None:
    async with connected(Nats(nats_server.url, bucket=bucket)) as connection:
        mine = SignalBucket(connection, bucket)
        await mine.ensure()
        async with plain_client(nats_server.url, bucket) as client:
            for n in range(7):
                await client.put("run.s", str(n))
            term = await take_over(mine)
            assert term is not None
            fetching = await client.js.pull_subscribe_bind(term.consumer, client.stream)
            await (await fetching.fetch(7))[-1].ack_sync()
            keep = 300_000

            async def old_ones_are_gone() -> bool:
                await client.put("run.s", "young")
                [value] = await fetching.fetch(1)
                await value.ack_sync()
                await cleaning.Cleaner(term, keep).clean()
                return bool((await client.state()).first_seq > 7)

            await until(old_ones_are_gone, "the first seven to be removed", 30)
            assert (await client.state()).messages > 1, "young ones stay"


async def test_j10_what_was_read_is_removed_earlier_if_it_takes_too_much_room(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "_PAUSE", 0.05)
    monkeypatch.setattr(cleaning, "_ROOM", 2000)
    app = Hark(sqlite_store.url, nats=Nats(nats_server.url, bucket=bucket))
    app.register(Collector)
    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        for n in range(100):
            await client.put(f"{instance.id}.s", str(n))
        assert await until_collected(sqlite_store, instance, 100) == list(range(100))

        async def is_small() -> bool:
            return bool((await client.state()).bytes <= 2000)

        await until(is_small, "the bucket to be small", 30)


ACCOUNT = """
accounts {{ A {{ users: [{{ user: a, password: a }}], jetstream: {{ {kind}: 1MB }} }} }}
no_auth_user: a
"""


async def takes_put(client: PlainClient, key: str) -> bool:
    """Whether the bucket takes a large value."""
    try:
        await client.put(key, "x" * 10_000)
    except APIError:
        return False
    return True


@pytest.mark.parametrize("limit", ["values", "bytes", "account", "account, in memory"])
async def test_j10_a_full_bucket_has_room_again_after_all_of_it_was_read(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(cleaning, "_PAUSE", 0.05)
    config = ACCOUNT.format(kind="max_mem" if "memory" in limit else "max_file") if "account" in limit else ""
    with NatsServer(tmp_path, config=config) as server:
        if "memory" in limit:
            async with jetstream(server) as js:
                await js.create_key_value(bucket="signals", storage=api.StorageType.MEMORY)
        app = Hark(sqlite_store.url, nats=server.url)
        app.register(Collector)
        async with app:
            instance = await app.start(Collector)
            await until_reader(app)
        async with plain_client(server.url, "signals") as client:
            settings = {"values": {"max_msgs": 50}, "bytes": {"max_bytes": 50_000}}.get(limit)
            if settings is not None:
                stream = (await client.js.stream_info(client.stream)).config
                await client.js.update_stream(stream.evolve(**settings))
            put = 0
            while await takes_put(client, f"{instance.id}.s"):
                put += 1
            async with app:
                await until_collected(sqlite_store, instance, put)
                await until(lambda: takes_put(client, f"{instance.id}.s"), "the bucket to have room again", 20)


async def test_j10_a_user_who_may_not_ask_for_the_limits_of_the_account_reads_and_removes(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hark.engine.nats.bucket._INFO", 0.2)
    permissions = 'publish: { deny: ["$JS.API.INFO"] }'
    config = f"authorization {{ users: [{{ user: a, password: a, permissions: {{ {permissions} }} }}] }}\n"
    with NatsServer(tmp_path, config=config) as server:
        app = Hark(sqlite_store.url, nats=Nats(server.url, user="a", password="a", keep=0))
        app.register(Collector)
        async with app, plain_client(server.url, "signals", user="a", password="a") as client:
            instance = await app.start(Collector)
            for n in range(3):
                await client.put(f"{instance.id}.s", str(n))

                async def is_empty() -> bool:
                    return bool((await client.state()).messages == 0)

                await until(is_empty, "what was read to be removed", 30)
        assert app._clerk.counters.nats is not None
        assert app._clerk.counters.nats.connects == 1


async def test_j10_an_unexpected_error_does_not_end_the_cleaning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        name = "signals"

        async def state(self) -> None:
            nonlocal asked
            asked += 1
            raise KeyError("state")

    asked = 0
    monkeypatch.setattr(cleaning, "_PAUSE", 0.001)
    term = Term(Broken(), "hark-1-0", None, Unacknowledged(0, 1))  # type: ignore[arg-type]
    forever = asyncio.create_task(cleaning.clean_for_ever(term, 0))
    await until(lambda: asked > 2, "another look", 30)
    forever.cancel()
    assert caplog.text.count("cannot be removed: 'state'") == 1
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("lost", ["all", "values only"])
async def test_j10_a_server_that_lost_its_last_writes_gives_their_numbers_to_other_signals(
    sqlite_store: Store, own_server: NatsServer, tmp_path: Path, lost: str
) -> None:
    """After a power failure a sequence that Hark has read can be that of another value. It is not a duplicate."""
    app = Hark(sqlite_store.url, nats=own_server.url)
    app.register(Collector)
    async with app:
        instance = await app.start(Collector)
        await until_reader(app)
        async with plain_client(own_server.url, "signals") as client:
            for n in range(5):
                await client.put(f"{instance.id}.s", str(n))
            await until_collected(sqlite_store, instance, 5)
            await until_read(client)
        stored, copy = tmp_path / "jetstream", tmp_path / "copy"
        own_server.stop()
        shutil.copytree(stored, copy)
        own_server.start()
        await until_reader(app)
        async with plain_client(own_server.url, "signals") as client:
            for n in range(5, 10):
                assert await client.put(f"{instance.id}.s", str(n)) == n + 1
            await until_collected(sqlite_store, instance, 10)
            await until_read(client)
        own_server.stop()
        if lost == "all":
            shutil.rmtree(stored)
            shutil.copytree(copy, stored)
        else:
            for old in copy.rglob("msgs"):
                new = stored / old.relative_to(copy)
                shutil.rmtree(new)
                shutil.copytree(old, new)
        own_server.start()
        async with plain_client(own_server.url, "signals") as client:
            for n in range(10, 15):
                assert await client.put(f"{instance.id}.s", str(n)) == n - 4
            assert await until_collected(sqlite_store, instance, 15) == list(range(15))
