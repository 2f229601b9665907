"""J4: a task that waits for a worker is pending, and nothing tells people to answer what is answered."""

from typing import Any

from hark import Dag, Hark, workflow
from hark.app.door_access import DoorAccess
from hark.doors.cli.job_display import task_line
from tests.promises.support_jobs import handlers, statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store


async def _asks(task: Any) -> Any:
    question = await task.awakeable(title="Ok?")
    return await question


def _release() -> Dag:
    dag = Dag("release")
    dag.task("deploy", "make", gate="user_approval")
    dag.task("announce", "ask")
    dag.task("review", "wait")
    return dag


async def _answer_everything(app: Hark, job: str) -> None:
    for asked in await app.awakeables(job=job):
        await app.resolve(asked.id, {"action": "approve"})
    await app.signal(job, "go", 1)


async def test_j4_a_task_whose_question_was_answered_is_pending_until_a_worker_takes_it(store: Store) -> None:
    async with harness(store) as app:
        handlers(app, make=lambda task: 1, ask=_asks, wait=lambda task: task.wait_for_signal("go", timeout=60))
        job = await drained(app, app.start(_release(), id="r-1"))
        assert set(statuses(await job.get()).values()) == {"suspended"}
        await _answer_everything(app, "r-1")
        assert set(statuses(await job.get()).values()) == {"pending"}
        lines = [task_line(task) for task in (await DoorAccess(app).job_report("r-1")).tasks]
        assert lines == ["✓ deploy [pending] [gate: user_approval]", "· announce [pending]", "· review [pending]"]
        await app.drain()
        assert await job.result(timeout=10) == {"deploy": 1, "announce": {"action": "approve"}, "review": 1}


async def test_j4_nothing_says_that_an_answered_question_is_to_be_answered(store: Store) -> None:
    async with harness(store) as app:
        handlers(app, make=lambda task: 1, ask=_asks, wait=lambda task: task.wait_for_signal("go", timeout=60))
        await drained(app, app.start(_release(), id="r-1"))
        await _answer_everything(app, "r-1")
        assert [wait.kind for wait in (await app.why("r-1")).waits] == ["children"]
        assert [(await app.why(f"r-1.{number}")).waits for number in range(3)] == [(), (), ()]
        assert [wait.kind for wait in await app.waits()] == ["children"]


async def test_j4_a_signal_that_has_arrived_is_not_the_oldest_wait(store: Store) -> None:
    @workflow
    async def paid(ctx: Any) -> Any:
        return (await ctx.wait_for_signal("paid")).payload

    async with harness(store, paid) as app:
        order = await drained(app, app.start(paid))
        assert (await DoorAccess(app).health())["oldest_wait"]["name"] == "paid"
        await app.signal(order, "paid", 1)
        assert (await DoorAccess(app).health())["oldest_wait"] is None
        assert await app.waits() == []
