"""From start to done, through every layer, on both stores."""

from dataclasses import dataclass

from hark import Await, Context, Done, Hark, Machine, Stop, step
from tests.support.stores import Store


class Checkout(Machine):
    @dataclass
    class State:
        order: int
        n: int = 0

    @step
    async def start(self, ctx: Context) -> Await:
        ctx.state.n += 1
        return Await("payment_confirmed", then=self.ship, timeout=3600)

    @step
    async def ship(self, ctx: Context) -> Done | Stop:
        if ctx.timed_out:
            return Stop("payment never came")
        return Done({"order": ctx.state.order, "paid": ctx.awaited[0].payload})


async def test_an_order_is_started_signalled_and_done(store: Store) -> None:
    app = Hark(store.url, **store.options)
    async with app, app.worker():
        order = await app.start(Checkout, {"order": 42}, correlation_key="order:42")
        await app.signal("order:42", "payment_confirmed", {"amount": 100}, dedup_key="evt-7")
        assert await order.result(timeout=60) == {"order": 42, "paid": {"amount": 100}}
        assert (await app.signal(order, "payment_confirmed", dedup_key="evt-7")).status == "duplicate"
