"""The errand of migrations and forks: three machines are moved to another version, a function is forked, all go on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hark import Await, Context, Done, Duplicate, FunctionContext, Machine, Start, step, workflow
from tests.crash.errand import Errand

MOVED = 3


class Mover(Machine, name="mover", version=1):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done("version 1")


class NewerMover(Machine, name="mover", version=2):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.last)

    @step
    async def last(self, ctx: Context) -> Done:
        return Done({**ctx.state, "signals": len(ctx.awaited)})


def newer(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "moved": old.get("moved", 0) + 1}


@workflow(name="forked")
async def forked(ctx: FunctionContext, number: int) -> list[Any]:
    return [await ctx.run(int, number), (await ctx.wait_for_signal("go")).payload]


class MigratingErrand(Errand):
    definitions = (Mover, NewerMover, forked)

    async def run(self) -> None:
        app, n = self.app, self.number
        if "started" not in self.done_before():
            moving = [Start(Mover, {"n": n}, id=id, version=1) for id in self.movers()]
            await app.start_many([*moving, Start(forked, {"number": n}, id=f"forked-{n}")])
            self.note("started")
        for id in (*self.movers(), f"forked-{n}"):
            await self._until(id, "awaiting_signal", "done")
        if "moving" not in self.done_before():  # a migration whose reply was lost moves them, and a second one none
            for id in self.movers():
                await app.migrate(id, to_version=2, state=newer, steps={"end": "last"})
            self.note("moving")
        for bulk in await app.list(definition="hark.bulk", limit=10_000):
            await app.result(bulk.id, timeout=60)
        if "forked" not in self.done_before():
            with contextlib.suppress(Duplicate):
                await app.fork(f"forked-{n}", at=0, id=f"again-{n}")
            self.note("forked")
        for id in (*self.movers(), f"forked-{n}", f"again-{n}"):
            if f"signalled-{id}" not in self.done_before():
                await app.signal(id, "go", 1, dedup_key="go")
                self.note(f"signalled-{id}")
            await app.result(id, timeout=60)

    async def _until(self, id: str, *statuses: str) -> None:
        while (await self.app.get(id)).status not in statuses:
            await asyncio.sleep(0.002)

    def movers(self) -> list[str]:
        return [f"mover-{self.number}-{n}" for n in range(MOVED)]

    async def verify(self) -> None:
        n, app = self.number, self.app
        for id in self.movers():
            assert await app.result(id) == {"n": n, "moved": 1, "signals": 1}, await app.get(id)
            assert [event.type for event in await app.events(id)].count("migrated") == 1
        assert [await app.result(f"{name}-{n}") for name in ("forked", "again")] == [[n, 1], [n, 1]]
        assert [entry.value for entry in await app.journal(f"again-{n}")][:1] == [n]  # that of the other one
        results = [await app.result(bulk.id) for bulk in await app.list(definition="hark.bulk", limit=10_000)]
        assert sum(result["done"] for result in results) == MOVED * (n + 1), results
