"""B7: `POST /message`: one receiver, or 404."""

from typing import Any

import httpx

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


async def _send(client: httpx.AsyncClient, key: str, *, dedup_key: str | None = None, **more: Any) -> httpx.Response:
    body = {"MessageName": "payment", "CorrelationKey": key, "Variables": {"amount": 120}, **more}
    return await client.post("/message", json=body, headers={} if dedup_key is None else {"Idempotency-Key": dedup_key})
