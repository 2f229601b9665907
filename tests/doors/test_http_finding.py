"""Lists over HTTP: every filter, pages that end early, and statuses in any case."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from hark.views import listing
from tests.support.http import app_on, ask, serving
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


async def ids(http: httpx.AsyncClient, **params: str) -> list[str]:
    answer = await http.get("/instances", params=params)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["items"]]


async def test_instances_are_found_by_tags_key_and_time(http: httpx.AsyncClient) -> None:
    first = await start(http, id="a", tags={"tenant": "a"}, correlation_key="order:1")
    second = await start(http, id="b", tags={"tenant": "a", "plan": "pro"}, correlation_key="order:2")
    await start(http, id="c", correlation_key="cart:1")
    assert (first["tags"], second["tags"]) == ({"tenant": "a"}, {"tenant": "a", "plan": "pro"})
    assert await ids(http, tags='{"tenant": "a"}') == ["b", "a"]
    assert await ids(http, tags='{"tenant": "a", "plan": "pro"}') == ["b"]
    assert await ids(http, key_prefix="order:") == ["b", "a"]
    assert await ids(http, created_after=second["created_at"]) == ["c"]
    assert await ids(http, created_before=second["created_at"], tags='{"tenant": "a"}', kind="machine") == ["a"]
    assert await ids(http, key_prefix="order:", created_after="2026-01-01T00:00:00+05:00", limit="1") == ["b"]
    assert await ids(http, key_prefix="order:", limit="1", after="b") == ["a"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("tags={", 400),
        ("tags=tenant", 400),
        ("tags=[]", 422),
        ("tags=null", 200),
        ('tags={"a":1}', 422),
        ('tags={"":"a"}', 422),
        ("key_prefix=", 422),
        ("created_after=", 422),
        ("created_after=null", 422),
        ("created_after=2026-01-01", 422),
        ("created_after=2026-01-01T00:00:00", 422),
        ("created_before=1700000000", 422),
        ("created_before=2026-01-01T00:00:00+02:00", 422),  # the plus is a space
    ],
)
async def test_x4_a_malformed_filter_is_refused(http: httpx.AsyncClient, query: str, status: int) -> None:
    answer = await http.get(f"/instances?{query}")
    assert answer.status_code == status, answer.text


async def test_x4_malformed_tags_start_nothing(http: httpx.AsyncClient) -> None:
    for tags in ([], "a", {"a": 1}, {"": "a"}, {f"{n}": "a" for n in range(21)}):
        assert (await http.post("/instances", json={"definition": "Order", "tags": tags})).status_code == 422
    assert await ids(http) == []


async def test_a6_the_status_of_an_awakeable_may_be_in_any_case(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1", "prom_2")
    await http.post("/awakeables/prom_2/resolve")
    for status in ("pending", "PENDING", "Pending"):
        page = (await http.get("/awakeables", params={"status": status})).json()
        assert [one["id"] for one in page["items"]] == ["prom_1"]
    assert (await http.get("/awakeables", params={"status": "open"})).status_code == 422


async def pages(http: httpx.AsyncClient, path: str) -> list[list[str]]:
    """The ids of each page, by `next`."""
    found, after = [], None
    while True:
        params = {"limit": "1000", **({"after": after} if after else {})}
        page = (await http.get(path, params=params)).json()
        found.append([one["id"] for one in page["items"]])
        after = page["next"]
        if after is None:
            return found


async def test_a_page_of_large_values_ends_early_and_next_continues(
    http: httpx.AsyncClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 1000)
    for n in range(4):
        await start(http, id=f"{n}", input={"x": "é" * 300}, queue="without-worker")
    await start(http, id="small", queue="without-worker")
    assert await pages(http, "/instances") == [["small", "3", "2"], ["1", "0"]]
    await ask(store, "prom_1", "prom_2", "prom_3")
    for n in (1, 2, 3):
        await http.post(f"/awakeables/prom_{n}/resolve", json="é" * 300)
    found = await pages(http, "/awakeables")
    assert [len(page) for page in found] == [2, 1]
    assert sorted(id for page in found for id in page) == ["prom_1", "prom_2", "prom_3"]


async def test_a_page_of_large_events_ends_early_and_next_continues(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`started` and `signal` have data: a page ends with the first of them. Backwards, and forwards from a cursor."""
    await start(http, id="i", queue="without-worker")
    for n in range(3):
        await http.post(f"/instances/i/signals/{n}")
    everything = (await http.get("/instances/i/events")).json()["items"]
    assert [event["type"] for event in everything] == ["started", "signal", "signal", "signal"]
    monkeypatch.setattr(listing, "MAX_BYTES", 1)
    for path in ("/instances/i/events", "/events", "/events?job=i"):
        assert await seqs(http, path) == [[event["seq"]] for event in reversed(everything)]
        assert await seqs(http, path, "0.0") == [[event["seq"]] for event in everything]


async def seqs(http: httpx.AsyncClient, path: str, after: str | None = None) -> list[list[int]]:
    """The events of each page that has some, by `next`."""
    found = []
    while True:
        page = (await http.get(httpx.URL(path).copy_merge_params({"after": after} if after else {}))).json()
        found.append([event["seq"] for event in page["items"]])
        after = page["next"]
        if after is None:
            return [page for page in found if page]
