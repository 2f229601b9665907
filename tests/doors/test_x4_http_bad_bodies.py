"""X4, faults 64 and 65: invalid requests get a 4xx with a reason, and store nothing."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.http import app_on, ask, serving
from tests.support.inspect import everything
from tests.support.stores import Store

LIMIT = 10_000


@pytest.fixture
async def http(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app_on(store, max_payload=LIMIT), worker=False) as client:
        await client.post("/instances", json={"definition": "Order", "id": "o-1"})
        await ask(store, "prom_1")
        yield client


PATHS = ["/awakeables/prom_1/resolve", "/awakeables/prom_1/reject", "/instances/o-1/signals/x", "/instances", "/signal"]
BROKEN = {
    "cut short": b'{"a": ',
    "NUL": b'{"a": "\\u0000"}',
    "a raw NUL": b'"\x00"',
    "a lone surrogate": b'{"a": "\\ud800"}',
    "1e999": b'{"a": 1e999}',
    "NaN": b"NaN",
    "a key twice": b'{"a": 1, "a": 2}',
    "not UTF-8": b'"\xff"',
    "absurd nesting": b"[" * 3000 + b"]" * 3000,
    "two values": b"1 2",
    "a form": b"a=1&b=2",
    "blank": b" \n",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
async def test_fault_65_malformed_json_is_400(http: httpx.AsyncClient, store: Store, body: bytes) -> None:
    before = await everything(store)
    for path in PATHS:
        answer = await http.post(path, content=body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]
    assert await everything(store) == before


async def test_fault_64_a_payload_at_the_limit_is_accepted_and_one_byte_more_is_413(
    http: httpx.AsyncClient, store: Store
) -> None:
    at_the_limit = json.dumps("x" * (LIMIT - 2)).encode()
    before = await everything(store)
    for path in PATHS[:3]:
        answer = await http.post(path, content=at_the_limit + b" ")
        assert answer.status_code == 413, answer.text
        assert str(LIMIT) in answer.json()["error"]
    assert await everything(store) == before
    assert (await http.post("/awakeables/prom_1/resolve", content=at_the_limit)).status_code == 200
    assert (await http.post("/instances/o-1/signals/x", content=at_the_limit)).status_code == 202


async def test_fault_64_the_envelope_does_not_count_against_the_payload(http: httpx.AsyncClient) -> None:
    for size, code in ((LIMIT, 201), (LIMIT + 1, 413)):
        body = {"definition": "Order", "input": {"k": "x" * (size - 8)}}
        assert (await http.post("/instances", json=body)).status_code == code
    for size, code in ((LIMIT, 200), (LIMIT + 1, 413)):
        body = {"SignalName": "x", "Payload": "x" * (size - 2)}
        assert (await http.post("/signal", json=body)).status_code == code


async def test_fault_64_a_chunked_body_above_the_limit_is_413(http: httpx.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 10_000
            yield b"x" * 10_000

    answer = await http.post("/awakeables/prom_1/resolve", content=endless())
    assert answer.status_code == 413
    assert (await http.get("/awakeables/prom_1")).json()["status"] == "PENDING"


async def test_fault_64_a_chunked_body_within_the_limit_is_accepted(http: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"a": '
        yield b"1}"

    answer = await http.post("/awakeables/prom_1/resolve", content=pieces())
    assert (answer.status_code, answer.json()["payload"]) == (200, {"a": 1})


@pytest.mark.parametrize("name", ["x" * 256, "%00", "%ED%A0%80", "%FF"])
async def test_x4_names_that_no_store_can_hold_are_422(http: httpx.AsyncClient, store: Store, name: str) -> None:
    before = await everything(store)
    for method, path in (
        ("POST", f"/instances/o-1/signals/{name}"), ("POST", f"/instances/{name}/signals/x"),
        ("GET", f"/instances/{name}"),
        ("GET", f"/instances/{name}/events"), ("POST", f"/instances/{name}/cancel"), ("GET", f"/awakeables/{name}"),
        ("POST", f"/awakeables/{name}/resolve"),
    ):  # fmt: skip
        answer = await http.request(method, path)
        assert answer.status_code == 422, (path, answer.text)
    assert (await http.post("/instances/o-1/signals/x", headers={"Idempotency-Key": "k" * 256})).status_code == 422
    assert (await http.post("/instances/o-1/signals/x", headers=[(b"Idempotency-Key", b"\xff")])).status_code == 422
    assert await everything(store) == before


async def test_x4_numbers_are_returned_as_they_were_sent(http: httpx.AsyncClient) -> None:
    body = b'{"a": 1e22, "b": -0.0, "c": 12345678901234567890123, "d": 0.1}'
    answer = await http.post("/awakeables/prom_1/resolve", content=body)
    assert answer.status_code == 200, answer.text
    shown = (await http.get("/awakeables/prom_1")).text
    assert '{"a":1e22,"b":-0.0,' in shown
