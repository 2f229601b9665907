"""J8: the stream of a job has the events of its tasks, live and after Last-Event-ID."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from hark import Dag, Hark, TaskContext
from tests.doors.test_http_stream import following
from tests.support.http import app_on, lines_of, serving
from tests.support.inspect import until
from tests.support.stores import Store


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    app = app_on(store)

    @app.handler("count")
    async def count(task: TaskContext) -> int:
        for n in range(3):
            await task.put_stream(n)
        await task.wait_for_signal(f"go-{task.name}", timeout=600)
        await task.put_stream("last")
        return 3

    dag = Dag("counting")
    dag.task("one", "count")
    dag.task("two", "count")
    async with app:
        app.register(dag)
        yield app


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app) as client:
        yield client


def chunks(events: list[dict[str, str]], task: str) -> list[object]:
    found = [json.loads(event["data"]) for event in events if event["event"] == "stream"]
    return [one["chunk"] for one in found if one["task"] == task]


async def test_j8_the_stream_of_a_job_has_the_chunks_of_its_tasks_live_and_again_after_any_event(
    http: httpx.AsyncClient, app: Hark
) -> None:
    await app.start("counting", id="j")
    await app.start("counting", id="j.x")  # not a task of the other job
    seen: list[dict[str, str]] = []
    async with following(http, "j") as events:
        async for event in events:
            seen.append(event)
            ready = [name for name in ("one", "two") if chunks(seen, name) == [0, 1, 2]]
            if event["event"] == "stream" and len(ready) == 2:
                for name in ready:
                    await app.signal("j", f"go-{name}")
    for task in ("one", "two"):
        assert chunks(seen, task) == [0, 1, 2, "last"]
    assert seen[-1]["event"] == "end"
    assert json.loads(seen[-1]["data"]) == {"status": "done"}
    ids = {json.loads(event["data"])["instance_id"] for event in seen[:-1] if event["event"] != "stream"}
    assert ids == {"j", "j.0", "j.1"}

    for place in (0, len(seen) // 2, len(seen) - 3):
        async with following(http, "j", **{"Last-Event-ID": seen[place]["id"]}) as events:
            assert [event async for event in events] == seen[place + 1 :]
    over = await http.get("/instances/j/stream", headers={"Last-Event-ID": seen[-2]["id"]})
    assert over.status_code == 204
    assert (await http.get("/instances/j/stream", headers={"Last-Event-ID": "x.y"})).status_code == 422

    history = (await http.get("/instances/j/events", params={"limit": 1000})).json()["items"]
    assert [f"{one['cursor'][0]}.{one['cursor'][1]}" for one in history] == [event["id"] for event in seen[:-1]]
    pages: list[str] = []
    after = "0.0"
    while after:
        page = (await http.get("/events", params={"job": "j", "after": after, "limit": 4})).json()
        pages += [f"{one['cursor'][0]}.{one['cursor'][1]}" for one in page["items"]]
        after = page["next"]
    assert pages == [event["id"] for event in seen[:-1]]
    await app.cancel("j.x")


async def test_j8_a_stream_of_a_job_that_waits_stays_open_and_others_do_not_end_it(
    http: httpx.AsyncClient, app: Hark
) -> None:
    await app.start("counting", id="j")
    await until(lambda: _has_chunks(app, "j"), "the chunks")
    text = await http.get("/events", params={"job": "j", "limit": 1000})
    assert {one["type"] for one in text.json()["items"]} >= {"started", "stream"}
    latest = await app.events("j", limit=2)
    assert [event.cursor for event in latest] == sorted(event.cursor for event in latest)
    before = await app.events("j", limit=2, before=latest[0].cursor)
    assert before[-1].cursor < latest[0].cursor
    assert {event.instance_id for event in await app.events("j", limit=100)} == {"j", "j.0", "j.1"}
    assert {event.instance_id for event in await app.events("j.0", limit=100)} == {"j.0"}
    await app.cancel("j")
    ended = await http.get("/instances/j/stream")
    events = [event for event in lines_of(ended.text) if "event" in event]
    assert [json.loads(events[-1]["data"])["status"], events[-1]["event"]] == ["cancelled", "end"]
    assert chunks(events, "one") == chunks(events, "two") == [0, 1, 2]


async def _has_chunks(app: Hark, job: str) -> bool:
    return sum(event.type == "stream" for event in await app.events(job, limit=100)) == 6
