"""An errand: one small piece of work that touches every kind of turn, written so that it can be resumed.

A client starts four machines and sends one signal; together they go through next, retry, await, pack, timeout,
spawn and join, effects of three kinds, a broadcast, a concurrency key and done. Every acknowledged call
is recorded outside the database and never repeated: if an acknowledged call were lost, the errand would not finish.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hark import Await, Broadcast, Child, Context, Done, Duplicate, Hark, Machine, Next, Retry, Spawn, Start, step

NOTES = 3


class Order(Machine):
    """State is {"errand": …, "steps": how many steps have committed}."""

    @step
    async def start(self, ctx: Context) -> Next:
        self.count(ctx)
        ctx.start(Leaf, {"errand": ctx.state["errand"]})
        return Next(self.wait)

    @step
    async def wait(self, ctx: Context) -> Await:
        self.count(ctx)
        return Await("pay", then=self.paid)

    @step
    async def paid(self, ctx: Context) -> Spawn:
        self.count(ctx)
        ctx.state["paid"] = [signal.payload for signal in ctx.awaited]
        errand = ctx.state["errand"]
        one_at_a_time = [Child(Leaf, {"errand": errand}, concurrency_key=f"leaf:{errand}") for _ in range(2)]
        return Spawn(one_at_a_time, then=self.joined)

    @step
    async def joined(self, ctx: Context) -> Await:
        ctx.state["leaves"] = [child.status for child in ctx.children]
        ctx.broadcast(f"bell-{ctx.state['errand']}")
        self.count(ctx)
        return Await("never", then=self.end, timeout=0.01)

    @step
    async def end(self, ctx: Context) -> Done:
        ctx.state["steps"] += 1
        return Done({**ctx.state, "timed_out": ctx.timed_out})

    def count(self, ctx: Context) -> None:
        ctx.state["steps"] += 1
        if ctx.state["steps"] <= NOTES:
            ctx.signal(f"notes-{ctx.state['errand']}", "note", ctx.state["steps"])


class Leaf(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done(None)


class Notes(Machine):
    """Collects the signals that the order's outcomes sent: a pack."""

    @step
    async def start(self, ctx: Context) -> Await:
        return Await("note", then=self.gather)

    @step
    async def gather(self, ctx: Context) -> Await | Next:
        if len(ctx.awaited) < NOTES:
            return Await("note", then=self.gather)
        ctx.state["notes"] = [signal.payload for signal in ctx.awaited]
        return Next(self.end)

    @step
    async def end(self, ctx: Context) -> Done:
        return Done({"notes": ctx.state["notes"], "left": len(ctx.all)})


class Listener(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await(Broadcast(f"bell-{ctx.state['errand']}"), then=self.heard)

    @step
    async def heard(self, ctx: Context) -> Retry | Done:
        return Retry() if ctx.attempt == 0 else Done(len(ctx.awaited))


class Errand:
    """One errand by its number. `acknowledged` is a file that outlives the process."""

    definitions: tuple[Any, ...] = (Order, Leaf, Notes, Listener)

    def __init__(self, app: Hark, number: int, folder: Path) -> None:
        self.app = app
        self.number = number
        self.acknowledged = folder / f"errand-{number}"

    @staticmethod
    def prepare(app: Hark) -> None:
        """Register what is not a definition."""

    def done_before(self) -> set[str]:
        return set(self.acknowledged.read_text().split()) if self.acknowledged.exists() else set()

    async def run(self) -> None:
        n, app = self.number, self.app
        order, notes, *listeners = self.ids()
        await self.start({order: Order, notes: Notes, **dict.fromkeys(listeners, Listener)})
        while len(await app.waits(name=f"bell-{n}", kind="broadcast")) < 2 and "paid" not in self.done_before():
            await asyncio.sleep(0.002)
        if "paid" not in self.done_before():
            await app.signal(order, "pay", {"amount": n}, dedup_key="webhook")
            self.note("paid")
        await asyncio.gather(*(app.result(id, timeout=60) for id in self.ids()))

    async def start(self, definitions: dict[str, Any]) -> None:
        if "started" not in self.done_before():
            input = {"errand": self.number, "steps": 0}
            answers = await self.app.start_many([Start(kind, input, id=id) for id, kind in definitions.items()])
            refused = [answer for answer in answers if isinstance(answer, Duplicate)]
            assert [answer.holder for answer in refused] in ([], list(definitions))  # all or nothing
            self.note("started")

    def note(self, what: str) -> None:
        with self.acknowledged.open("a") as file:
            file.write(what + "\n")

    def ids(self) -> list[str]:
        return [f"order-{self.number}", f"notes-{self.number}", f"listener1-{self.number}", f"listener2-{self.number}"]

    async def verify(self) -> None:
        """Everything happened, and happened once."""
        order, notes, *listeners = [await self.app.result(id, timeout=60) for id in self.ids()]
        assert order == {
            "errand": self.number, "steps": 5, "paid": [{"amount": self.number}], "leaves": ["done", "done"],
            "timed_out": True,
        }, order  # fmt: skip
        assert notes == {"notes": [1, 2, 3], "left": 0}, notes
        assert listeners == [1, 1], listeners
        await self.leaves_end()
        found = await self.app.list(definition="Leaf", limit=10_000)
        mine = [leaf for leaf in found if leaf.state["errand"] == self.number]
        assert [leaf.status for leaf in mine] == ["done"] * 3, mine
        assert not await self.app.waits()

    async def leaves_end(self) -> None:
        for leaf in await self.app.list(definition="Leaf", limit=10_000):
            if leaf.state["errand"] == self.number:
                await self.app.result(leaf.id, timeout=60)
