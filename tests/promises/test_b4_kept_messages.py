"""B4: a message that is sent before a process waits for it is kept for its time, and received once."""

from datetime import timedelta

import pytest

from hark import InvalidInput, NoTarget
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.bpmn_files import END, START, bpmn, process
from tests.support.harness import drained
from tests.support.stores import Store

RECEIVE = '<receiveTask id="{}" messageRef="m"/>'
PAID = bpmn(
    process("paid", START, '<userTask id="before"/>', RECEIVE.format("one"), RECEIVE.format("two"), END),
    definitions='<message id="m" name="payment"/>',
)


async def test_b4_a_process_receives_the_messages_that_were_kept_for_it_in_their_order(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(PAID)
        with pytest.raises(NoTarget):
            await app.message("payment", "order-42")
        assert await app.message("payment", "order-42", {"first": 1, "n": 1}, ttl=60, dedup_key="a") is None
        assert await app.message("payment", "order-42", {"n": 2}, ttl=timedelta(minutes=1)) is None
        order = await drained(app, app.start("paid", correlation_key="order-42"))
        assert (await order.get()).state["tokens"] == ["before"]  # it does not wait for it yet
        await drained(app, app.resolve((await app.awakeables())[0].id))
        assert await order.result() == {"first": 1, "n": 2}
        repeated = await app.message("payment", "order-42", ttl=60, dedup_key="a")
        assert repeated is not None
        assert repeated.id == order.id


async def test_b4_fault_62_a_process_does_not_receive_a_message_whose_time_is_over(store: Store) -> None:
    async with harness(store) as app:
        await app.deploy(PAID)
        order = await drained(app, app.start("paid", correlation_key="order-42"))
        await app.message("payment", "order-42", {"late": True}, ttl=60)
        await app.advance(60)
        await drained(app, app.resolve((await app.awakeables())[0].id))
        assert (await order.get()).state["tokens"] == ["one"]
        assert [wait.name for wait in await app.waits(kind="message")] == ["payment"]
        received = await app.message("payment", "order-42", {"late": False}, ttl=60)
        assert received is not None
        await app.drain()
        assert (await order.get()).state == {"variables": {"late": False}, "tokens": ["two"], "incidents": []}


@pytest.mark.parametrize("ttl", [-1, float("nan"), "60", None, timedelta(seconds=-1), 10**12])
async def test_b4_a_malformed_time_to_live_is_refused(ttl: object) -> None:
    async with Harness() as app:
        with pytest.raises(InvalidInput, match="ttl"):
            await app.message("payment", "order-42", ttl=ttl)
