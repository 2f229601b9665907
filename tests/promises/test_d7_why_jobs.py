"""D7: a job says what its tasks wait for, and how to answer it."""

from typing import Any

from hark import Dag
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


async def test_d7_why_of_a_job_names_what_its_tasks_wait_for_and_the_commands_that_answer(store: Store) -> None:
    async with harness(store) as app:

        @app.handler("wait")
        async def wait(task: Any) -> Any:
            return await task.wait_for_signal("review-done", timeout=60)

        @app.handler("make")
        async def make(task: Any) -> Any:
            return {"score": 4}

        dag = Dag("release")
        dag.task("review", "wait")
        dag.task("publish", "make", gate="user_approval")
        job = await drained(app, app.start(dag, id="r-1"))
        [awakeable] = await app.awakeables(job="r-1")
        assert (awakeable.instance_id, awakeable.task, awakeable.status) == ("r-1", "publish", "PENDING")

        found = {one.kind: one for one in (await app.why("r-1")).waits}
        assert found["signal"].wake == "hark signal r-1 review-done"
        assert found["signal"].note == "task 'review' waits for this"
        assert found["awakeable"].wake is not None
        assert found["awakeable"].wake.startswith(f"hark awakeable resolve {awakeable.id}")
        assert found["awakeable"].note is not None
        assert found["awakeable"].note.startswith("task 'publish' waits for this")
        [own] = (await app.why("r-1.0")).waits
        assert own.wake == "hark signal r-1 review-done"
        waits = {(wait.instance_id, wait.kind, wait.name) for wait in await app.waits()}
        assert {("r-1.0", "signal", "review-done"), ("r-1.1", "awakeable", awakeable.id)} <= waits

        await app.signal("r-1", "other")
        [near] = [miss for miss in (await app.why("r-1")).misses if miss.name == "other"]
        assert near.reason == "other_name"

        await app.signal("r-1", "review-done", 1)
        await drained(app, app.resolve(awakeable.id, {"action": "approve"}))
        assert await job.result(timeout=10) == {"review": 1, "publish": {"score": 4}}
        assert (await app.why("r-1")).waits == ()
