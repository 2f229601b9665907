"""Server-sent events: from the first event or after Last-Event-ID, with one reader for all clients."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hark import Dag, Hark
from hark.doors.http import feed, open_streams, server, stream
from hark.doors.http.asgi import AsgiApp
from tests.support.http import app_on, lines_of, serving
from tests.support.inspect import query, until
from tests.support.stores import Store


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    app = app_on(store)
    async with app:
        yield app


@pytest.fixture
async def http(app: Hark, applications: list[AsgiApp]) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


@pytest.fixture
def applications(monkeypatch: pytest.MonkeyPatch) -> list[AsgiApp]:
    """Every ASGI application that is made, so that a test can read its feed."""
    opened: list[AsgiApp] = []
    made = AsgiApp.__init__

    def noted(self: AsgiApp, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(AsgiApp, "__init__", noted)
    return opened


@asynccontextmanager
async def following(http: httpx.AsyncClient, id: str, **headers: str) -> AsyncIterator[AsyncIterator[dict[str, str]]]:
    async with http.stream("GET", f"/instances/{id}/stream", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def events() -> AsyncIterator[dict[str, str]]:
            block = ""
            async for line in answer.aiter_lines():
                if line:
                    block += line + "\n"
                    continue
                for event in lines_of(block):
                    if "event" in event:
                        yield event
                block = ""

        yield events()


async def finished(app: Hark, id: str) -> None:
    await app.start("Order", id=id)
    await until(lambda: _is(app, id, "awaiting_signal"), "the park")
    await app.signal(id, "paid", {"amount": 1})
    await app.result(id, timeout=30)


async def _is(app: Hark, id: str, status: str) -> bool:
    return (await app.get(id)).status == status


async def test_a_stream_has_all_events_and_closes_after_the_end(http: httpx.AsyncClient, app: Hark) -> None:
    await finished(app, "o-1")
    text = (await http.get("/instances/o-1/stream")).text
    events = [event for event in lines_of(text) if "event" in event]
    assert [event["event"] for event in events] == ["started", "await", "signal", "done", "end"]
    history = (await http.get("/instances/o-1/events")).json()["items"]
    assert [int(event["id"]) for event in events[:-1]] == [one["seq"] for one in history]
    data = json.loads(events[2]["data"])
    assert (data["name"], data["status"], data["instance_id"], data["at"]) == ("paid", "woke", "o-1", history[2]["at"])
    assert json.loads(events[-1]["data"]) == {"status": "done"}


async def test_a_stream_has_new_events_as_they_happen(http: httpx.AsyncClient, app: Hark) -> None:
    await app.start("Order", id="o-1", correlation_key="order/1")
    seen = []
    async with following(http, "order%2F1") as events:
        async for event in events:
            seen.append(event["event"])
            if seen == ["started", "await"]:
                await app.signal("o-1", "paid")
    assert seen == ["started", "await", "signal", "done", "end"]


async def test_a_stream_continues_after_last_event_id_and_is_204_when_there_are_no_more(
    http: httpx.AsyncClient, app: Hark
) -> None:
    await finished(app, "o-1")
    history = (await http.get("/instances/o-1/events")).json()["items"]
    async with following(http, "o-1", **{"Last-Event-ID": str(history[1]["seq"])}) as events:
        assert [event["event"] async for event in events] == ["signal", "done", "end"]
    over = await http.get("/instances/o-1/stream", headers={"Last-Event-ID": str(history[-1]["seq"])})
    assert (over.status_code, over.content, "content-length" in over.headers) == (204, b"", False)
    again = await http.get("/instances/o-1/stream", params={"after": str(history[-2]["seq"])})
    assert [event["event"] for event in lines_of(again.text) if "event" in event] == ["done", "end"]


async def test_invalid_streams_are_refused(http: httpx.AsyncClient, app: Hark) -> None:
    assert (await http.get("/instances/unknown/stream")).status_code == 404
    await app.start("Order", id="o-1")
    for bad in ("x", "-1", "1.5", "9" * 30):
        assert (await http.get("/instances/o-1/stream", headers={"Last-Event-ID": bad})).status_code == 422
    head = await http.head("/instances/o-1/stream")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.slow
async def test_a_hundred_clients_share_one_reader_and_leave_no_task_behind(
    http: httpx.AsyncClient, app: Hark, applications: list[AsgiApp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "_POLL_INTERVAL", 3600.0)  # so that only turns make it read
    [application] = applications
    await app.start("Order", id="o-1")
    await until(lambda: _is(app, "o-1", "awaiting_signal"), "the park")

    async def follow() -> list[str]:
        async with following(http, "o-1") as events:
            return [event["event"] async for event in events]

    followers = [asyncio.ensure_future(follow()) for _ in range(100)]
    await until(lambda: len(application.feed._clients) == 100, "all clients to follow")
    await until(
        lambda: all(client.position[1] for client in application.feed._clients), "all clients to have the past events"
    )
    before = application.feed.reads
    await app.signal("o-1", "paid")
    for seen in await asyncio.gather(*followers):
        assert seen == ["started", "await", "signal", "done", "end"]
    assert application.feed.reads - before < 20
    assert not application.feed._clients
    await until(lambda: application.feed._reader is None or application.feed._reader.done(), "the reader to end")


async def test_a_client_that_disconnects_is_forgotten(
    http: httpx.AsyncClient, app: Hark, applications: list[AsgiApp]
) -> None:
    [application] = applications
    await app.start("Order", id="o-1")
    async with following(http, "o-1") as events:
        await anext(events)
        assert len(application.feed._clients) == 1
    await until(lambda: not application.feed._clients, "the stream to be dropped")
    await until(lambda: application.feed._reader is None or application.feed._reader.done(), "the reader to end")


async def test_a_long_history_is_sent_complete_and_in_order(http: httpx.AsyncClient, app: Hark) -> None:
    await app.start("Order", id="o-1")
    await until(lambda: _is(app, "o-1", "awaiting_signal"), "the park")
    await asyncio.gather(*(app.signal("o-1", "note", n) for n in range(1234)))
    await app.signal("o-1", "paid")
    async with following(http, "o-1") as events:
        seen = [event async for event in events]
    assert len(seen) == 1234 + 5
    seqs = [int(event["id"]) for event in seen[:-1]]
    assert seqs == sorted(set(seqs))


async def test_a_slow_client_delays_no_other_and_misses_nothing(app: Hark, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed stops buffering for it when it is too far behind; it then reads the missed events itself."""
    monkeypatch.setattr(feed, "_MAX_BUFFERED", 3)
    await app.start("Order", id="o-1")
    application = AsgiApp(app)
    sent: list[bytes] = []
    slow, over = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, Any]:
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if b"note" in sent[-1]:
            await slow.wait()

    following = asyncio.ensure_future(application(_get("/instances/o-1/stream"), receive, send))
    await until(lambda: application.feed._clients, "the client to follow")
    for n in range(20):
        await app.signal("o-1", "note", n)
        if n == 0:
            await until(lambda: b"note" in b"".join(sent), "the first to be sent")
    await until(lambda: all(client.behind for client in application.feed._clients), "the client to fall behind")
    slow.set()
    await until(lambda: b"".join(sent).count(b'"note"') == 20, "all events to be sent")
    seqs = [int(event["id"]) for event in lines_of(b"".join(sent).decode()) if "id" in event]
    assert seqs == sorted(set(seqs))
    over.set()
    await following


def _get(path: str) -> dict[str, Any]:
    return {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "scheme": "http",
    }  # fmt: skip


async def test_a_heartbeat_keeps_the_connection_open(app: Hark) -> None:
    await app.start("Order", id="o-1")
    application = AsgiApp(app, heartbeat=0.01)
    sent: list[bytes] = []
    enough = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await enough.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if sent.count(b":\n\n") >= 3:
            enough.set()

    await asyncio.wait_for(application(_get("/instances/o-1/stream"), receive, send), 30)


async def test_a_server_that_stops_closes_its_streams(app: Hark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SHUTDOWN_TIMEOUT", 3600)  # a stream that is not closed keeps the server up
    await app.start("Order", id="o-1")
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    serving = asyncio.ensure_future(app.serve(port=0, say=line.set_result))
    url = (await line).split()[2].rstrip(";")
    async with httpx.AsyncClient(timeout=30) as http, http.stream("GET", f"{url}/instances/o-1/stream") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        serving.cancel()
        assert [line async for line in lines if line == "event: end"] == []
    await asyncio.wait({serving}, timeout=60)
    assert serving.done()


async def test_x3_a_stream_ends_when_its_token_is_revoked_or_expires(
    http: httpx.AsyncClient, app: Hark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "_CHECK_INTERVAL", 0.01)
    await app.start("Order", id="o-1")
    await until(lambda: _is(app, "o-1", "awaiting_signal"), "the park")
    lives = {"revoked": None, "expired": 3600, "kept": None}
    tokens = [await app.create_token(["read"], name=name, expires=life) for name, life in lives.items()]
    reading: list[str] = []
    ended: list[str] = []

    async def follow(name: str, secret: str) -> list[str]:
        async with following(http, "o-1", Authorization=f"Bearer {secret}") as events:
            seen = []
            async for event in events:
                seen.append(event["event"])
                if seen == ["started", "await"]:
                    reading.append(name)
            ended.append(name)
            return seen

    streams = [asyncio.ensure_future(follow(str(token.name), str(token.secret))) for token in tokens]
    await until(lambda: len(reading) == 3, "all to follow")
    await app.revoke_token(tokens[0].id)
    await until(lambda: ended == ["revoked"], "the stream of the revoked token to end")
    now = app._clerk.now
    monkeypatch.setattr(app._clerk, "now", lambda: now() + 7200 * 1_000_000)
    await until(lambda: ended == ["revoked", "expired"], "the stream of the expired token to end")
    refused = await http.get("/instances/o-1/stream", headers={"Authorization": f"Bearer {tokens[0].secret}"})
    assert refused.status_code == 401
    await app.signal("o-1", "paid")
    seen = await asyncio.gather(*streams)
    assert seen == [["started", "await"], ["started", "await"], ["started", "await", "signal", "done", "end"]]


async def test_a_client_that_does_not_read_is_disconnected_and_can_continue(
    app: Hark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_SEND_TIMEOUT", 0.01)
    await app.start("Order", id="o-1")
    application = AsgiApp(app)
    sent: list[bytes] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if b"note" in message.get("body", b""):
            await never.wait()
        sent.append(message.get("body", b""))

    following = asyncio.ensure_future(application(_get("/instances/o-1/stream"), receive, send))
    await until(lambda: b"started" in b"".join(sent), "the first event, which it does read")
    await app.signal("o-1", "note")
    await asyncio.wait({following}, timeout=60)
    assert following.done()
    assert not application.feed._clients
    last = lines_of(b"".join(sent).decode())[-1]["id"]

    async def send_at_once(message: Any) -> None:
        sent.append(message.get("body", b""))

    again = {**_get("/instances/o-1/stream"), "headers": [(b"host", b"localhost"), (b"last-event-id", last.encode())]}
    following = asyncio.ensure_future(application(again, receive, send_at_once))
    await app.signal("o-1", "paid")
    await until(lambda: b'"paid"' in b"".join(sent), "the rest of the events")
    never.set()
    await following
    seen = [event for event in lines_of(b"".join(sent).decode()) if "id" in event]
    history = await app.events("o-1")
    assert [int(event["id"]) for event in seen] == [event.seq for event in history]


async def test_a_stream_above_the_limits_is_refused(
    http: httpx.AsyncClient, app: Hark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_streams, "_MAX_STREAMS", 3)
    monkeypatch.setattr(open_streams, "_MAX_PER_TOKEN", 1)
    await app.start("Order", id="o-1")
    secret = (await app.create_token(["read"])).secret
    token = {"Authorization": f"Bearer {secret}"}
    async with following(http, "o-1", **token), following(http, "o-1"):
        refused = await http.get("/instances/o-1/stream", headers=token)
        assert (refused.status_code, refused.json()["type"]) == (503, "TooManyStreams")
        assert refused.headers["retry-after"] == "5"
        async with following(http, "o-1"):
            assert (await http.get("/instances/o-1/stream")).json()["type"] == "TooManyStreams"


async def test_fault_86_a_client_goes_on_after_a_restore_with_the_id_of_an_event_that_was_lost(
    pg_store: Store,
) -> None:
    """The streams of an instance and of a job, and the list of events, after the next era of the store has begun."""
    dag = Dag("build")
    dag.sleep("long", 3600)
    async with app_on(pg_store) as app, app.worker():
        app.register(dag)
        for definition, id in (("Order", "o-1"), (dag, "job")):
            await app.start(definition, id=id)
        await until(lambda: _is(app, "o-1", "awaiting_signal"), "the park")
        tx, seq = (await app.events_after((0, 0), limit=1000))[-1].cursor
    lost = (tx + 1_000_000, seq + 1_000_000)  # as if the time before the restore had gone on
    await query(pg_store, "UPDATE eras SET cluster = 'restored/snapshot'")
    app = app_on(pg_store)
    app.register(dag)
    async with app, serving(app) as http:
        await app.signal("o-1", "paid", {"amount": 1})
        await app.result("o-1", timeout=30)
        await app.cancel("job")
        async with following(http, "o-1", **{"Last-Event-ID": str(lost[1])}) as events:
            assert [event["event"] async for event in events] == ["signal", "done", "end"]
        async with following(http, "job", **{"Last-Event-ID": f"{lost[0]}.{lost[1]}"}) as events:
            assert "cancelled" in [event["event"] async for event in events]
        answer = await http.get("/events", params={"after": f"{lost[0]}.{lost[1]}"})
        assert answer.status_code == 200, answer.text
        listed = answer.json()["items"]
        assert [event["type"] for event in listed if event["instance_id"] == "o-1"] == ["signal", "done"]
