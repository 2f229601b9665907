"""J10: a signal is committed to SQL before it is acknowledged. While the database is gone it waits on NATS."""

from collections.abc import Sequence
from typing import Any

import pytest

from hark import Handle, Hark, Nats, StoreUnavailable
from hark.engine.nats import reader
from hark.engine.nats.bucket import SignalBucket
from hark.engine.nats.connection import connected
from hark.engine.nats.counters import NatsCounters
from hark.engine.nats.election import ask_reader
from hark.engine.turns import caller_errors, turn_runner
from hark.engine.turns.reply import Reply, answer_all
from hark.kernel.requests import Deliver, Request
from hark.kernel.turn import run_turn
from hark.model.values import Delivery
from hark.store.protocol import Refused
from tests.nats.support import Collector, collected, received, until_collected, until_read, until_reader
from tests.support.inspect import query, until
from tests.support.nats_client import PlainClient, plain_client
from tests.support.nats_server import NatsServer
from tests.support.proxy import Proxy, cut_after, cut_before
from tests.support.stores import Store


async def put_all(client: PlainClient, bucket: str, instance: Handle[Any], numbers: range) -> None:
    for n in numbers:
        await client.client.publish(f"$KV.{bucket}.{instance.id}.s", str(n).encode())
    await client.client.flush()


@pytest.mark.parametrize("accident", [cut_before, cut_after], ids=["before", "after"])
async def test_j10_a_connection_that_is_cut_in_commit_loses_and_doubles_nothing(
    pg_store: Store, nats_server: NatsServer, bucket: str, accident: Any
) -> None:
    async with Proxy(pg_store.url) as proxy:
        app = Hark(proxy.url, **pg_store.options, nats=Nats(nats_server.url, bucket=bucket))
        app.register(Collector)
        async with app, plain_client(nats_server.url, bucket) as client:
            instance = await app.start(Collector)
            await until_reader(app)
            for start in range(0, 500, 100):
                proxy.at_commit(accident)
                await put_all(client, bucket, instance, range(start, start + 100))
                assert await until_collected(pg_store, instance, start + 100) == list(range(start + 100))
            await until_read(client)
            assert await collected(pg_store, instance) == list(range(500))


async def test_j10_s10_signals_wait_unacknowledged_while_the_database_is_gone_and_keep_their_order(
    pg_store: Store, nats_server: NatsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_errors, "PATIENCE", 0.3)
    monkeypatch.setattr(reader, "_TRY_AGAIN", 0.05)
    async with Proxy(pg_store.url) as proxy:
        app = Hark(proxy.url, **pg_store.options, nats=Nats(nats_server.url, bucket=bucket))
        app.register(Collector)
        async with app, plain_client(nats_server.url, bucket) as client:
            instance = await app.start(Collector)
            await until_reader(app)
            await put_all(client, bucket, instance, range(100))
            await until_collected(pg_store, instance, 100)
            await until_read(client)
            for outage in range(3):
                before = 100 + outage * 200
                proxy.go_away()
                await put_all(client, bucket, instance, range(before, before + 200))
                counters = app._clerk.counters.nats
                assert counters is not None
                counters.last_error = None
                await until(lambda counters=counters: counters.last_error is not None, "an attempt to fail", 30)
                assert await client.unread() == 200
                proxy.up.set()
                assert await until_collected(pg_store, instance, before + 200) == list(range(before + 200))
                await until_read(client)
            assert await collected(pg_store, instance) == list(range(700))
            assert set(received(app)) <= {"delivered", "duplicate"}


async def test_j10_s10_a_batch_is_tried_again_from_the_first_signal_that_the_database_did_not_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was committed behind it is repeated, and is a duplicate then."""
    monkeypatch.setattr(reader, "_TRY_AGAIN", 0)
    signals = [("run.s", Deliver(target="run", name="s", payload=str(n))) for n in range(4)]
    delivered, duplicate = Delivery("stored", "run"), Delivery("duplicate", "run")
    answers: list[list[reader.Outcome]] = [
        [delivered, StoreUnavailable("gone"), delivered, StoreUnavailable("gone")],
        [delivered, duplicate, delivered],
    ]
    tried: list[list[str]] = []

    async def commit(requests: Sequence[Deliver]) -> list[reader.Outcome]:
        tried.append([request.payload for request in requests])
        return answers.pop(0)

    counters = NatsCounters()
    committing = reader.Reader(None, None, 0, 1000, commit, lambda refused: None, counters)  # type: ignore[arg-type]
    while signals:
        signals = await committing._try_commit(signals)
    assert tried == [["0", "1", "2", "3"], ["1", "2", "3"]]
    assert counters.received == {"delivered": 3, "duplicate": 1}


async def test_j10_s10_signals_wait_for_a_database_that_refuses_everything_and_keep_their_order(
    store: Store,
    nats_server: NatsServer,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A missing table says nothing about the values."""
    monkeypatch.setattr(reader, "_TRY_AGAIN", 0.05)
    monkeypatch.setattr(reader, "_STUCK", 0.1)
    app = Hark(store.url, **store.options, nats=Nats(nats_server.url, bucket=bucket))
    app.register(Collector)
    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await until_reader(app)
        await query(store, "ALTER TABLE inbox RENAME TO elsewhere")
        await put_all(client, bucket, instance, range(50))
        async with connected(Nats(nats_server.url)) as connection:

            async def is_stuck() -> bool:
                state = await ask_reader(connection, bucket)
                return state is not None and state.is_stuck and "inbox" in (state.last_error or "")

            await until(is_stuck, "the reader to say that it is stuck", 30)
        assert await client.unread() == 50
        assert caplog.text.count("cannot be delivered") == 1
        await query(store, "ALTER TABLE elsewhere RENAME TO inbox")
        assert await until_collected(store, instance, 50) == list(range(50))
        await until_read(client)
        assert await collected(store, instance) == list(range(50))
        assert received(app) == {"delivered": 50}


async def test_j10_s10_no_signal_overtakes_one_that_the_database_refused_for_a_moment(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses the first signal, also alone, and then works again."""
    monkeypatch.setattr(reader, "_TRY_AGAIN", 0)
    nats = Nats(nats_server.url, bucket=bucket)
    refused: list[int] = []

    async def refuse_first(*arguments: Any, **options: Any) -> Any:
        signals = [request for request in arguments[3] if isinstance(request, Deliver)]
        if signals and 1 not in refused:
            refused.append(len(signals))
            raise Refused("no such table")
        return await run_turn(*arguments, **options)

    monkeypatch.setattr(turn_runner, "run_turn", refuse_first)
    app = Hark(sqlite_store.url, nats=nats)
    app.register(Collector)
    async with connected(nats) as connection:
        await SignalBucket(connection, bucket).ensure()
    async with plain_client(nats_server.url, bucket) as client:
        async with Hark(sqlite_store.url) as starting:
            starting.register(Collector)
            instance = await starting.start(Collector)
        await put_all(client, bucket, instance, range(50))
        async with app:
            assert await until_collected(sqlite_store, instance, 50) == list(range(50))
    assert refused[0] > 1


async def test_j10_a_reader_that_is_stuck_leaves_the_bucket_to_the_next_one(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_TRY_AGAIN", 0.05)
    monkeypatch.setattr(reader, "_STUCK", 0.1)
    nats = Nats(nats_server.url, bucket=bucket)
    stuck, other = Hark(sqlite_store.url, nats=nats), Hark(sqlite_store.url, nats=nats)
    stuck.register(Collector)

    def refuse(requests: Sequence[Request], replies: Sequence[Reply[Any]]) -> None:
        answer_all([(reply, Refused("permission denied")) for reply in replies])

    monkeypatch.setattr(stuck._clerk, "submit_together", refuse)
    async with stuck, plain_client(nats_server.url, bucket) as client:
        instance = await stuck.start(Collector)
        await until_reader(stuck)
        await client.put(f"{instance.id}.s", "1")
        async with other:
            assert await until_collected(sqlite_store, instance, 1) == [1]
            counters = stuck._clerk.counters.nats
            assert counters is not None
            await until(lambda: not counters.is_reader, "the first reader to end", 30)
            await until_reader(other)
