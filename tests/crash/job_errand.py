"""The errand of jobs: a gate, a loop, a shell command, a map, waits for a signal and an event, a regression, an undo.

Runs of handlers are counted outside the database: each happens at least once, and again only where its process died.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

from hark import AlreadySettled, Conflict, Dag, Duplicate, Hark, TaskContext
from tests.crash.errand import Errand
from tests.crash.function_errand import trace

ITEMS = ["x", "y", "z"]


def _shipped() -> Dag:
    dag = Dag("shipped", timeout_sec=3600)
    gate = {"user_approval": {"title": "Ship {{ output }}?", "timeout": 3600}}
    dag.task("plan", "plan", gate=gate, undo="unplan")
    dag.loop("refine", "refine", max_iterations=9, after=["plan"])
    dag.task("pack", run="echo packed >> {{ inputs.folder }}/packed; echo '{\"packed\": true}'", after=["plan"])
    dag.map("items", "item", ITEMS, concurrency=2, after=["refine", "pack"])
    dag.task("check", "check", after=["items"], on_fail={"regress_to": "items", "limit": 1})
    dag.task("heard", "heard", after=["check"])
    dag.wait_for_event("paid", "paid", match="{{ event.errand == inputs.errand }}", after=["check"])
    dag.sleep("moment", 0.001, after=["heard"])
    dag.task("bad", "bad", after=["moment", "paid"])
    return dag


class JobErrand(Errand):
    definitions = (_shipped(),)

    @staticmethod
    def prepare(app: Hark) -> None:
        def count(task: TaskContext, what: str) -> str:
            return trace(task.inputs["folder"], f"{task.inputs['errand']} {what}")

        @app.handler("plan")
        async def plan(task: TaskContext) -> str:
            return count(task, "plan")

        @app.handler("unplan")
        async def unplan(task: TaskContext) -> None:
            assert task.input == f"{task.inputs['errand']} plan", task.input
            count(task, "unplan")

        @app.handler("refine")
        async def refine(task: TaskContext) -> Any:
            done = await task.load_checkpoint() or 0
            assert done in (task.iteration, task.iteration + 1), "a crash after the checkpoint, before the outcome"
            count(task, f"refine {task.iteration}")
            await task.checkpoint(task.iteration + 1)
            return task.continue_(task.iteration) if task.iteration < 2 else task.complete("refined")

        @app.handler("item")
        def item(task: TaskContext) -> str:
            count(task, f"item {task.input}")
            return str(task.input).upper()

        @app.handler("check")
        async def check(task: TaskContext) -> Any:
            assert task.input == [item.upper() for item in ITEMS], task.input
            count(task, "check")
            regressed = [event for event in await app.events(task.run_id, limit=1000) if event.type == "regressed"]
            return "checked" if regressed else task.fail("again")

        @app.handler("heard")
        async def heard(task: TaskContext) -> Any:
            count(task, "heard")
            return [await task.wait_for_signal("one", timeout=60), await task.wait_for_signal("two", timeout=60)]

        @app.handler("bad")
        async def bad(task: TaskContext) -> Any:
            count(task, "bad")
            return task.fail("the end")

    def ids(self) -> list[str]:
        return [f"job-{self.number}"]

    async def run(self) -> None:
        [job], app = self.ids(), self.app
        if "started" not in self.done_before():
            with contextlib.suppress(Duplicate):
                input = {"errand": self.number, "folder": str(self.acknowledged.parent)}
                await app.start(self.definitions[0], input, id=job)
            self.note("started")
        if "approved" not in self.done_before():
            with contextlib.suppress(AlreadySettled):
                question = await _question(app, job)
                await app.resolve(question, {"action": "approve"})
            self.note("approved")
        for name in ("one", "two"):
            if name not in self.done_before():
                await app.signal(job, name, name.upper(), dedup_key=name)
                self.note(name)
        while not (found := await app.get(job)).finished_at:
            if found.state["tasks"]["paid"]["status"] == "suspended":
                await app.broadcast("paid", {"errand": self.number}, dedup_key=f"paid-{self.number}")
            await asyncio.sleep(0.002)

    async def verify(self) -> None:
        [job] = [await self.app.get(id) for id in self.ids()]
        assert (job.status, job.error) == ("failed", "Task 'bad' failed: the end"), job
        tasks = job.state["tasks"]
        assert tasks["pack"]["output"] == {"packed": True}
        assert tasks["items"]["output"] == [item.upper() for item in ITEMS]
        assert tasks["heard"]["output"] == ["ONE", "TWO"]
        assert tasks["paid"]["output"] == {"errand": self.number}
        lines = (self.acknowledged.parent / "trace").read_text().splitlines()
        ran = Counter(line.partition(" ")[2] for line in lines if line.startswith(f"{self.number} "))
        least = Counter({"plan": 1, "unplan": 1, "check": 2, "heard": 1, "bad": 1})
        least.update({f"refine {n}": 1 for n in range(3)})
        least.update({f"item {item}": 2 for item in ITEMS})
        repeated = ran - least
        assert not least - ran, (least - ran, ran)
        # A process that is killed may execute several tasks; each of them is repeated once.
        assert all(count == 1 for count in repeated.values()), repeated
        assert sum(repeated.values()) <= 2, repeated
        assert not await self.app.waits()


async def _question(app: Hark, job: str) -> str:
    """The question of its gate, answered or not."""
    while not (found := await app.awakeables(job=job)):
        if (await app.get(job)).finished_at:
            raise Conflict("The job has ended, and has asked nothing.")
        await asyncio.sleep(0.002)
    return found[0].id
