"""B7: `POST /message`: one receiver, or 404. `POST /signal`: all subscribers. Both in either spelling."""

from typing import Any

import httpx
import pytest

from hark import Await, Broadcast, Context, Done, Machine, step
from hark.model.decisions import Arm, Park
from tests.promises.support_signals import Turns
from tests.support.http import app_on, serving
from tests.support.stores import Store


async def test_b7_a_message_is_delivered_to_the_instance_that_waits_for_it(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("m")
        await turns.start("m", "i")
        await turns.commit(await turns.claim("m"), Park((Arm("message", "w", name="payment", key="order-42"),)))
    async with serving(app_on(store)) as client:
        assert (await _send(client, "order-24")).status_code == 404
        answer = await _send(client, "order-42")
        assert (answer.status_code, answer.json()) == (200, {"Delivered": True, "WorkflowInstanceIds": ["i"]})
        assert (await _send(client, "order-42")).status_code == 404
        assert (await _send(client, "")).status_code == 422
        assert (await client.post("/message", json={"MessageName": "x"})).status_code == 422
        assert (await client.post("/message", content=b"{")).status_code == 400


async def test_b7_a_message_with_a_ttl_is_kept_until_an_instance_waits_for_it(store: Store) -> None:
    kept = {"Delivered": False, "WorkflowInstanceIds": []}
    async with serving(app_on(store)) as client:
        answer = await _send(client, "order-42", ttl=3600)
        assert (answer.status_code, answer.json()) == (200, kept)
        assert (await _send(client, "order-42", dedup_key="a", ttl=0.5)).json() == kept
        assert (await _send(client, "order-42", dedup_key="a")).json() == kept
        for ttl in (-1, "1", None, 1e12):
            assert (await _send(client, "order-42", ttl=ttl)).status_code == 422
        async with Turns(store) as turns:
            await turns.register("m")
            await turns.start("m", "i")
            await turns.commit(await turns.claim("m"), Park((Arm("message", "w", name="payment", key="order-42"),)))
            [row] = (await turns.claim("m")).inbox
            assert row.payload == '{"amount":120}'


class Listener(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast("market-open"), then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


@pytest.mark.parametrize(("name", "payload"), [("SignalName", "Payload"), ("signalName", "payload")])
async def test_b7_a_broadcast_is_sent_in_either_spelling(store: Store, name: str, payload: str) -> None:
    app = app_on(store)
    app.register(Listener)
    async with serving(app) as http:
        listener = await app.start(Listener)
        await listener.wait_for("awaiting_signal", timeout=60)
        for body in ({name: ""}, {name: 1}, {name: None}, {name: "x", "Extra": 1}, {payload: 1}):
            assert (await http.post("/signal", json=body)).status_code == 422
        answer = await http.post("/signal", json={name: "market-open", payload: {"x": 1}})
        assert (answer.status_code, answer.json()) == (200, {"DeliveredCount": 1})
        assert await listener.result(timeout=60) == {"x": 1}


async def test_b7_a_message_is_sent_in_camel_case_too(store: Store) -> None:
    async with Turns(store) as turns:
        await turns.register("m")
        await turns.start("m", "i")
        await turns.commit(await turns.claim("m"), Park((Arm("message", "w", name="payment", key="order-42"),)))
    body = {"messageName": "payment", "correlationKey": "order-42", "variables": {"amount": 120}}
    async with serving(app_on(store)) as client:
        assert (await client.post("/message", json={**body, "Variables": 1})).status_code == 422
        answer = await client.post("/message", json=body)
        assert (answer.status_code, answer.json()) == (200, {"Delivered": True, "WorkflowInstanceIds": ["i"]})
    async with Turns(store) as turns:
        [row] = (await turns.claim("m")).inbox
        assert row.payload == '{"amount":120}'


async def _send(client: httpx.AsyncClient, key: str, *, dedup_key: str | None = None, **more: Any) -> httpx.Response:
    body = {"MessageName": "payment", "CorrelationKey": key, "Variables": {"amount": 120}, **more}
    return await client.post("/message", json=body, headers={} if dedup_key is None else {"Idempotency-Key": dedup_key})
