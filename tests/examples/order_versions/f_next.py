"""The sixth deploy: no order needs the patch any more; version 3 has the check for fraud."""

import os
from dataclasses import dataclass

import shop

from hark import Hark, RetryPolicy, workflow

app = Hark(
    os.environ.get("HARK_DB", "sqlite:///orders.db"),
    schema=os.environ.get("ORDERS_SCHEMA", "hark"),
    lease=float(os.environ.get("ORDERS_LEASE", "30")),
)

LARGE = 10_000
CHARGING = RetryPolicy(8, delay=0.2, max_delay=60, unless=(shop.CardDeclined,))


@dataclass
class Approval:
    approved: bool
    reason: str = ""


class OrderRefused(Exception):
    """A person decided that the order is not shipped."""


def note(order_id, what):
    """Write down that something was done for an order, each time that it is done."""
    with shop.database() as db:
        db.execute("CREATE TABLE IF NOT EXISTS notes (order_id TEXT, what TEXT)")
        db.execute("INSERT INTO notes VALUES (?, ?)", (order_id, what))


async def approve(ctx, order_id, amount):
    ctx.progress("waiting for approval")
    question = await ctx.awakeable(title=f"Ship order {order_id} of {amount}?", schema=Approval, timeout=7 * 86400)
    ctx.log.info("approval of order %s: %s", order_id, question.id)
    answer = await question
    if not answer.approved:
        raise OrderRefused(answer.reason or "not approved")


@workflow(name="order")
async def order_1(ctx, order_id: str, item: str, quantity: int, amount: int):
    ctx.progress("reserving")
    await ctx.run(shop.reserve, order_id, item, quantity, undo=shop.release)
    await ctx.run(note, order_id, "address checked", name="check the address")
    ctx.progress("charging")
    await ctx.run(shop.charge, order_id, amount, retries=CHARGING, undo=shop.refund)
    if amount >= LARGE:
        await approve(ctx, order_id, amount)
    ctx.progress("packing")
    await ctx.wait_for_signal("packed", timeout=5 * 86400)
    ctx.progress("shipping")
    parcel = await ctx.run(shop.ship, order_id)
    await ctx.run(note, order_id, "thanked", name="thank")
    return {"order_id": order_id, "tracking": parcel}


@workflow(name="order", version=2)
async def order_2(ctx, order_id: str, item: str, quantity: int, amount: int):
    ctx.progress("reserving")
    await ctx.run(shop.reserve, order_id, item, quantity, undo=shop.release)
    await ctx.run(note, order_id, "address checked", name="check the address")
    if amount >= LARGE:
        await approve(ctx, order_id, amount)
    ctx.progress("packing")
    await ctx.wait_for_signal("packed", timeout=5 * 86400)
    ctx.progress("charging")
    await ctx.run(shop.charge, order_id, amount, retries=CHARGING, undo=shop.refund)
    ctx.progress("shipping")
    parcel = await ctx.run(shop.ship, order_id)
    await ctx.run(note, order_id, "thanked", name="thank")
    return {"order_id": order_id, "tracking": parcel}


@workflow(version=3)
async def order(ctx, order_id: str, item: str, quantity: int, amount: int):
    await ctx.run(note, order_id, "fraud checked", name="check for fraud")
    ctx.progress("reserving")
    await ctx.run(shop.reserve, order_id, item, quantity, undo=shop.release)
    await ctx.run(note, order_id, "address checked", name="check the address")
    if amount >= LARGE:
        await approve(ctx, order_id, amount)
    ctx.progress("packing")
    await ctx.wait_for_signal("packed", timeout=5 * 86400)
    ctx.progress("charging")
    await ctx.run(shop.charge, order_id, amount, retries=CHARGING, undo=shop.refund)
    ctx.progress("shipping")
    parcel = await ctx.run(shop.ship, order_id)
    await ctx.run(note, order_id, "thanked", name="thank")
    return {"order_id": order_id, "tracking": parcel}


app.register(order_1, order_2, order)
