"""A6: the routes, bodies and status codes of awakeables, on a real server, called with curl."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import fields

import httpx
import pytest

from hark import Awakeable, Hark
from tests.support.http import app_on, ask, serving
from tests.support.inspect import everything
from tests.support.stores import Store


@pytest.fixture
async def app(store: Store) -> Hark:
    return app_on(store)


@pytest.fixture
async def http(app: Hark) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app, worker=False) as client:
        yield client


async def curl(*args: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "-w", "\n%{http_code}", *args, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    body, _, code = out.decode().rpartition("\n")
    return int(code), body


async def test_a6_curl_resolves_an_awakeable(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1abc123")
    port = http.base_url.port
    code, body = await curl(
        "-X", "POST", f"http://localhost:{port}/awakeables/prom_1abc123/resolve",
        "-H", "Content-Type: application/json", "-d", '{"action":"approve","data":{"key":"value"}}',
    )  # fmt: skip
    assert code == 200
    assert json.loads(body) == {
        "success": True,
        "awakeable_id": "prom_1abc123",
        "payload": {"action": "approve", "data": {"key": "value"}},
        "message": "Awakeable resolved successfully",
    }
    code, body = await curl(f"http://localhost:{port}/health")
    assert (code, json.loads(body)["status"]) == (200, "ok")


async def test_a6_without_a_content_type_as_curl_sends_it(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1")
    code, _ = await curl(f"http://localhost:{http.base_url.port}/awakeables/prom_1/resolve", "-d", '"approved"')
    assert code == 200


async def test_a6_resolving_is_recorded(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1")
    await http.post("/awakeables/prom_1/resolve", json={"action": "approve"})
    shown = (await http.get("/awakeables/prom_1")).json()
    assert (shown["status"], shown["payload"], shown["answered_by"]) == ("RESOLVED", {"action": "approve"}, None)
    assert shown["resolved_at"] is not None
    assert (await http.get("/events")).json()["items"][-1]["data"]["via"] == "http"


async def test_a6_an_empty_body_resolves_with_null(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1")
    answer = await http.post("/awakeables/prom_1/resolve")
    assert (answer.status_code, answer.json()["payload"]) == (200, None)


@pytest.mark.parametrize("body", [None, b"{}", b'{"error": "too dear"}'])
async def test_a6_reject(http: httpx.AsyncClient, store: Store, body: bytes | None) -> None:
    await ask(store, "prom_1")
    answer = await http.post("/awakeables/prom_1/reject", content=body)
    reason = "too dear" if body and b"dear" in body else "rejected"
    assert answer.status_code == 200
    assert answer.json() == {
        "success": True, "awakeable_id": "prom_1", "error": reason, "message": "Awakeable rejected successfully",
    }  # fmt: skip
    shown = (await http.get("/awakeables/prom_1")).json()
    assert (shown["status"], shown["error"]) == ("REJECTED", reason)


@pytest.mark.parametrize("verb", ["resolve", "reject"])
async def test_a6_an_unknown_id_is_404(http: httpx.AsyncClient, verb: str) -> None:
    answer = await http.post(f"/awakeables/prom_1nobody/{verb}")
    assert answer.status_code == 404
    assert "prom_1nobody" in answer.json()["error"]


@pytest.mark.parametrize("verb", ["resolve", "reject"])
async def test_a6_a_settled_awakeable_is_409_and_says_who_answered(
    http: httpx.AsyncClient, store: Store, verb: str
) -> None:
    await ask(store, "prom_1")
    await http.post("/awakeables/prom_1/resolve", json=1)
    before = await everything(store)
    answer = await http.post(f"/awakeables/prom_1/{verb}")
    assert answer.status_code == 409
    assert answer.json()["status"] == "RESOLVED"
    assert "settles once" in answer.json()["error"]
    assert await everything(store) == before


@pytest.mark.parametrize("body", [b"[]", b'{"error": 1}', b'{"reason": "x"}', b'"no"', b"null"])
async def test_a6_a_rejection_of_the_wrong_shape_is_422(http: httpx.AsyncClient, store: Store, body: bytes) -> None:
    await ask(store, "prom_1")
    before = await everything(store)
    answer = await http.post("/awakeables/prom_1/reject", content=body)
    assert answer.status_code == 422
    assert await everything(store) == before


async def test_fault_42_two_hundred_racing_resolvers_are_one_200_and_199_times_409(
    http: httpx.AsyncClient, store: Store
) -> None:
    await ask(store, "prom_1")
    answers = await asyncio.gather(*(http.post("/awakeables/prom_1/resolve", json=n) for n in range(200)))
    codes = [answer.status_code for answer in answers]
    assert (codes.count(200), codes.count(409)) == (1, 199)
    assert (await http.get("/awakeables/prom_1")).json()["payload"] == answers[codes.index(200)].json()["payload"]


async def test_a6_the_list_is_filtered_and_paged(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1", "prom_2", "prom_3")
    await http.post("/awakeables/prom_2/resolve")
    pending = (await http.get("/awakeables", params={"status": "PENDING"})).json()
    assert sorted(one["id"] for one in pending["items"]) == ["prom_1", "prom_3"]
    mine = (await http.get("/awakeables", params={"job": "asks-prom_2"})).json()
    assert [one["id"] for one in mine["items"]] == ["prom_2"]
    seen, after = [], None
    while True:
        params = {"limit": "2", **({"after": after} if after else {})}
        page = (await http.get("/awakeables", params=params)).json()
        seen += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert sorted(seen) == ["prom_1", "prom_2", "prom_3"]


async def test_a6_an_answer_that_does_not_match_its_schema_is_422_with_the_reasons(
    http: httpx.AsyncClient, store: Store
) -> None:
    await ask(store, "prom_1", schema='{"type": "object", "required": ["action"]}')
    before = await everything(store)
    answer = await http.post("/awakeables/prom_1/resolve", json={"colour": "red"})
    assert answer.status_code == 422
    assert any("action" in problem for problem in answer.json()["problems"])
    assert await everything(store) == before
    assert (await http.post("/awakeables/prom_1/resolve", json={"action": "approve"})).status_code == 200


async def test_a6_the_keys_are_the_attribute_names(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1", title="Deploy?", schema='{"type": "object"}')
    shown = (await http.get("/awakeables/prom_1")).json()
    assert set(shown) == {field.name for field in fields(Awakeable)}
    assert (shown["title"], shown["schema"]) == ("Deploy?", {"type": "object"})
    assert shown["url"].startswith(f"{http.base_url}/a/prom_1")


async def test_b6_claim_and_unclaim_over_http(http: httpx.AsyncClient, store: Store) -> None:
    await ask(store, "prom_1", groups='["managers"]', due_at=1_800_000_000_000_000)
    claimed = await http.post("/awakeables/prom_1/claim", json={"by": "ann"})
    assert (claimed.status_code, claimed.json()["claimed_by"], claimed.json()["groups"]) == (200, "ann", ["managers"])
    assert claimed.json() == (await http.get("/awakeables/prom_1")).json()
    refused = await http.post("/awakeables/prom_1/claim", json={"by": "bob"})
    assert (refused.status_code, refused.json()["type"], refused.json()["by"]) == (409, "AlreadyClaimed", "ann")
    given_back = await http.post("/awakeables/prom_1/unclaim")
    assert (given_back.status_code, given_back.json()["claimed_by"]) == (200, None)
    assert (await http.get("/events")).json()["items"][-1]["data"] == {
        "awakeable": "prom_1", "by": "ann", "via": "http",
    }  # fmt: skip
    for body in ({}, {"by": 1}, {"by": ""}, {"by": "ann", "more": 1}, [], None):
        assert (await http.post("/awakeables/prom_1/claim", json=body)).status_code == 422
    await http.post("/awakeables/prom_1/resolve")
    for verb, body in (("claim", {"by": "ann"}), ("unclaim", None)):
        assert (await http.post(f"/awakeables/prom_1/{verb}", json=body)).status_code == 409
        assert (await http.post(f"/awakeables/prom_1nobody/{verb}", json=body)).status_code == 404
