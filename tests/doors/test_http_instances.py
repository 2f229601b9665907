"""The routes of instances: start, read, signal, cancel, retry, events."""

from collections.abc import AsyncIterator
from dataclasses import fields
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from hark import Instance
from tests.support.http import app_on, serving
from tests.support.inspect import everything, until
from tests.support.stores import Store


@pytest.fixture
async def http(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app_on(store)) as client:
        yield client


async def start(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post("/instances", json={"definition": "Order", **body})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def parked(http: httpx.AsyncClient, target: str) -> dict[str, Any]:
    return await reached(http, target, "awaiting_signal")


async def reached(http: httpx.AsyncClient, target: str, status: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def there() -> bool:
        found.update((await http.get(f"/instances/{quote(target, safe='')}")).json())
        return bool(found["status"] == status)

    await until(there, f"{target} to be {status}")
    return found


async def test_start_returns_the_instance_and_its_location(http: httpx.AsyncClient) -> None:
    answer = await http.post("/instances", json={"definition": "Order", "input": {"n": 1}, "id": "o-1"})
    assert answer.status_code == 201
    assert answer.json()["id"] == "o-1"
    assert answer.json()["state"] == {"n": 1}
    assert set(answer.json()) == {field.name for field in fields(Instance)}
    assert (await http.get(answer.headers["location"])).json()["id"] == "o-1"


async def test_start_accepts_all_options(http: httpx.AsyncClient) -> None:
    found = await start(
        http, id="o-1", correlation_key="k", correlation_scope="forever", step="start", queue="slow", priority=3,
        delay=1.5, concurrency_key="c", weight=1, version=1, rate_limit=None,
    )  # fmt: skip
    assert (found["queue"], found["correlation_key"], found["status"]) == ("slow", "k", "runnable")
    at = await start(http, at="2999-01-01T00:00:00Z")
    assert at["status"] == "runnable"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"definition": "Unknown"}, 404),
        ({"definition": "Order", "id": "taken"}, 409),
        ({"definition": "Order", "correlation_key": "key"}, 409),
        ({}, 422),
        ([], 422),
        ({"definition": 1}, 422),
        ({"definition": "Order", "colour": "red"}, 422),
        ({"definition": "Order", "id": "no spaces"}, 422),
        ({"definition": "Order", "correlation_key": "x" * 256}, 422),
        ({"definition": "Order", "priority": "high"}, 422),
        ({"definition": "Order", "priority": 2**31}, 422),
        ({"definition": "Order", "delay": -1}, 422),
        ({"definition": "Order", "at": "2999-01-01T00:00:00"}, 422),
        ({"definition": "Order", "at": "tomorrow"}, 422),
        ({"definition": "Order", "step": "nowhere"}, 422),
        ({"definition": "Order", "rate_limit": "unknown"}, 422),
        ({"definition": "Order", "version": 7}, 404),
    ],
)
async def test_an_invalid_start_is_refused_and_stores_nothing(
    http: httpx.AsyncClient, store: Store, body: Any, code: int
) -> None:
    taken = await start(http, id="taken", correlation_key="key")
    await parked(http, "taken")
    before = await everything(store)
    answer = await http.post("/instances", json=body)
    assert answer.status_code == code, answer.text
    assert answer.json()["error"]
    assert code != 409 or answer.json()["holder"] == taken["id"]
    assert await everything(store) == before


async def test_a_signal_wakes_is_stored_or_is_a_duplicate(http: httpx.AsyncClient) -> None:
    await start(http, id="o-1")
    await parked(http, "o-1")
    key = {"Idempotency-Key": "evt-ü"}
    stored = await http.post("/instances/o-1/signals/note", json=1, headers={"Idempotency-Key": "evt-1"})
    woke = await http.post(
        "/instances/o-1/signals/paid", json={"amount": 2}, headers={b"idempotency-key": "evt-ü".encode()}
    )
    assert (stored.status_code, stored.json()) == (202, {"status": "stored"})
    assert (woke.status_code, woke.json()) == (202, {"status": "woke"})
    assert (await reached(http, "o-1", "done"))["result"] == {"amount": 2}
    again = await http.post(
        "/instances/o-1/signals/paid", headers={b"idempotency-key": key["Idempotency-Key"].encode()}
    )
    assert (again.status_code, again.json()) == (202, {"status": "duplicate"})
    gone = await http.post("/instances/o-1/signals/paid")
    assert gone.status_code == 404
    assert (await http.post("/instances/unknown/signals/paid")).status_code == 404


@pytest.mark.parametrize("key", ["a/b", "order:42", "ümlaut ☂", "100%", "a?b#c", "a+b"])
async def test_any_key_can_be_percent_encoded_in_a_path(http: httpx.AsyncClient, key: str) -> None:
    found = await start(http, correlation_key=key)
    await parked(http, key)
    path = quote(key, safe="")
    assert (await http.get(f"/instances/{path}")).json()["id"] == found["id"]
    name = quote("paid/extra", safe="")
    assert (await http.post(f"/instances/{path}/signals/{name}")).json() == {"status": "stored"}
    history = (await http.get(f"/instances/{path}/events")).json()["items"]
    assert history[-1]["data"]["name"] == "paid/extra"


async def test_cancel_and_retry(http: httpx.AsyncClient) -> None:
    await start(http, id="o-1")
    await parked(http, "o-1")
    early = await http.post("/instances/o-1/retry")
    assert early.status_code == 409
    await http.post("/instances/o-1/signals/refused")
    assert (await reached(http, "o-1", "failed"))["error"] == "no money"
    again = await http.post("/instances/o-1/retry")
    assert (again.status_code, again.json()["id"]) == (200, "o-1")
    await start(http, id="o-2")
    cancelled = await http.post("/instances/o-2/cancel", json={"reason": "changed my mind"})
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert "changed my mind" in cancelled.json()["error"]
    late = await http.post("/instances/o-2/cancel")
    assert (late.status_code, late.json()["status"]) == (409, "cancelled")
    for verb in ("cancel", "retry"):
        assert (await http.post(f"/instances/unknown/{verb}")).status_code == 404
    assert (await http.post("/instances/o-1/cancel", json={"reason": 5})).status_code == 422


async def test_the_list_is_newest_first_filtered_and_paged(http: httpx.AsyncClient) -> None:
    ids = [(await start(http))["id"] for _ in range(5)]
    seen: list[str] = []
    after = None
    while True:
        params = {"limit": "2", **({"after": after} if after else {})}
        page = (await http.get("/instances", params=params)).json()
        seen += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert seen == ids[::-1]
    assert (await http.get("/instances", params={"definition": "Other"})).json() == {"items": [], "next": None}
    assert (await http.get("/instances", params={"status": "cancelled", "kind": "machine"})).json()["items"] == []


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "limit=", "colour=red", "limit=1&limit=2", "status=%00", "status=%FF"]
)
@pytest.mark.parametrize("path", ["/instances", "/awakeables", "/events", "/waits"])
async def test_x4_a_query_of_the_wrong_shape_is_422(http: httpx.AsyncClient, path: str, query: str) -> None:
    answer = await http.get(f"{path}?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]


async def test_an_invalid_cursor_is_refused(http: httpx.AsyncClient) -> None:
    assert (await http.get("/instances?after=unknown")).status_code == 404
    assert (await http.get("/events?after=unknown")).status_code == 422
    for after in ("unknown", "1-%00", "1-%ED%A0%80", "9" * 19 + "-x"):
        assert (await http.get(f"/waits?after={after}")).status_code == 422


async def test_events_are_the_latest_newest_last_and_pages_go_back(http: httpx.AsyncClient) -> None:
    await start(http, id="o-1")
    await parked(http, "o-1")
    await http.post("/instances/o-1/signals/paid")
    await reached(http, "o-1", "done")
    everything_of_it = ["started", "await", "signal", "done"]
    assert [e["type"] for e in (await http.get("/instances/o-1/events")).json()["items"]] == everything_of_it
    for path, params in (("/instances/o-1/events", {}), ("/events", {"job": "o-1"}), ("/events", {})):
        seen: list[str] = []
        after = None
        while True:
            page = (await http.get(path, params={**params, "limit": "3", **({"after": after} if after else {})})).json()
            seen = [event["type"] for event in page["items"]] + seen
            after = page["next"]
            if after is None:
                break
        assert seen == everything_of_it
    assert (await http.get("/events?job=unknown")).status_code == 404


async def test_events_go_forward_from_the_cursor_of_an_event(http: httpx.AsyncClient) -> None:
    await start(http, id="o-1")
    await parked(http, "o-1")
    await http.post("/instances/o-1/signals/paid")
    await reached(http, "o-1", "done")
    for path, params in (("/instances/o-1/events", {}), ("/events", {"job": "o-1"}), ("/events", {})):
        seen: list[str] = []
        after = "0.0"
        while after is not None:
            page = (await http.get(path, params={**params, "limit": "3", "after": after})).json()
            seen += [event["type"] for event in page["items"]]
            after = page["next"]
        assert seen == ["started", "await", "signal", "done"]
    [tx, seq] = page["items"][0]["cursor"]
    assert (await http.get(f"/events?after={tx}.{seq}")).json() == {"items": [], "next": None}
    assert {"seq", "instance_id", "type", "step", "data", "at"} <= set(page["items"][0])


async def test_waits_are_oldest_first_and_paged(http: httpx.AsyncClient) -> None:
    for n in range(3):
        await start(http, id=f"o-{n}")
        await parked(http, f"o-{n}")
    seen = []
    after = None
    while True:
        params = {"limit": "4", **({"after": after} if after else {})}
        page = (await http.get("/waits", params=params)).json()
        seen += [(wait["instance_id"], wait["name"]) for wait in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert [id for id, _ in seen] == ["o-0", "o-0", "o-1", "o-1", "o-2", "o-2"]
    only = (await http.get("/waits?name=paid&kind=signal&limit=10")).json()["items"]
    assert [wait["name"] for wait in only] == ["paid"] * 3
    assert list(only[0]) == ["instance_id", "kind", "name", "place", "deadline", "since"]
    assert (await http.get("/waits?kind=timer")).json()["items"] == []


async def test_b7_a_broadcast_returns_the_number_of_receivers(http: httpx.AsyncClient) -> None:
    answer = await http.post("/signal", json={"SignalName": "market-open", "Payload": {"x": 1}})
    assert (answer.status_code, answer.json()) == (200, {"DeliveredCount": 0})
    twice = [
        await http.post("/signal", json={"SignalName": "x"}, headers={"Idempotency-Key": "evt-1"}) for _ in range(2)
    ]
    assert [again.json() for again in twice] == [{"DeliveredCount": 0}] * 2
    for body in ({}, {"SignalName": ""}, {"SignalName": 1}, {"SignalName": "x", "Extra": 1}, []):
        assert (await http.post("/signal", json=body)).status_code == 422


async def test_unknown_paths_and_methods_are_json_errors(http: httpx.AsyncClient) -> None:
    for path in ("/nowhere", "/instances/", "/instances//cancel", "/instances/x/y/z", "/awakeables/x/resolve/"):
        answer = await http.get(path)
        assert (answer.status_code, list(answer.json())) == (404, ["error", "type"])
    answer = await http.put("/instances")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert answer.json()["error"]
    assert (await http.request("BREW", "/health")).status_code in (400, 405)


async def test_head_is_get_without_a_body(http: httpx.AsyncClient) -> None:
    answer = await http.head("/health")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
