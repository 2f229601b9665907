"""The migration of 10,000 machines to another version on both stores, beside instances that start.

Prints the machines moved per second and the longest start meanwhile, against their bounds.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.postgres import create_database, postgres  # noqa: E402
from bench.table import Line, rate  # noqa: E402
from hark import Await, Context, Done, Hark, Machine, Start, step  # noqa: E402

MACHINES = 10_000
PER_SECOND, LONGEST = 2_000, 0.050
PAUSE = 0.005  # seconds between two probes


def cart(version: int, following: str) -> Any:
    class Cart(Machine, name="cart", version=version):
        @step
        async def start(self, ctx: Context[Any]) -> Await:
            return Await("paid", then=following)

        @step(following)
        async def second(self, ctx: Context[Any]) -> Done:
            return Done(ctx.state)

    return Cart


def with_currency(state: Any) -> Any:
    return {**state, "currency": "EUR"}


class Probe(Machine):
    @step
    async def start(self, ctx: Context[Any]) -> Done:
        return Done()


@asynccontextmanager
async def probing(app: Hark) -> AsyncIterator[list[float]]:
    """Start instances one after the other, and note how long each start takes."""
    took: list[float] = []

    async def probe() -> None:
        while True:
            begun = time.perf_counter()
            await app.start(Probe)
            took.append(time.perf_counter() - begun)
            await asyncio.sleep(PAUSE)

    task = asyncio.create_task(probe())
    try:
        yield took
    finally:
        task.cancel()


async def measure(store: str, url: str) -> None:
    app = Hark(url)
    app.register(cart(1, "ship"), cart(2, "send"), Probe)
    async with app, app.worker({"default": 100}):
        for _ in range(10):
            await app.start_many([Start("cart", {"item": "tea"}, version=1) for _ in range(MACHINES // 10)])
        while len(await app.list(definition="cart", status="awaiting_signal", limit=1)) == 0 or await app.list(
            definition="cart", status="runnable", limit=1
        ):
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        async with probing(app) as alone:
            await asyncio.sleep(2)
        async with probing(app) as beside:
            begun = time.perf_counter()
            moved = await app.migrate(
                {"definition": "cart"}, to_version=2, state="bench.migrate:with_currency", steps={"ship": "send"}
            )
            result = await moved.result(timeout=300)
            seconds = time.perf_counter() - begun
        assert result == {"done": MACHINES, "skipped": 0, "failed": 0}, result
    per_second = MACHINES / seconds
    what = f"{store}: {MACHINES:,} machines"
    print(Line(f"{what}: moved a second", rate(per_second), rate(PER_SECOND), per_second / PER_SECOND, least=1))
    print(
        Line(
            f"{what}: longest of {len(beside)} starts beside it (without it {max(alone) * 1e3:.0f} ms)",
            f"{max(beside) * 1e3:.0f} ms", f"{LONGEST * 1e3:.0f} ms", max(beside) / LONGEST, most=1,
        ),
        flush=True,
    )  # fmt: skip


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="hark-bench-sqlite-") as folder:
        asyncio.run(measure("SQLite", f"sqlite:///{folder}/bench.db"))
    with postgres() as server:
        asyncio.run(measure("PostgreSQL", create_database(server, "bench_hark_migrate")))


if __name__ == "__main__":
    main()
