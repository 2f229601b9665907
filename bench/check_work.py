"""The app that bench/check.py checks, and its processes: `python -m bench.check_work fill|worker URL`.

`fill` starts functions and lets them run until they wait. A worker executes machines that never end, and answers each
line on stdin with the number of steps that it has executed.
"""

import asyncio
import sys
from typing import Any

from hark import Context, FunctionContext, Hark, Machine, Next, Start, step, workflow

ENTRIES = 20
REAL = 200  # functions that run; the others are copies of their rows
BUSY = 100  # machines
PACE = 0.001  # seconds of other work in a step

steps = 0


async def note(number: int) -> dict[str, Any]:
    return {"number": number, "text": "a result of the size of a typical one: an id, a name, an address, an amount"}


@workflow
async def order(ctx: FunctionContext, number: int) -> int:
    total = 0
    for n in range(ENTRIES):
        total += (await ctx.run(note, number + n))["number"]
    await ctx.wait_for_signal("paid", timeout=30 * 86400)
    return total


class Busy(Machine):
    @step
    async def start(self, ctx: Context[dict[str, Any]]) -> Next:
        global steps
        steps += 1
        await asyncio.sleep(PACE)
        return Next(self.start)


app = Hark("sqlite:///check.db")
app.register(order, Busy)


async def fill(url: str) -> None:
    app = Hark(url)
    app.register(order)
    async with app, app.worker({"default": 100}):
        started = await app.start_many([Start(order, {"number": n}) for n in range(REAL)])
        for one in started:
            await one.wait_for("awaiting_signal", timeout=300)  # type: ignore[union-attr]


async def work(url: str) -> None:
    app = Hark(url)
    app.register(Busy)
    async with app, app.worker({"default": BUSY}):
        await app.start_many([Start(Busy) for _ in range(BUSY)])
        while await asyncio.to_thread(sys.stdin.readline):
            print(steps, flush=True)


if __name__ == "__main__":
    _, role, url = sys.argv
    asyncio.run({"fill": fill, "worker": work}[role](url))
