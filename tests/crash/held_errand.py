"""The errand of held instances: one is held, keeps a signal that comes meanwhile, and goes on after a retry."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hark import Await, Conflict, Context, Done, Duplicate, Machine, step
from tests.crash.errand import Errand


class Doubtful(Machine):
    """A machine whose code does not read its state while a file exists."""

    @dataclass
    class State:
        misfit: str
        steps: int = 0

        def __post_init__(self) -> None:
            if Path(self.misfit).exists():
                raise ValueError("does not fit")

    @step
    async def start(self, ctx: Context) -> Await:
        ctx.state.steps += 1
        return Await("go", then=self.go)

    @step
    async def go(self, ctx: Context) -> Await:
        ctx.state.steps += 1
        return Await("end", then=self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done([ctx.state.steps, *(signal.payload for signal in ctx.all)])


class HeldErrand(Errand):
    definitions = (Doubtful,)

    async def run(self) -> None:
        id = f"doubtful-{self.number}"
        misfit = self.acknowledged.parent / f"misfit-{self.number}"
        if f"started-{id}" not in self.done_before():
            with contextlib.suppress(Duplicate):  # the start committed and its reply was lost
                await self.app.start(Doubtful, {"misfit": str(misfit)}, id=id)
            self.note(f"started-{id}")
        if f"signalled-{id}" not in self.done_before():
            await self._until(id, "awaiting_signal", "held")
            misfit.touch()
            await self.app.signal(id, "go", 1, dedup_key="go")
            self.note(f"signalled-{id}")
        if f"held-{id}" not in self.done_before():
            await self._until(id, "held")
            await self.app.signal(id, "end", 2, dedup_key="end")
            misfit.unlink(missing_ok=True)
            self.note(f"held-{id}")
        with contextlib.suppress(Conflict):  # the retry committed and its reply was lost
            await self.app.retry(id)
        await self.app.result(id, timeout=60)

    async def _until(self, id: str, *statuses: str) -> Any:
        while (found := await self.app.get(id)).status not in statuses:
            await asyncio.sleep(0.002)
        return found

    async def verify(self) -> None:
        found = await self.app.get(f"doubtful-{self.number}")
        assert (found.status, found.error) == ("done", None), found
        assert found.result == [2, 1, 2], found
