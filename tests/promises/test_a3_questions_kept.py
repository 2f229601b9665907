"""A3: an awakeable that a task created before a checkpoint stays open across attempts, pauses and iterations."""

from __future__ import annotations

from typing import Any

import pytest

from hark import Dag
from tests.promises.support_jobs import ran
from tests.support.harness import drained
from tests.support.stores import Store


@pytest.mark.parametrize("how", ["fail", "pause", "continue"])
async def test_a3_a_question_before_a_checkpoint_stays_open(store: Store, how: str) -> None:
    dag = Dag("questions")
    dag.loop("ask", "ask", max_iterations=5, retry={"limit": 3, "delay": 0})

    async def ask(task: Any) -> Any:
        kept = await task.load_checkpoint()
        if kept is not None:
            return task.complete(await task.await_awakeable(kept))
        question = await task.awakeable(title="kept")
        await task.checkpoint(question.id)
        await task.awakeable(title="dropped")
        match how:
            case "fail":
                raise ValueError("no")
            case "pause":
                return task.pause("later", 0)
            case _:
                return task.continue_()

    async with ran(store, dag, ask=ask) as (app, job):
        asked = {one.title: one for one in await app.awakeables(job=job.id)}
        assert {title: one.status for title, one in asked.items()} == {"kept": "PENDING", "dropped": "CANCELLED"}
        await drained(app, app.resolve(asked["kept"].id, 7))
        assert (await job.get()).result == {"ask": 7}
