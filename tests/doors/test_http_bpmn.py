"""The routes of processes: deploy, list, undeploy, start, start events, variables; and what they refuse."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.support.bpmn_files import APPROVE, BY_MESSAGE, BY_SIGNAL, END, ORDER, START, bpmn, process
from tests.support.http import app_on, serving
from tests.support.inspect import until
from tests.support.stores import Store

BROKEN = ORDER.replace('targetRef="end"', 'targetRef="ende"')


@pytest.fixture
async def idle(store: Store) -> AsyncIterator[httpx.AsyncClient]:
    """A server without a worker: what it starts stays where it is."""
    async with serving(app_on(store), worker=False) as client:
        yield client


async def send(http: httpx.AsyncClient, text: str | bytes, kind: str = "application/xml", **params: Any) -> Any:
    return await http.post("/definitions", content=text, headers={"Content-Type": kind}, params=params)


async def processes(http: httpx.AsyncClient) -> list[tuple[str, int]]:
    items = (await http.get("/definitions")).json()["items"]
    return [(one["name"], one["version"]) for one in items if one["kind"] == "bpmn"]


async def test_b7_processes_are_deployed_listed_and_undeployed(idle: httpx.AsyncClient) -> None:
    both = bpmn(process("first", START, END), process("second", START, END))
    for kind in ("application/xml", "text/xml; charset=utf-8", "application/bpmn+xml"):
        answer = await send(idle, both, kind)
        expected = {"deployed": [{"name": "first", "version": 1}, {"name": "second", "version": 1}]}
        assert (answer.status_code, answer.json()) == (201, expected)
    assert (await send(idle, ORDER)).json() == {"deployed": [{"name": "order", "version": 1}]}
    assert (await send(idle, ORDER.replace("Approve it", "Sign"))).json()["deployed"][0]["version"] == 2
    assert await processes(idle) == [("first", 1), ("order", 2), ("second", 1)]
    gone = await idle.delete("/definitions/order")
    assert (gone.status_code, gone.json()) == (200, {"undeployed": "order"})
    assert await processes(idle) == [("first", 1), ("second", 1)]
    assert (await idle.post("/instances", json={"definition": "order"})).status_code == 404


REFUSED: list[tuple[str | bytes, str, int]] = [
    ("", "application/xml", 400),
    ("hello", "application/xml", 400),
    ("{}", "text/xml", 400),
    (b"\xff\xfe\x00", "application/xml", 400),
    ("<order/>", "application/xml", 400),
    ("<definitions", "application/xml", 400),
    (BROKEN, "application/xml", 400),
    ('<!DOCTYPE x [<!ENTITY a "b">]>' + ORDER.partition("?>")[2], "application/xml", 400),
    ("<a>" * 200_000, "application/xml", 400),
    (ORDER, "application/json", 400),
    (ORDER, "application/yaml", 400),
    (ORDER, "text/html", 400),
    (ORDER, "application/x-www-form-urlencoded", 400),
    ("<a>" * 200_000 + "</a>" * 200_000, "application/xml", 400),
    (ORDER + " " * 20_000_000, "application/xml", 413),
]


async def test_b7_what_is_not_bpmn_is_refused_with_its_problems_and_nothing_is_stored(idle: httpx.AsyncClient) -> None:
    for text, kind, status in REFUSED:
        answer = await send(idle, text, kind)
        assert answer.status_code == status, (text[:50], answer.text)
        assert answer.json()["error"]
        if status == 400:
            assert {"element", "line", "message"} == set(answer.json()["problems"][0])
    [problem] = (await send(idle, BROKEN)).json()["problems"]
    line = next(n for n, one in enumerate(BROKEN.splitlines(), 1) if "ende" in one)
    assert (problem["element"], problem["line"]) == ("f2", line)
    assert "ende" in problem["message"]
    assert await processes(idle) == []


async def test_b7_a_file_may_have_more_bytes_than_a_payload(idle: httpx.AsyncClient) -> None:
    answer = await send(idle, ORDER + "<!-- drawn -->" * 100_000)
    assert (answer.status_code, answer.json()) == (201, {"deployed": [{"name": "order", "version": 1}]})


async def test_b7_a_signal_and_a_message_start_instances(idle: httpx.AsyncClient) -> None:
    await send(idle, BY_SIGNAL)
    await send(idle, BY_MESSAGE.replace('id="triggered"', 'id="placed"'))
    answer = await idle.post("/signal", json={"SignalName": "alarm", "Payload": {"level": 3}})
    assert answer.json() == {"DeliveredCount": 1}
    body = {"MessageName": "order-placed", "CorrelationKey": "order-42", "Variables": {"total": 3}}
    answer = await idle.post("/message", json=body)
    [id] = answer.json()["WorkflowInstanceIds"]
    found = (await idle.get("/instances/order-42")).json()
    assert (found["id"], found["definition"], found["kind"]) == (id, "placed", "bpmn")
    assert found["state"] == {"variables": {"total": 3}, "tokens": [], "incidents": []}
    again = await idle.post("/message", json=body)
    assert (again.status_code, again.json()["holder"]) == (409, id)


async def test_b7_variables_are_set_with_patch(idle: httpx.AsyncClient) -> None:
    await send(idle, ORDER)
    body = {"definition": "order", "input": {"a": 1, "b": 2}, "id": "o-1"}
    assert (await idle.post("/instances", json=body)).status_code == 201
    answer = await idle.patch("/instances/o-1/variables", json={"b": 3, "c": {"d": None}})
    assert answer.status_code == 200
    assert answer.json()["state"]["variables"] == {"a": 1, "b": 3, "c": {"d": None}}
    assert (await idle.get("/instances/o-1")).json() == answer.json()
    for wrong, status in (("[1]", 422), ("3", 422), ("null", 422), ("", 422), ('"b=3"', 422), ("{", 400)):
        assert (await idle.patch("/instances/o-1/variables", content=wrong)).status_code == status
    assert (await idle.patch("/instances/nothing/variables", json={})).status_code == 404
    assert (await idle.post("/instances", json={"definition": "Order", "id": "m-1"})).status_code == 201
    assert (await idle.patch("/instances/m-1/variables", json={"a": 1})).status_code == 422
    assert (await idle.post("/instances/o-1/cancel")).status_code == 200
    assert (await idle.patch("/instances/o-1/variables", json={"a": 1})).status_code == 409


async def test_b7_a_process_runs_over_http_from_its_deploy_to_its_end(store: Store) -> None:
    catch = '<intermediateCatchEvent id="paid"><messageEventDefinition messageRef="m"/></intermediateCatchEvent>'
    text = bpmn(process("order", START, APPROVE, catch, END), definitions='<message id="m" name="payment"/>')
    async with serving(app_on(store)) as http:

        async def reached(*tokens: str) -> dict[str, Any]:
            found: dict[str, Any] = {}

            async def there() -> bool:
                found.update((await http.get("/instances/order-42")).json())
                return bool(found["state"]["tokens"] == list(tokens))

            await until(there, f"tokens at {tokens}")
            return found

        await send(http, text)
        body = {"definition": "order", "input": {"total": 3}, "correlation_key": "order-42"}
        assert (await http.post("/instances", json=body)).status_code == 201
        assert (await reached("approve"))["status"] == "awaiting_signal"
        [asked] = (await http.get("/awakeables", params={"job": "order-42", "status": "PENDING"})).json()["items"]
        assert (asked["task"], asked["title"]) == ("approve", "Approve it")
        answer = await http.post(f"/awakeables/{asked['id']}/resolve", json={"approved": True})
        assert answer.status_code == 200
        await reached("paid")
        why = (await http.get("/instances/order-42/why")).json()
        assert [wait["wake"] for wait in why["waits"]] == ["hark message payment order-42"]
        sent = {"MessageName": "payment", "CorrelationKey": "order-42", "Variables": {"amount": 3}}
        assert (await http.post("/message", json=sent)).json()["Delivered"] is True
        ended = await reached()
        assert (ended["status"], ended["result"]) == ("done", {"total": 3, "approved": True, "amount": 3})
        assert ended["state"]["variables"] == ended["result"]
        assert (await http.post("/message", json=sent)).status_code == 404
