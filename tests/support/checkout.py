"""The machine of the README: an order that is paid within an hour, or never."""

from dataclasses import dataclass

from hark import Await, Context, Done, Machine, Stop, step


class Checkout(Machine, version=1, queue="checkout"):
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

    @step
    async def refund(self, ctx: Context) -> Done:
        return Done("refunded")
