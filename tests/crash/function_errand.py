"""The same for durable functions: one errand that writes every kind of line into its journal.

Runs are counted outside the database: each happens at least once, and again only where its process died.
Effects are counted by their receivers: each happens once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

from hark import AlreadySettled, Duplicate, FunctionContext, RunFailed, workflow
from tests.crash.errand import Errand

NOTES = 4


def trace(folder: str, what: str) -> str:
    """Appends one line in a single write, so that it survives a kill of this process."""
    fd = os.open(Path(folder) / "trace", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{what}\n".encode())
    os.close(fd)
    return what


@workflow
async def leaf(ctx: FunctionContext, folder: str, name: str) -> str:
    return str(await ctx.run(trace, folder, name))


@workflow
async def notes(ctx: FunctionContext) -> list[Any]:
    return [(await ctx.wait_for_signal("note")).payload for _ in range(NOTES)]


async def fail(folder: str, what: str) -> None:
    trace(folder, what)
    raise OSError("always")


@workflow
async def release(ctx: FunctionContext, errand: int, folder: str, round: int = 0) -> Any:
    if round == 0:
        await ctx.run(trace, folder, f"{errand} begin")
        await ctx.signal(f"notes-{errand}", "note", "begun")
        return ctx.continue_as_new({"errand": errand, "folder": folder, "round": 1})
    at, key = await ctx.now(), str(ctx.uuid())
    question = await ctx.awakeable(title="go on?", timeout=3600)
    await ctx.run(trace, folder, f"{errand} told {question.id}")
    answer, paid = await ctx.gather(question, ctx.wait_for_signal("pay"))
    await ctx.signal(f"notes-{errand}", "note", answer)
    try:
        await ctx.run(fail, folder, f"{errand} fail", retries=1, backoff=0.001)
    except RunFailed as error:
        await ctx.signal(f"notes-{errand}", "note", error.type)
    child, _ = await ctx.gather(
        ctx.call(leaf, {"folder": folder, "name": f"{errand} leaf"}), ctx.run(trace, folder, f"{errand} beside")
    )
    index, _ = await ctx.first(await ctx.awakeable(title="never"), ctx.sleep(0.001))
    started = await ctx.start(leaf, {"folder": folder, "name": f"{errand} started"})
    reached = await ctx.broadcast(f"nobody-{errand}")
    await ctx.signal(f"notes-{errand}", "note", "ended")
    same = await ctx.run(lambda: [str(at), key]) == [str(at), key]
    return [answer, paid.payload, child, index, bool(started), reached, same]


class FunctionErrand(Errand):
    definitions = (release, leaf, notes)

    def ids(self) -> list[str]:
        return [f"release-{self.number}", f"notes-{self.number}"]

    async def run(self) -> None:
        order, collector = self.ids()
        folder = str(self.acknowledged.parent)
        for definition, id, input in (
            (notes, collector, None),
            (release, order, {"errand": self.number, "folder": folder}),
        ):
            if id not in self.done_before():
                with contextlib.suppress(Duplicate):  # the start committed and its reply was lost
                    await self.app.start(definition, input, id=id)
                self.note(id)
        if "paid" not in self.done_before():
            await self.app.signal(order, "pay", {"amount": self.number}, dedup_key="webhook")
            self.note("paid")
        if "answered" not in self.done_before():
            await self.answer(order)
            self.note("answered")
        for id in self.ids():
            await self.app.result(id, timeout=60)

    async def answer(self, order: str) -> None:
        while True:
            asked = [one for one in await self.app.awakeables(job=order) if one.title == "go on?"]
            if asked:
                with contextlib.suppress(AlreadySettled):  # settled by this process, and the reply was lost
                    await self.app.resolve(asked[0].id, "yes", by="errand")
                return
            await asyncio.sleep(0.002)

    async def verify(self) -> None:
        result, told = [await self.app.result(id, timeout=60) for id in self.ids()]
        n = self.number
        assert result == ["yes", {"amount": n}, f"{n} leaf", 1, True, 0, True], result
        assert told == ["begun", "yes", "OSError", "ended"], told
        for one in await self.app.list(definition="leaf", limit=10_000):
            await self.app.result(one.id, timeout=60)
        assert len(await self.app.list(definition="leaf", limit=10_000)) == 2 * (n + 1)
        lines = Counter((self.acknowledged.parent / "trace").read_text().splitlines())
        mine = {line.split(" ", 1)[1].split()[0]: count for line, count in lines.items() if line.startswith(f"{n} ")}
        assert set(mine) == {"begin", "told", "fail", "leaf", "beside", "started"}, mine
        assert all(1 <= count - (what == "fail") <= 2 for what, count in mine.items()), mine
        asked = [one for one in await self.app.awakeables(job=self.ids()[0])]
        assert sorted((one.title, one.status) for one in asked) == [("go on?", "RESOLVED"), ("never", "CANCELLED")], (
            asked
        )
        assert not await self.app.waits()
