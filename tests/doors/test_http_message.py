"""B7: `POST /message`: one receiver, or 404."""

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


async def _send(client: httpx.AsyncClient, key: str) -> httpx.Response:
    body = {"MessageName": "payment", "CorrelationKey": key, "Variables": {"amount": 120}}
    return await client.post("/message", json=body)
