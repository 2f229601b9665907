"""J4: a task that waits for a worker is pending, and nothing tells people to answer what is answered."""

import json
from pathlib import Path
from typing import Any

from hark import Dag, Hark, workflow
from hark.app.door_access import DoorAccess
from hark.doors.cli.job_display import task_details, task_line
from hark.doors.cli.options import Options
from tests.doors.support_cli import Cli, cli, store_options
from tests.promises.support_jobs import handlers, statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained
from tests.support.stores import Store

__all__ = ["cli"]


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


async def test_j4_nothing_says_to_send_an_event_that_has_come(store: Store) -> None:
    dag = Dag("release")
    dag.wait_for_event("paid", "payment")
    async with harness(store, dag) as app:
        await drained(app, app.start(dag, id="r-1"))
        await app.broadcast("payment", 1)
        [task] = (await DoorAccess(app).job_report("r-1")).tasks
        assert task_line(task) == "· paid [pending]"
        assert task.waits == ()


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


async def test_j4_why_does_not_send_people_to_retry_a_job_that_goes_on(store: Store) -> None:
    dag = Dag("release")
    dag.task("build", "make")
    gate = {"user_approval": {"timeout": 10}}
    dag.task("verify", "make", after=["build"], gate=gate, on_fail={"regress_to": "build", "limit": 1})
    async with harness(store, dag) as app:
        handlers(app, make=lambda task: 1)
        job = await drained(app, app.start(dag, id="r-1"))
        await drained(app, app.advance(10))
        regressed = await app.why("r-1.1")
        assert regressed.status == "failed"
        assert "hark instance retry" not in regressed.text
        assert regressed.text.endswith("Its job goes on, or has ended since: hark instance why r-1")
        await drained(app, app.advance(10))
        assert (await job.get()).status == "failed"
        assert (await app.why("r-1.1-1")).text.endswith("Fix the cause, then run: hark instance retry r-1")


async def test_j4_an_item_of_a_map_is_retried_with_its_job(store: Store) -> None:
    def bad(task: Any) -> None:
        raise ValueError("no")

    dag = Dag("mapped")
    dag.map("work", "bad", [1])
    async with harness(store, dag) as app:
        handlers(app, bad=bad)
        await drained(app, app.start(dag, id="r-1"))
        assert (await app.why("r-1.0.0")).text.endswith("then run: hark instance retry r-1")


async def test_j4_nothing_says_to_answer_a_question_whose_time_is_over(store: Store) -> None:
    dag = Dag("release")
    dag.task("verify", "make", gate={"user_approval": {"timeout": 10}})
    dag.approval("approve", "Ok?", timeout=10)
    async with harness(store, dag) as app:
        handlers(app, make=lambda task: 1)
        await drained(app, app.start(dag, id="r-1"))
    async with harness(store) as app:  # no worker has fired the deadline
        app.clock.now += 11_000_000
        report = await DoorAccess(app).job_report("r-1")
        assert [[wait.wake for wait in task.waits] for task in report.tasks] == [[None], [None]]
        shown = [line for task in report.tasks for line in task_details(Options(), task)]
        over = "its time is over: a worker, or `hark timeout check`, ends the wait"
        assert shown.count(over) == 2
        assert not any("awakeable resolve" in line for line in shown)
        for target in ("r-1", "r-1.0", "r-1.1"):
            waits = [wait for wait in (await app.why(target)).waits if wait.kind == "awakeable"]
            assert [wait.wake for wait in waits] == [None] * len(waits)
            assert all(over in (wait.note or "") for wait in waits)
            assert waits


async def test_j4_why_says_that_a_job_has_a_time_of_its_own(store: Store) -> None:
    dag = Dag("release", timeout_sec=60)
    dag.task("verify", "make", gate="user_approval")
    async with harness(store, dag) as app:
        handlers(app, make=lambda task: 1)
        job = await drained(app, app.start(dag))
        why = await app.why(job)
        assert why.text == "It waits for its children."
        [deadline] = [wait for wait in why.waits if wait.place == "timeout"]
        assert deadline.note == "timeout_sec of the job: then its tasks are cancelled, and it fails"


def test_j4_retry_does_not_tell_people_to_start_a_worker_that_runs(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "fails.yaml"
    file.write_text("tasks:\n  - {name: a, run: exit 3}\n", "utf-8")
    assert cli("job", "run", str(file), "--id", "f-1").code == 1
    where = "".join(f" {word}" for word in store_options(cli.store))
    shown = [f"`hark job status f-{n}{where}` shows it.\n" for n in (1, 2)]
    assert cli("job", "retry", "f-1").out == f"f-1 is runnable.\n`hark worker{where}` continues it. {shown[0]}"
    assert cli("job", "run", str(file), "--id", "f-2").code == 1
    app = Hark(cli.store.url, **cli.store.options)
    with app, app.worker():
        text = cli("job", "retry", "f-2").out  # the worker may have it already
        assert text.startswith("f-2 is ")
        assert text.endswith(f".\nA worker that runs continues it. {shown[1]}")


def test_j4_doctor_names_the_worker_that_jobs_without_python_need(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text("tasks:\n  - {name: a, run: echo 1}\n", "utf-8")
    assert cli("job", "run", str(file), "--detach").code == 0
    [workers] = [check for check in cli_json(cli, "doctor") if check["check"] == "workers"]
    assert workers["text"] == "no worker for 1 live instance; start one with `hark worker`"


def cli_json(cli: Cli, *words: str) -> Any:
    return json.loads(cli(*words, "--json").out)


async def test_j4_a_rejected_task_that_waits_for_its_next_attempt_says_until_when(store: Store) -> None:
    dag = Dag("release")
    dag.task("deploy", "make", gate="user_approval", retry={"limit": 2, "delay": 300})
    async with harness(store, dag) as app:
        handlers(app, make=lambda task: 1)
        job = await drained(app, app.start(dag))
        [asked] = await app.awakeables(job=job.id)
        await drained(app, app.resolve(asked.id, {"action": "reject", "reason": "no"}))
        report = await DoorAccess(app).job_report(job.id)
        [task] = report.tasks
        assert task_line(task) == "· deploy [pending] [gate: user_approval] (attempt 2)"
        [shown] = [line for line in task_details(Options(), task) if not line.startswith("No ")]
        assert shown.startswith("until ")
        assert report.only_waits is (task.note is not None), "it goes on by itself, if a worker runs"
        assert (await app.why(f"{job.id}.0")).text.startswith(
            "deploy: attempt 1 failed: rejected (gate user_approval): no; next try in "
        )
        assert (await app.why(f"{job.id}.0")).waits == ()
