"""J10: a plain NATS client unblocks a waiting step, and sees what Hark sends."""

import asyncio
import logging
from typing import Any

import pytest

from hark import Await, Dag, Done, Hark, Machine, Nats, step
from hark.engine.nats import reader
from hark.engine.nats.connection import Connection
from hark.engine.nats.keys import signal_key
from tests.nats.support import (
    Collector,
    collected,
    received,
    until_collected,
    until_read,
    until_reader,
    waiting_job,
)
from tests.support.inspect import query, until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

NAMES = ["approval", "a.b", ".", "a..b", "*", ">", "a b", "🙂", "a.>", "'; --", "=2E", "/"]


def make(store: Store, server: NatsServer, bucket: str, **options: Any) -> Hark:
    nats = Nats(server.url, bucket=bucket, **options.pop("nats", {}))
    return Hark(store.url, **store.options, nats=nats, **options)


async def test_j10_a_put_of_a_plain_client_unblocks_a_waiting_step(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    app.register(waiting_job(app, "review-done"))
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        job = await app.start("waiting")
        await client.put(f"{job.id}.review-done", '{"approved": true}')
        assert await job.result(timeout=30) == {"wait": [{"approved": True}]}


async def test_j10_s10_quick_puts_to_one_key_all_arrive_in_order(
    store: Store, nats_server: NatsServer, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hark")
    app = make(store, nats_server, bucket)
    app.register(Collector)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        turns = app._clerk.counters.turns
        for n in range(5000):  # without waiting for answers
            await client.client.publish(f"$KV.{bucket}.{instance.id}.s", str(n).encode())
        assert await until_collected(store, instance, 5000) == list(range(5000))
        await until(lambda: received(app) == {"delivered": 5000}, "the count")
        assert app._clerk.counters.turns - turns < 200, "puts that arrive together are committed together"
        await until_read(client)
        assert await collected(store, instance) == list(range(5000))
        assert caplog.text.count("Reading signals") == 1, "one reader from the beginning to the end"


async def test_j10_fault_51_names_with_any_characters_are_isolated_per_run(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    app.register(waiting_job(app, *NAMES))
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        mine, other = await app.start("waiting", id="run"), await app.start("waiting", id="run.other")
        for name in reversed(NAMES):
            await client.put(signal_key("run.other", name), f'"other {name}"')
        assert await other.result(timeout=30) == {"wait": [f"other {name}" for name in NAMES]}
        assert (await mine.get()).status == "awaiting_children"
        for name in reversed(NAMES):
            await client.put(signal_key("run", name), f'"mine {name}"')
        assert await mine.result(timeout=30) == {"wait": [f"mine {name}" for name in NAMES]}


async def test_j10_fault_50_a_deleted_or_purged_key_is_not_a_signal(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    app.register(Collector)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await client.put(f"{instance.id}.s", "1")
        await until_collected(store, instance, 1)
        await client.bucket.delete(f"{instance.id}.s")
        await client.bucket.purge(f"{instance.id}.s")
        await client.put(f"{instance.id}.s", "2")
        assert await until_collected(store, instance, 2) == [1, 2]
        assert received(app) == {"delivered": 2}


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (b'{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
        (b"17", 17),
        (b'"text"', "text"),
        (b"plain text", b"plain text"),
        (b"{broken", b"{broken"),
        (b"", b""),
        ("ü 🙂".encode(), "ü 🙂".encode()),
        (b"\xff\xfe\x00", b"\xff\xfe\x00"),
        (b'{"a": 1, "a": 2}', b'{"a": 1, "a": 2}'),
        (b'{"$bytes": "AAE="}', b"\0\1"),
    ],
)
async def test_j10_a_value_is_json_if_it_parses_and_otherwise_bytes(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, value: bytes, payload: Any
) -> None:
    app = make(sqlite_store, nats_server, bucket)
    app.register(Collector)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await client.put(f"{instance.id}.s", value)
        assert await until_collected(sqlite_store, instance, 1) == [payload]


async def test_j10_values_that_hark_refuses_do_not_block_those_behind_them_and_are_reported(
    store: Store, nats_server: NatsServer, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = make(store, nats_server, bucket, max_payload=1000)
    app.register(Collector, waiting_job(app, "go"))
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance, finished = await app.start(Collector), await app.start("waiting")
        await finished.signal("go")
        await finished.result(timeout=30)
        wrong = {
            "nobody.s": b"1",
            f"{finished.id}.s": b"1",
            "nodot": b"1",
            "x.=GG": b"1",
            f"{instance.id}.big": b"x" * 1001,
            f"{instance.id}.json": b"[%s]" % (b"1," * 600 + b"1"),
            f"{instance.id}.{'n' * 256}": b"1",
        }
        with caplog.at_level(logging.WARNING, "hark"):
            for key, value in wrong.items():
                await client.put(key, value)
            await client.put(f"{instance.id}.s", '"last"')
            assert await until_collected(store, instance, 1) == ["last"]
        assert received(app) == {"refused": len(wrong), "delivered": 1}
        said = [record.getMessage() for record in caplog.records if "was refused" in record.getMessage()]
        for key, why in zip(
            wrong,
            ("no such instance", "is done", "form", "hexadecimal", "1000 are allowed", "1000 are allowed", "255 bytes"),
            strict=True,
        ):
            assert any(repr(key) in line and why in line for line in said), (key, why, said)
        await until_read(client)


async def test_j10_why_shows_a_value_that_was_refused_to_the_run_that_waits_for_it(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket, max_payload=1000)
    app.register(Collector, waiting_job(app, "go"))
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        job = await app.start("waiting", correlation_key="order:1")
        await until(lambda: query(store, "SELECT 1 FROM waits WHERE name = 'go'"), "the task to wait")
        await client.put(f"{job.id}.go", b"x" * 2000)
        await client.put(signal_key("order:1", "go"), b"y" * 3000)
        await client.put(f"{job.id}.{'n' * 256}", b"1")  # nothing can wait for this name
        await until(lambda: received(app).get("refused") == 3, "the values to be refused")
        await until(lambda: query(store, "SELECT 1 FROM misses WHERE target = 'order:1'"), "the refusals to be stored")
        for target in (job.id, f"{job.id}.0"):
            misses = [miss for miss in (await app.why(target)).misses if miss.reason == "refused"]
            assert {(miss.kind, miss.name) for miss in misses} == {("signal", "go")}
            assert any("was refused: " in miss.text and "1000 are allowed" in miss.text for miss in misses)
        await job.signal("go")
        await job.result(timeout=30)


@pytest.mark.parametrize("status", ["1", "100", "404", "408", "409", "503"])
async def test_j10_an_empty_value_with_the_header_of_a_status_is_a_value(
    sqlite_store: Store, nats_server: NatsServer, bucket: str, status: str
) -> None:
    app = make(sqlite_store, nats_server, bucket)
    app.register(Collector)
    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        headers = {"Status": status, "Description": "Consumer Deleted"}
        await client.js.publish(f"$KV.{bucket}.{instance.id}.s", b"", headers=headers)
        await client.put(f"{instance.id}.s", '"behind it"')
        assert await until_collected(sqlite_store, instance, 2) == [b"", "behind it"]
        await until_read(client)


async def put_raw(server: NatsServer, *subjects: bytes) -> None:
    """Put 1 on these subjects, as a client that does not check them."""
    reading, writing = await asyncio.open_connection("127.0.0.1", server.port)
    await reading.readline()
    writing.write(b'CONNECT {"verbose": false}\r\n')
    for subject in subjects:
        writing.write(b"PUB %s 1\r\n1\r\n" % subject)
    writing.write(b"PING\r\n")
    assert await reading.readline() == b"PONG\r\n"
    writing.close()


@pytest.mark.parametrize("first", [True, False], ids=["first", "behind others"])
async def test_j10_a_key_that_the_client_cannot_read_does_not_block_those_behind_it(
    sqlite_store: Store,
    nats_server: NatsServer,
    bucket: str,
    first: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reader, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(reader, "_SILENT", 0.6)
    app = make(sqlite_store, nats_server, bucket)
    app.register(Collector)
    async with app, plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await until_reader(app)
        subject = f"$KV.{bucket}.{instance.id}.s".encode()
        others = [] if first else [subject] * 700
        await put_raw(nats_server, *others, subject + b"\xff", subject + b"\xfe", subject)
        assert await until_collected(sqlite_store, instance, len(others) + 1) == [1] * (len(others) + 1)
        await until_read(client)
        await client.put(f"{instance.id}.s", "2")
        assert (await until_collected(sqlite_store, instance, len(others) + 2))[-1] == 2
        assert received(app)["refused"] == 2
        assert caplog.text.count("the key is not UTF-8") == 2
        counters = app._clerk.counters.nats
        assert counters is not None
        assert counters.connects < 10


async def test_j10_a_correlation_key_works_in_place_of_a_run_id(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    app.register(Collector)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector, correlation_key="order:42")
        await client.put("order=3A42.s", "1")
        assert await until_collected(store, instance, 1) == [1]


class Waiting(Machine):
    """Waits for one signal, and returns its payload."""

    @step
    async def start(self, ctx: Any) -> Any:
        return Await("s", then=self.end)

    @step
    async def end(self, ctx: Any) -> Any:
        return Done(ctx.awaited[0].payload)


@pytest.mark.parametrize("key", ["order42", "01900000-0000-7000-8000-000000000000"], ids=["key", "key like an id"])
async def test_j10_a_put_to_a_key_that_is_read_again_does_not_reach_the_next_holder_of_the_key(
    store: Store, nats_server: NatsServer, bucket: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first holder has received it and finished, and the acknowledgement was lost."""
    publish = Connection.publish

    async def lose_acknowledgements(self: Connection, subject: str, data: bytes = b"", **options: Any) -> None:
        if data != b"+ACK":
            await publish(self, subject, data, **options)

    monkeypatch.setattr(Connection, "publish", lose_acknowledgements)
    app, later = make(store, nats_server, bucket), make(store, nats_server, bucket)
    app.register(Waiting)
    later.register(Waiting)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        first = await app.start(Waiting, correlation_key=key)
        await until_reader(app)
        await client.put(f"{key}.s", "1")
        assert await first.result(timeout=30) == 1
        second = await app.start(Waiting, correlation_key=key)
        await second.wait_for("awaiting_signal")
        assert await client.unread() == 1
    monkeypatch.setattr(Connection, "publish", publish)
    async with later, later.worker(), plain_client(nats_server.url, bucket) as client:
        await until_read(client)
        assert received(later) == {"duplicate": 1}
        assert await collected(store, second) == []
        await client.put(f"{key}.s", "2")
        assert await later.result(second.id, timeout=30) == 2


async def test_j10_a_plain_client_sees_the_signals_that_hark_sends_and_hark_does_not_read_them_back(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    app.register(Collector)
    dag = Dag("sender")

    @app.handler("send")
    async def send(task: Any) -> Any:
        await task.send_signal(task.input["to"], "s", "from a task")

    dag.task("send", "send")
    app.register(dag)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        await until_reader(app)
        seen = await client.watch()
        instance = await app.start(Collector)
        await instance.signal("s", {"n": 1})
        await app.signal_with_start(Collector, "a.key", "s", "with start", dedup_key="once")
        await app.signal_with_start(Collector, "a.key", "s", "with start", dedup_key="once")
        await app.signal(instance, "s", "again", dedup_key="twice")
        await app.signal(instance, "s", "again", dedup_key="twice")
        await (await app.start("sender", {"to": instance.id})).result(timeout=30)
        await client.put(f"{instance.id}.s", '"from outside"')
        assert await until_collected(store, instance, 4) == [{"n": 1}, "again", "from a task", "from outside"]
        started = await app.get("a.key")
        await until(lambda: len(seen) >= 5, "the signals on NATS", 10)
        await until_read(client)
        assert [(entry.key, entry.value) for entry in seen] == [
            (f"{instance.id}.s", b'{"n":1}'),
            (f"{started.id}.s", b'"with start"'),
            (f"{instance.id}.s", b'"again"'),
            (f"{instance.id}.s", b'"from a task"'),
            (f"{instance.id}.s", b'"from outside"'),
        ]
        assert received(app) == {"delivered": 1}
        assert len(await collected(store, instance)) == 4


async def test_j10_signals_of_hark_stay_away_from_nats_if_the_option_says_so(
    sqlite_store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(sqlite_store, nats_server, bucket, nats={"send_signals": False})
    app.register(Collector)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        instance = await app.start(Collector)
        await instance.signal("s", 1)
        await client.put(f"{instance.id}.s", "2")
        assert await until_collected(sqlite_store, instance, 2) == [1, 2]
    async with plain_client(nats_server.url, bucket) as client:  # what was left to send is sent before the app closes
        assert (await client.state()).messages == 1


async def test_j10_chunks_of_a_stream_are_published_in_order_after_their_commit(
    store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(store, nats_server, bucket)
    dag = Dag("streaming")
    dag.task("llm.agent", "talk")

    @app.handler("talk")
    async def talk(task: Any) -> None:
        for n in range(300):
            await task.put_stream({"n": n})
        await task.put_stream("text")

    app.register(dag)
    async with app, app.worker(), plain_client(nats_server.url, bucket) as client:
        chunks = await client.subscribe("stream.order=2E42.>")
        await until_reader(app)
        await (await app.start("streaming", id="order.42")).result(timeout=30)
        await until(lambda: len(chunks) >= 301, "all chunks", 10)
        assert {chunk.subject for chunk in chunks} == {"stream.order=2E42.llm.agent"}
        assert [chunk.data for chunk in chunks] == [*(b'{"n":%d}' % n for n in range(300)), b'"text"']


def test_j10_synchronous_code_without_a_worker_brings_signals_into_the_store(
    sqlite_store: Store, nats_server: NatsServer, bucket: str
) -> None:
    app = make(sqlite_store, nats_server, bucket)
    app.register(Collector)

    async def put(key: str) -> None:
        async with plain_client(nats_server.url, bucket) as client:
            await client.put(key, "1")

    async def wait() -> None:
        await until_collected(sqlite_store, instance, 1)

    with app:
        instance = app.start(Collector).result()
        with asyncio.Runner() as runner:
            runner.run(put(f"{instance.id}.s"))
            runner.run(wait())
    with app, asyncio.Runner() as runner:  # opened again, it reads again
        runner.run(put(f"{instance.id}.t"))
        runner.run(until(lambda: received(app) == {"delivered": 2}, "the second put", 30))
