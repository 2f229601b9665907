"""J10: what the user may not do on NATS is logged, with the subject and what to do, and not again and again."""

import json
import logging
from pathlib import Path
from typing import Any

import nats
import pytest

from hark import Dag, Hark, Nats
from hark.engine.nats import bridge, connection, election, reader
from hark.engine.nats.failures import Denial, read_denial
from tests.nats.support import Collector, until_collected, until_reader
from tests.support.inspect import until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

OTHER = {"user": "other", "password": "x"}


def server_that_denies(folder: Path, *, publish: str = "none", subscribe: str = "none") -> NatsServer:
    permissions = {"publish": {"deny": [publish]}, "subscribe": {"deny": [subscribe]}}
    users = [{"user": "hark", "password": "x", "permissions": permissions}, OTHER]
    return NatsServer(folder, config=f"authorization {{ users: {json.dumps(users)} }}\n")


def make(store: Store, server: NatsServer) -> Hark:
    app = Hark(store.url, nats=Nats(server.url, user="hark", password="x"))
    app.register(Collector)
    dag = Dag("streaming")
    dag.task("talk", "talk")

    @app.handler("talk")
    async def talk(task: Any) -> None:
        for n in range(20):
            await task.put_stream(n)

    app.register(dag)
    return app


@pytest.mark.parametrize(
    ("denied", "word"),
    [
        ({"publish": "$JS.API.STREAM.INFO.>"}, 'publish to "$JS.API.STREAM.INFO.KV_signals"'),
        ({"publish": "$JS.API.CONSUMER.MSG.NEXT.>"}, 'publish to "$JS.API.CONSUMER.MSG.NEXT.KV_signals.'),
        ({"publish": "hark.>"}, 'publish to "hark.signals.reader"'),
        ({"subscribe": "_INBOX.>"}, 'subscribe to "_INBOX.'),
    ],
    ids=["info", "next", "reader", "inbox"],
)
async def test_j10_a_missing_permission_is_logged_once_and_not_with_each_connection(
    sqlite_store: Store,
    tmp_path: Path,
    denied: dict[str, str],
    word: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "hark")
    monkeypatch.setattr(connection, "_REQUEST", 0.2)
    monkeypatch.setitem(connection.Connection.request.__kwdefaults__, "timeout", 0.2)
    monkeypatch.setattr(reader, "_SILENT", 0.3)
    monkeypatch.setattr(election, "_ASK", 0.2)
    monkeypatch.setattr(bridge, "_TRY_AGAIN", 0.1)
    monkeypatch.setattr(bridge, "_LONGEST_PAUSE", 0.1)
    attempts = count_reports(monkeypatch)
    with server_that_denies(tmp_path, **denied) as server:
        async with make(sqlite_store, server):
            await until(lambda: len(attempts) >= 6, "some attempts", 60)
    said = [record.getMessage() for record in caplog.records if "NATS at" in record.getMessage()]
    assert len(said) == 1, said
    assert word in said[0]
    assert "Give the user the permissions in docs/nats.md" in said[0]
    assert caplog.text.count("Connected to NATS") <= 2
    if "INFO" in word:
        assert "Connected to NATS" not in caplog.text, "the bucket cannot be used"


def count_reports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The problems that were found, logged or not; the list grows."""
    found: list[str] = []
    report = bridge.ProblemLog.report

    def counted(self: bridge.ProblemLog, problem: str, **options: Any) -> None:
        found.append(problem)
        report(self, problem, **options)

    monkeypatch.setattr(bridge.ProblemLog, "report", counted)
    return found


async def test_j10_a_bucket_that_cannot_be_read_is_logged_once_and_not_with_each_attempt(
    sqlite_store: Store, own_server: NatsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hark")
    monkeypatch.setattr(bridge, "_TRY_AGAIN", 0.1)
    attempts = count_reports(monkeypatch)
    client = await nats.connect(own_server.url)
    js = client.jetstream()
    await js.add_stream(name="KV_signals", subjects=["$KV.signals.>"], max_consumers=1)
    await js.add_consumer("KV_signals", durable_name="of_another_program")
    async with Hark(sqlite_store.url, nats=own_server.url):
        await until(lambda: len(attempts) >= 6, "some attempts", 30)
    await client.close()
    assert caplog.text.count("maximum consumers limit reached") == 1
    assert caplog.text.count("Connected to NATS") <= 2


@pytest.mark.parametrize("subject", ["stream.>", "$JS.ACK.>", "$KV.>"])
async def test_j10_messages_that_may_not_be_published_are_counted_and_logged(
    sqlite_store: Store, tmp_path: Path, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    with server_that_denies(tmp_path, publish=subject) as server:
        app = make(sqlite_store, server)
        counters = app._clerk.counters.nats
        assert counters is not None
        async with app, app.worker(), plain_client(server.url, "signals", **OTHER) as client:
            instance = await app.start(Collector)
            await until_reader(app)
            await (await app.start("streaming")).result(timeout=30)
            for n in range(20):
                await client.put(f"{instance.id}.s", str(n))
                await until_collected(sqlite_store, instance, n + 1)
                await app.signal(instance, "other", n)
            await until(lambda: counters.denied >= 20, "the count", 30)
            if subject == "$KV.>":
                await until(lambda: counters.sent["dropped"] == 20, "the count of dropped signals", 30)
    prefix = subject.removesuffix(">")
    assert caplog.text.count(f'the user may not publish to "{prefix}') == 1, "once a minute"


def test_j10_a_denial_is_read_from_the_text_of_the_server() -> None:
    text = 'nats: Permissions Violation for Publish to "$JS.API.CONSUMER.MSG.NEXT.KV_s.hark-1-ab"'
    assert read_denial(text) == Denial("publish", "$JS.API.CONSUMER.MSG.NEXT.KV_s.hark-1-ab")
    assert read_denial(text.replace("hark-1-ab", "hark-2-cd")).kind == read_denial(text).kind  # type: ignore[union-attr]
    assert read_denial('nats: Permissions Violation for Subscription to "a"') == Denial("subscribe", "a")
    assert read_denial("nats: maximum connections exceeded") is None
