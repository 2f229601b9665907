"""The same for undo: a function that is cancelled, one that fails, and a machine with `on_cancel`.

Undos are counted outside the database: each happens at least once, and again only where its process died.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import groupby
from pathlib import Path
from typing import Any

from hark import Await, Conflict, Context, Done, Duplicate, FunctionContext, Machine, Next, RunFailed, step, workflow
from tests.crash.errand import Errand
from tests.crash.function_errand import trace

MADE = ["stock", "money", "parcel"]


@workflow
async def shipped(ctx: FunctionContext, folder: str, id: str, fails: bool) -> Any:
    def unmake(made: str) -> None:
        trace(folder, made.replace("+", "-"))

    def unmake_at_the_second_attempt(made: str) -> None:
        tried = Path(folder) / f"tried-{id}"
        if not tried.exists():
            tried.touch()
            raise OSError("the first attempt")
        unmake(made)

    await ctx.run(trace, folder, f"{id} +stock", undo=unmake)
    await ctx.run(trace, folder, f"{id} +money", undo=unmake_at_the_second_attempt, retries=1, backoff=0.001)
    await ctx.run(trace, folder, f"{id} +parcel", undo=unmake)
    if fails:
        raise RunFailed("no ship", type="OSError", message="no ship")
    await ctx.first(await ctx.awakeable(), ctx.wait_for_signal("never"), ctx.call(shipped_child, id=f"{id}-child"))


@workflow
async def shipped_child(ctx: FunctionContext) -> None:
    await ctx.wait_for_signal("never")


class Reserved(Machine, on_cancel="release"):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("never", then=self.end)

    @step
    async def release(self, ctx: Context) -> Next:
        ctx.state["released"] += 1
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        ctx.state["ended"] += 1
        return Done()


class UndoErrand(Errand):
    definitions = (shipped, shipped_child, Reserved)

    def ids(self) -> list[str]:
        return [f"{name}-{self.number}" for name in ("cancelled", "failed", "machine")]

    async def run(self) -> None:
        cancelled, failed, machine = self.ids()
        folder = str(self.acknowledged.parent)
        for definition, id, input in (
            (shipped, cancelled, {"folder": folder, "id": cancelled, "fails": False}),
            (shipped, failed, {"folder": folder, "id": failed, "fails": True}),
            (Reserved, machine, {"released": 0, "ended": 0}),
        ):
            if id not in self.done_before():
                with contextlib.suppress(Duplicate):  # the start committed and its reply was lost
                    await self.app.start(definition, input, id=id)
                self.note(id)
        for id, parked in ((cancelled, "awaiting_children"), (machine, "awaiting_signal")):
            if f"cancelled-{id}" not in self.done_before():
                found = await self.app.get(id)
                while found.cancel_reason is None and found.status not in (parked, "cancelled"):
                    await asyncio.sleep(0.002)
                    found = await self.app.get(id)
                if found.status != "cancelled":  # the reply to the cancel was lost
                    with contextlib.suppress(Conflict):  # a cancel before the crash has just ended it
                        await self.app.cancel(id, "enough")
                self.note(f"cancelled-{id}")
        await asyncio.gather(*(self.app.result(id, timeout=60) for id in self.ids()), return_exceptions=True)

    async def verify(self) -> None:
        cancelled, failed, machine = [await self.app.get(id) for id in self.ids()]
        assert (cancelled.status, cancelled.error) == ("cancelled", "enough"), cancelled
        assert (failed.status, failed.error) == ("failed", "RunFailed: no ship"), failed
        assert (machine.status, machine.error) == ("cancelled", "enough"), machine
        assert machine.state == {"released": 1, "ended": 1}, machine
        lines = (self.acknowledged.parent / "trace").read_text().splitlines()
        for id in (cancelled.id, failed.id):
            mine = [line.partition(" ")[2] for line in lines if line.startswith(f"{id} ")]
            once = [what for what, _ in groupby(mine)]
            assert once == [f"+{what}" for what in MADE] + [f"-{what}" for what in reversed(MADE)], mine
            assert len(mine) <= len(once) + 1, mine
        assert not await self.app.waits()
