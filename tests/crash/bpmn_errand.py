"""The same for BPMN processes: boundary events of both kinds, a multi-instance, event sub-processes, a user task.

Runs of handlers are counted outside the database: each happens at least once, and again only where its process died.
The scripts count in the variables of the process: each exactly once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

from hark import AlreadySettled, BpmnError, Duplicate, Hark, NoTarget, TaskContext
from tests.crash.errand import Errand
from tests.crash.function_errand import trace

ITEMS = ["x", "y", "z"]
VOYAGE = Path(__file__).with_name("voyage.bpmn")


class BpmnErrand(Errand):
    definitions = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent: Counter[str] = Counter()

    @staticmethod
    def prepare(app: Hark) -> None:
        def count(task: TaskContext, what: str) -> None:
            trace(task.input["folder"], f"{task.input['errand']} {what}")

        @app.handler("item")
        async def item(task: TaskContext) -> Any:
            count(task, f"item {task.input['item']}")
            return {"size": f"{task.input['item']}{task.input['loopCounter']}"}

        @app.handler("risky")
        async def risky(task: TaskContext) -> Any:
            count(task, "risky")
            raise BpmnError("RISK", "it always is")

    def ids(self) -> list[str]:
        return [f"voyage-{self.number}"]

    async def run(self) -> None:
        [voyage], app = self.ids(), self.app
        if "started" not in self.done_before():
            await app.deploy(VOYAGE)
            input = {"errand": self.number, "folder": str(self.acknowledged.parent), "items": ITEMS}
            counters = {"notes": 0, "extras": 0, "lates": 0, "rescues": 0}
            with contextlib.suppress(Duplicate):
                await app.start("voyage", {**input, **counters}, id=voyage, correlation_key=f"key-{self.number}")
            self.note("started")
        for what in ("note", "extra", "note"):
            await self.broadcast(what)
        if "approved" not in self.done_before():
            [question] = await app.awakeables(job=voyage)
            with contextlib.suppress(AlreadySettled):
                await app.resolve(question.id, {"approved": "yes"})
            self.note("approved")
        while not (found := await app.get(voyage)).finished_at:
            if "pay" in found.state["tokens"]:
                with contextlib.suppress(NoTarget):
                    await app.message("paid", f"key-{self.number}", {"amount": self.number})
            await asyncio.sleep(0.002)

    async def broadcast(self, what: str) -> None:
        """Send it once; both kinds of subscribers stay subscribed while the user task is open."""
        label = f"{what}-{self.sent[what]}"
        self.sent[what] += 1
        if label in self.done_before():
            return
        name = f"{what}-{self.number}"
        while not await self.app.waits(name=name, kind="broadcast"):
            await asyncio.sleep(0.002)
        await self.app.broadcast(name, {label: True}, dedup_key=f"{label}-{self.number}")
        self.note(label)

    async def verify(self) -> None:
        [voyage] = [await self.app.get(id) for id in self.ids()]
        assert (voyage.status, voyage.error) == ("done", None), voyage
        variables = voyage.state["variables"]
        expected = {
            "notes": 2, "extras": 1, "lates": 1, "rescues": 1, "sizes": ["x0", "y1", "z2"], "approved": "yes",
            "amount": self.number, "note-0": True, "note-1": True, "extra-0": True,
        }  # fmt: skip
        assert expected.items() <= variables.items(), variables
        assert {"item", "loopCounter", "size"}.isdisjoint(variables), variables
        assert voyage.state["tokens"] == voyage.state["incidents"] == []
        lines = (self.acknowledged.parent / "trace").read_text().splitlines()
        ran = Counter(line.partition(" ")[2] for line in lines if line.startswith(f"{self.number} "))
        least = Counter({"risky": 1, **{f"item {item}": 1 for item in ITEMS}})
        repeated = ran - least
        assert not least - ran, (least - ran, ran)
        # A process that is killed may execute all items; each of them is repeated once.
        assert all(count == 1 for count in repeated.values()), repeated
        assert sum(repeated.values()) <= len(ITEMS), repeated
        taken: Counter[str] = Counter()
        for event in await self.app.events(voyage, limit=1000):
            taken.update(event.data["flows"] if event.type == "moved" else {})
        once = [f"f{number}" for number in range(1, 12)]
        assert taken == Counter({**dict.fromkeys(once, 1), "f3": 2}), taken
        assert not await self.app.waits()
        assert not await self.app.awakeables(status="PENDING")
