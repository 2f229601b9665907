"""The workflow of an order: reserve, charge, ask for approval of large orders, wait for the warehouse, ship.

Run workers with `hark worker --app orders:app`, as many as you like. When an order fails or is cancelled, what was done
for it is undone in reverse order: the refund first, then the stock.
"""

import os
from dataclasses import dataclass

import shop

from hark import Hark, RetryPolicy, workflow

app = Hark(
    os.environ.get("HARK_DB", "sqlite:///orders.db"),
    schema=os.environ.get("ORDERS_SCHEMA", "hark"),  # of PostgreSQL
    lease=float(os.environ.get("ORDERS_LEASE", "30")),  # seconds until another worker continues the steps of a dead one
)

LARGE = 10_000
CHARGING = RetryPolicy(5, delay=0.2, max_delay=60, unless=(shop.CardDeclined,))


@dataclass
class Approval:
    approved: bool
    reason: str = ""


@workflow
async def order(ctx, order_id: str, item: str, quantity: int, amount: int):
    ctx.progress("reserving")
    await ctx.run(shop.reserve, order_id, item, quantity, undo=shop.release)
    ctx.progress("charging")
    await ctx.run(shop.charge, order_id, amount, retries=CHARGING, undo=shop.refund)
    if amount >= LARGE:
        ctx.progress("waiting for approval")
        question = await ctx.awakeable(title=f"Ship order {order_id} of {amount}?", schema=Approval, timeout=7 * 86400)
        ctx.log.info("approval of order %s: %s", order_id, question.id)
        answer = await question
        if not answer.approved:
            raise OrderRefused(answer.reason or "not approved")
    ctx.progress("packing")
    await ctx.wait_for_signal("packed", timeout=3 * 86400)
    ctx.progress("shipping")
    tracking = await ctx.run(shop.ship, order_id)
    return {"order_id": order_id, "tracking": tracking}


class OrderRefused(Exception):
    """A person decided that the order is not shipped."""


app.register(order)
