"""An order waits for its payment, its process is killed, and a new process finishes it.

Run it: `python examples/01_checkout.py`. The first process kills itself with SIGKILL while the order waits; the second
process opens the same file and continues.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hark import Await, Context, Done, Hark, Machine, Next, Stop, step


class Checkout(Machine):
    @dataclass
    class State:
        order: int
        reserved: bool = False

    @step
    async def start(self, ctx: Context) -> Next:
        ctx.state.reserved = True
        return Next(self.wait_for_payment)

    @step
    async def wait_for_payment(self, ctx: Context) -> Await:
        return Await("payment", then=self.ship, timeout=3600)

    @step
    async def ship(self, ctx: Context) -> Done | Stop:
        if ctx.timed_out:
            return Stop("payment did not arrive")
        return Done({"order": ctx.state.order, "paid": ctx.awaited[0].payload["amount"]})


async def order_then_crash(url: str) -> None:
    app = Hark(url)
    async with app, app.worker():
        order = await app.start(Checkout, {"order": 42}, correlation_key="order:42")
        await order.wait_for("awaiting_signal", timeout=30)
        print("  order 42 waits for its payment; this process now kills itself with SIGKILL", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


async def recover_and_pay(url: str) -> None:
    app = Hark(url)
    app.register(Checkout)
    async with app, app.worker():
        order = await app.get("order:42")
        print(f"  order 42 is still there: {order.status}, next step {order.step!r}, state {order.state}")
        delivery = await app.signal("order:42", "payment", {"amount": 100}, dedup_key="evt-7")
        print(f"  the payment webhook arrives: {delivery.status}")
        print(f"  result: {await app.result(order.id, timeout=10)}")
        again = await app.signal("order:42", "payment", {"amount": 100}, dedup_key="evt-7")
        print(f"  the webhook is delivered again: {again.status}")
        print("  history of the order:")
        for event in await app.events(order.id):
            print(f"    {event.at:%H:%M:%S.%f}  {event.type:<8} {event.step or '':<16} {event.data or ''}")


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "first-process":
        asyncio.run(order_then_crash(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'hark.db'}"
        print("first process")
        first = subprocess.run([sys.executable, __file__, "first-process", url], check=False)
        assert first.returncode == -signal.SIGKILL, "The first process should have been killed."
        print("second process")
        asyncio.run(recover_and_pay(url))


if __name__ == "__main__":
    main()
