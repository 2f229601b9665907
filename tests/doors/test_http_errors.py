"""X4: an error over HTTP has its message, its class as `type`, and its data."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hark import Hark
from hark.doors import errors as door_errors
from hark.doors.cli.remote import error_of_response
from hark.doors.http.responses import STATUSES, error_response
from hark.model.error_codec import ERROR_TYPES, data_of
from hark.model.errors import AlreadySettled, Conflict, Duplicate, HarkError, NotFound, StoreUnavailable
from tests.model.test_errors import EXAMPLES
from tests.support.http import app_on, ask, serving
from tests.support.stores import Store

SCHEMA = '{"type":"object","required":["approve"]}'
HTTP_DOCS = Path(__file__).parents[2] / "docs" / "http.md"
ONLY_HTTP = [kind for kind in STATUSES if kind.__module__ == door_errors.__name__]
# `error` and `type` are the message and the class; no route raises one of these.
WITHOUT_ROUTE = {"InstanceFailed", "InstanceHeld", "CallFailed", "RunFailed"}


@pytest.fixture
async def app(store: Store) -> AsyncIterator[Hark]:
    app = app_on(store, max_payload=1000)
    async with app:
        yield app


@pytest.fixture
async def http(app: Hark, store: Store) -> AsyncIterator[httpx.AsyncClient]:
    await app.start("Order", id="o-1", correlation_key="k-1")
    await app.start("Order", id="over")
    await app.cancel("over")
    await ask(store, "prom_open", schema=SCHEMA)
    await ask(store, "prom_for_ann", assignees='["ann", "bob"]')
    await ask(store, "prom_settled")
    await app.resolve("prom_settled", 1, by="ann")
    async with serving(app, worker=False) as client:
        yield client


CASES: list[tuple[str, str, Any, int, dict[str, Any]]] = [
    ("GET", "/instances/unknown", None, 404, {"type": "NotFound"}),
    ("POST", "/instances", {"definition": "Unknown"}, 404, {"type": "NotFound"}),
    ("POST", "/instances", {"definition": "Order", "id": "o-1"}, 409, {"type": "Duplicate", "holder": "o-1"}),
    ("POST", "/instances", {"definition": "Order", "correlation_key": "k-1"}, 409,
     {"type": "Duplicate", "holder": "o-1"}),
    ("POST", "/instances", {"definition": "Order", "id": "not an id"}, 422, {"type": "InvalidInput"}),
    ("POST", "/instances", {"nonsense": 1}, 422, {"type": "InvalidInput"}),
    ("POST", "/instances/over/cancel", None, 409, {"type": "Conflict", "status": "cancelled"}),
    ("POST", "/instances/o-1/retry", None, 409, {"type": "Conflict"}),
    ("POST", "/instances/unknown/signals/go", 1, 404, {"type": "NoTarget", "target": "unknown"}),
    ("POST", "/message", {"MessageName": "m", "CorrelationKey": "k"}, 404, {"type": "NoTarget", "target": "k"}),
    ("POST", "/instances/o-1/signals/go", "x" * 1001, 413, {"type": "PayloadTooLarge", "size": 1003, "limit": 1000}),
    ("POST", "/instances", {"definition": "Order", "input": "x" * 1001}, 413,
     {"type": "PayloadTooLarge", "size": 1003, "limit": 1000}),
    ("POST", "/instances", {"definition": "Order", "input": "x" * 100_000}, 413,
     {"type": "PayloadTooLarge", "limit": 1000}),
    ("POST", "/awakeables/prom_open/resolve", b'{"a":\n 1,,}', 400, {"type": "MalformedJson", "line": 2, "column": 4}),
    ("POST", "/awakeables/prom_open/resolve", {"a": 1}, 422,
     {"type": "InvalidAnswer", "problems": ["approve: is required"]}),
    ("POST", "/awakeables/prom_settled/resolve", 1, 409, {"type": "AlreadySettled", "status": "RESOLVED", "by": "ann"}),
    ("GET", "/nothing", None, 404, {"type": "NoRoute"}),
    ("DELETE", "/waits", None, 405, {"type": "NoMethod", "allow": "GET, HEAD"}),
]  # fmt: skip


async def test_x4_every_error_has_its_type_and_its_data(http: httpx.AsyncClient) -> None:
    for method, path, body, status, expected in CASES:
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = await http.request(method, path, content=content)
        found = answer.json()
        assert (answer.status_code, found | expected) == (status, found), (method, path, found)
        assert isinstance(found["error"], str)
        assert [*found][:2] == ["error", "type"]


async def test_x4_the_time_of_a_settlement_is_a_time(http: httpx.AsyncClient, app: Hark) -> None:
    answer = (await http.post("/awakeables/prom_settled/reject")).json()
    error = error_of_response(409, answer, "http://server")
    assert isinstance(error, AlreadySettled)
    assert error.at == (await app.awakeable("prom_settled")).resolved_at


async def test_x4_an_answer_of_another_person_than_the_assignees_has_a_type(http: httpx.AsyncClient, app: Hark) -> None:
    token = await app.create_token(["answer"], name="eve")
    headers = {"Authorization": f"Bearer {token.secret}"}
    answer = await http.post("/awakeables/prom_for_ann/resolve", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (403, "NotAssigned")
    assert answer.json()["problems"]


async def test_x3_errors_of_authentication_have_types_too(http: httpx.AsyncClient, app: Hark) -> None:
    token = await app.create_token(["read"])
    unknown = {"Authorization": "Bearer hark_unknown"}
    reader = {"Authorization": f"Bearer {token.secret}"}
    for headers, status, kind in (
        (unknown, 401, "Unauthenticated"),
        (reader, 403, "Forbidden"),
        ({"Origin": "https://evil.example"}, 403, "Forbidden"),
    ):
        answer = await http.post("/signal", headers=headers, json={"SignalName": "x"})
        assert (answer.status_code, answer.json()["type"]) == (status, kind)
        assert token.secret not in answer.text


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_a_client_rebuilds_the_error_that_the_server_sent(error: HarkError) -> None:
    answer = error_response(error)
    found = error_of_response(answer.status, json.loads(answer.body), "http://server")
    assert (type(found), str(found)) == (type(error), str(error))
    if type(error).__name__ not in WITHOUT_ROUTE:
        assert json.dumps(data_of(found), default=str) == json.dumps(data_of(error), default=str)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (404, {"error": "m"}, NotFound("m")),
        (404, {"error": "m", "type": "FromTheFuture"}, NotFound("m")),
        (409, {"error": "m", "type": "AlreadySettled", "status": "RESOLVED"}, AlreadySettled("m", status="RESOLVED")),
        (409, {"error": "m", "type": "AlreadySettled", "at": "yesterday"}, HarkError("m")),
        (409, {"error": "m", "status": "done"}, Conflict("m", status="done")),
        (409, {"error": "m", "type": "Duplicate"}, Duplicate("m", holder=None)),
        (503, {"error": "m", "type": 7}, StoreUnavailable("m")),
        (500, {"error": "m", "type": "InternalError"}, HarkError("m")),
        (422, {"error": "m", "type": "InvalidAnswer", "problems": 7}, HarkError("m")),
    ],
)
def test_a_client_falls_back_to_the_status_of_an_error_it_does_not_know(
    status: int, body: Any, expected: HarkError
) -> None:
    found = error_of_response(status, body, "http://server")
    assert (type(found), str(found), vars(found)) == (type(expected), str(expected), vars(expected))


def test_d5_the_document_describes_the_data_of_every_error(app: Hark) -> None:
    described = app.asgi()._context.document["components"]["schemas"]["Error"]["properties"]
    for error in EXAMPLES:
        if type(error) in STATUSES:
            assert {"error", "type", *data_of(error)} <= set(described), error
    assert "allow" in described


def test_the_table_in_the_docs_is_the_table_that_serves() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", HTTP_DOCS.read_text(), re.MULTILINE)
    documented = {name: int(status) for name, status in rows}
    assert documented == {kind.__name__: status for kind, status in STATUSES.items()} | {
        "InvalidAnswer": 422, "InvalidState": 422, "InternalError": 500
    }  # fmt: skip
    assert set(documented) <= set(ERROR_TYPES) | {kind.__name__ for kind in ONLY_HTTP} | {"InternalError"}
