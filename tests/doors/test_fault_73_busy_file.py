"""The command line beside a worker that keeps the SQLite file busy."""

import asyncio
import sys
from pathlib import Path

import pytest

from hark import Await, Context, Done, Hark, Machine, Next, Start, step
from hark.app.door_access import DoorAccess
from tests.support.stores import Store

pytestmark = pytest.mark.slow

HARK = str(Path(sys.executable).parent / "hark")


class Spins(Machine):
    @step
    async def start(self, ctx: Context) -> Next:
        return Next(self.start)


class Waits(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("note", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done(ctx.awaited[0].payload)


async def test_fault_73_a_signal_from_the_command_line_succeeds_beside_a_saturated_sqlite_worker(
    sqlite_store: Store,
) -> None:
    app = Hark(sqlite_store.url)
    async with app, app.worker({"default": 200}, grace=0.1):
        await app.start_many([Start(Spins)] * 150)
        for number in range(3):
            waits = await app.start(Waits, priority=-1)
            before = DoorAccess(app).turns
            command = [HARK, "signal", waits.id, "note", "--payload", str(number), "--db", sqlite_store.url]
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            out, _ = await process.communicate()
            assert process.returncode == 0
            assert out.decode().strip() in ("woke", "stored")
            assert await waits.result(timeout=30) == number
            assert DoorAccess(app).turns > before + 10  # it was busy all the time
