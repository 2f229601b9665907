"""J9: `when`, `finally`, fail_fast, limits of tasks, and the step types of jobs besides tasks."""

from typing import Any

import pytest

from hark import Dag, FunctionContext, InvalidAnswer, load_job, workflow
from hark.testing import Harness
from tests.promises.support_jobs import Script, handlers, ran, statuses
from tests.promises.support_machines import harness
from tests.support.harness import drained, parked
from tests.support.stores import Store


async def test_j9_tasks_that_run_regardless_of_failures_or_because_of_them() -> None:
    dag = Dag("when")
    dag.task("bad", "any")
    dag.task("good", "any")
    dag.task("always", "any", after=["bad", "good"], when="all_done")
    dag.task("alarm", "any", after=["bad"], when="one_failed")
    dag.task("quiet", "any", after=["good"], when="one_failed")
    dag.task("after-quiet", "any", after=["quiet"])
    async with ran(None, dag, any=Script(bad=1)) as (_, job):
        ended = await job.get()
        assert ended.status == "failed"
        assert statuses(ended) == {
            "bad": "failed", "good": "completed", "always": "completed", "alarm": "completed", "quiet": "skipped",
            "after-quiet": "completed",
        }  # fmt: skip


@pytest.mark.parametrize("fails", [0, 1])
async def test_j9_finally_tasks_run_last_whatever_happened(fails: int) -> None:
    job = load_job({
        "name": "tidy",
        "tasks": [{"name": "work", "handler": "any"}, {"name": "more", "handler": "any", "needs": ["work"]}],
        "finally": [
            {"name": "clean", "handler": "any"},
            {"name": "report", "handler": "any", "needs": ["clean"]},
            {"name": "alarm", "handler": "any", "when": "one_failed"},
        ],
    })  # fmt: skip
    script = Script(work=fails)
    async with ran(None, job, any=script) as (_, started):
        ended = await started.get()
        assert ended.status == ("failed" if fails else "done")
        assert script.ran[-2:] == ["clean", "report"] if not fails else ["clean", "alarm", "report"]
        assert statuses(ended)["alarm"] == ("completed" if fails else "skipped")


async def test_j9_finally_tasks_run_before_a_cancelled_job_ends(store: Store) -> None:
    job = load_job({
        "name": "tidy",
        "tasks": [{"name": "work", "type": "sleep", "seconds": 60}, {"name": "b", "handler": "any", "needs": ["work"]}],
        "finally": [{"name": "clean", "handler": "any"}],
    })  # fmt: skip
    async with harness(store, job) as app:
        handlers(app, any=Script())
        first, forced = await app.start(job), await app.start(job)
        await app.drain()
        assert (await app.cancel(first, "not today")).cancel_reason == "not today"
        await drained(app, app.cancel(forced, force=True))
        ended = await first.get()
        assert (ended.status, ended.error) == ("cancelled", "not today")
        assert statuses(ended) == {"work": "cancelled", "b": "cancelled", "clean": "completed"}
        assert (await forced.get()).status == "cancelled"
        assert await app.waits() == []


async def test_j9_a_cancelled_job_has_no_pending_tasks() -> None:
    dag = Dag("waiting")
    dag.task("after", "any", after=[dag.sleep("long", 60)])
    async with Harness(dag) as app:
        at_once, later = await app.start(dag), await app.start(dag)
        await drained(app, app.cancel(at_once))
        await app.cancel(later)
        for job in (at_once, later):
            assert statuses(await job.get()) == {"long": "cancelled", "after": "cancelled"}


async def test_j9_fail_fast_cancels_the_rest_and_the_history_says_why(store: Store) -> None:
    dag = Dag("fast", fail_fast=True)
    dag.task("bad", "any", after=[dag.sleep("moment", 1)])
    dag.task("below", "any", after=["bad"])
    dag.sleep("long", 3600)
    dag.task("then", "any", after=["long"])
    script = Script(bad=1)
    async with ran(store, dag, any=script) as (app, job):
        await drained(app, app.advance(1))
        ended = await job.get()
        assert (ended.status, ended.error) == ("failed", "Task 'bad' failed: ValueError: bad does not work")
        assert statuses(ended) == {
            "moment": "completed", "bad": "failed", "below": "skipped", "long": "cancelled", "then": "cancelled",
        }  # fmt: skip
        assert {one.step: one.data["reason"] for one in await app.events(job, limit=100) if one.type == "skipped"} == {
            "below": "a task that it needs has not completed",
            "then": "another task has failed, and the job fails fast",
        }
        await drained(app, app.retry(job))
        await drained(app, app.advance(3600))
        assert (await job.get()).status == "done"


async def test_j9_a_map_runs_its_items_with_a_bound_and_keeps_their_order(store: Store) -> None:
    dag = Dag("mapping")
    dag.task("list", "list")
    dag.map("squares", "square", "{{ tasks.list.output }}", after=["list"], concurrency=2)
    dag.map("none", "square", [])
    async with harness(store, dag) as app:
        handlers(app, list=lambda task: list(range(5)))
        failures = {3: 1}

        @app.handler("square")
        async def square(task: Any) -> int:
            items = [one for one in await app.list(kind="task") if one.parent_id == f"{task.run_id}.1"]
            assert sum(one.status not in ("done", "failed") for one in items) <= 2
            if failures.get(task.input):
                failures[task.input] -= 1
                raise ValueError("not now")
            return int(task.input) ** 2

        job = await drained(app, app.start(dag))
        ended = await job.get()
        assert ended.error == "Task 'squares' failed: Item 3 failed: ValueError: not now"
        assert ended.state["tasks"]["none"]["output"] == []
        await drained(app, app.retry(job))
        assert (await job.get()).result == {"list": [0, 1, 2, 3, 4], "squares": [0, 1, 4, 9, 16], "none": []}


async def test_j9_a_workflow_is_a_task_and_its_result_the_output(store: Store) -> None:
    @workflow
    async def double(ctx: FunctionContext, n: int, fail: bool = False) -> int:
        if fail:
            raise ValueError("no")
        return n * 2

    dag = Dag("calling", inputs={"n": 4})
    dag.workflow("two", double, {"n": "{{ inputs.n }}"})
    dag.workflow("four", "double", {"n": "{{ tasks.two.output }}"}, after=["two"])
    dag.workflow("bad", "double", {"n": 1, "fail": True}, retry={"limit": 2, "delay": 5})
    async with parked(store, dag, double) as (app, job):
        await drained(app, app.advance(5))
        ended = await job.get()
        tasks = ended.state["tasks"]
        assert (tasks["two"]["output"], tasks["four"]["output"]) == (8, 16)
        assert (tasks["bad"]["status"], tasks["bad"]["attempt"]) == ("failed", 2)
        assert "ValueError: no" in str(ended.error)


async def test_j9_the_delay_before_a_workflow_starts_again_is_at_most_a_century() -> None:
    @workflow
    async def bad(ctx: FunctionContext) -> None:
        raise ValueError("no")

    dag = Dag("calling")
    dag.workflow("call", bad, retry={"limit": 3, "delay": 1e9, "scaling": 100})
    async with Harness(dag, bad) as app:
        job = await drained(app, app.start(dag))
        await drained(app, app.advance(1e9))
        tasks = (await job.get()).state["tasks"]
        assert (tasks["call"]["status"], tasks["call"]["attempt"]) == ("pending", 3)


@pytest.mark.parametrize("name", [None, "", 7, "x" * 1000])
async def test_j9_an_event_without_a_proper_name_fails_the_task_that_waits_for_it(name: Any) -> None:
    dag = Dag("events", inputs={"name": name})
    dag.wait_for_event("wait", "{{ inputs.name }}")
    async with ran(None, dag) as (_, job):
        assert "Task 'wait' failed: InvalidInput: The event" in str((await job.get()).error)


async def test_j9_wait_for_event_takes_the_event_that_matches_and_a_timeout_is_a_result(store: Store) -> None:
    dag = Dag("events")
    dag.task("create", "create")
    dag.wait_for_event(
        "paid", "payment", after=["create"], match="{{ event.order == tasks.create.output.order }}", timeout=60
    )
    dag.wait_for_event("never", "silence", after=["create"], timeout=60)
    async with ran(store, dag, create=lambda task: {"order": 7}) as (app, job):
        assert statuses(await job.get()) == {"create": "completed", "paid": "suspended", "never": "suspended"}
        for payload in ({"order": 1}, "another shape", {"order": 7, "amount": 5}, {"order": 7, "amount": 6}):
            await app.broadcast("payment", payload)
        await app.drain()
        await drained(app, app.advance(60))
        assert (await job.get()).result == {
            "create": {"order": 7}, "paid": {"order": 7, "amount": 5}, "never": {"timeout": True},
        }  # fmt: skip


async def test_j9_an_approval_is_answered_or_rejected_and_says_who_decided(store: Store) -> None:
    dag = Dag("approving", inputs={"what": "v1"})
    dag.approval("plain", "Deploy {{ inputs.what }}?", timeout=60)
    dag.approval("form", "How many?", schema={"type": "object", "required": ["count"]}, assignees=["ann"])
    dag.approval("late", "Anyone?", timeout=60)
    async with ran(store, dag) as (app, job):
        assert set(statuses(await job.get()).values()) == {"suspended"}
        asked = {one.task: one for one in await app.awakeables(job=job)}
        assert asked["plain"].title == "Deploy v1?"
        assert {one.instance_id for one in asked.values()} == {job.id}
        with pytest.raises(InvalidAnswer):
            await app.resolve(asked["plain"].id, {"maybe": True})
        await app.resolve(asked["plain"].id, {"action": "approve", "comment": "fine"}, by="bob")
        await drained(app, app.resolve(asked["form"].id, {"count": 3, "approved": False}, by="ann"))
        await drained(app, app.advance(60))
        ended = await job.get()
        tasks = ended.state["tasks"]
        assert tasks["plain"]["output"] == {"action": "approve", "comment": "fine", "approved": True, "by": "bob"}
        assert (tasks["form"]["status"], tasks["form"]["error"]) == ("failed", "Rejected.")
        assert (tasks["late"]["status"], ended.status) == ("failed", "failed")
        await drained(app, app.retry(job))
        again = await app.awakeables(job=job, status="PENDING")
        assert sorted(str(one.task) for one in again) == ["form", "late"], "what was rejected is asked again"
        for one in again:
            await app.resolve(
                one.id, {"count": 1, "action": "approve"} if one.task == "form" else {"action": "approve"}
            )
        await app.drain()
        assert (await job.get()).status == "done"


async def test_j9_a_job_is_a_task_of_another_and_is_cancelled_with_it(store: Store) -> None:
    inner = Dag("inner", inputs={"n": 0})
    inner.task("add", "add")
    inner.wait_for_event("go", "go", after=["add"])
    outer = Dag("outer")
    outer.workflow("call", inner, {"n": 4})
    async with harness(store, outer, inner) as app:
        handlers(app, add=lambda task: task.inputs["n"] + 1)
        job, cancelled = await app.start(outer), await app.start(outer)
        await app.drain()
        await app.cancel(cancelled)
        assert await app.broadcast("go", "gone") == 1, "the job below the cancelled one is cancelled too"
        await app.drain()
        assert (await job.get()).result == {"call": {"add": 5, "go": "gone"}}
        assert await app.waits() == []


async def test_j9_tasks_have_queues_concurrency_keys_and_rate_limits(store: Store) -> None:
    dag = Dag("limits", inputs={"region": "eu"}, queue="batch")
    dag.task("here", "any", queue="other", concurrency_key="deploy:{{ inputs.region }}")
    dag.task("there", "any")
    dag.task("first", "any", rate_limit=("api", "{{ inputs.region }}"))
    dag.task("second", "any", rate_limit=("api", "{{ inputs.region }}"), after=["first"])
    dag.task("unlimited", "any", rate_limit="unknown")
    async with harness(store, dag, rate_limits={"api": {"allowed": 1, "period": 60}}) as app:
        handlers(app, any=Script())
        job = await drained(app, app.start(dag))
        rows = {task.step: task for task in await app.list(kind="task")}
        assert {name: task.queue for name, task in rows.items()} == {
            "here": "other", "there": "batch", "first": "batch", "second": "batch",
        }  # fmt: skip
        assert statuses(await job.get())["second"] == "pending", "it waits for its token"
        await drained(app, app.advance(60))
        ended = await job.get()
        assert statuses(ended)["second"] == "completed"
        assert "unknown" in str(ended.error), "a limit that is not configured fails the task"


async def test_j9_completed_tasks_are_undone_when_the_job_fails_or_is_cancelled(store: Store) -> None:
    dag = Dag("undoing")
    dag.task("one", "any", undo="undo")
    dag.task("two", "any", after=["one"], undo="undo")
    dag.task("bad", "any", after=["two"])
    dag.sleep("long", 3600, after=["two"])
    script = Script(bad=1)
    undone: list[Any] = []

    def undo(task: Any) -> None:
        undone.append(task.input)
        if task.input == "two":
            raise ValueError("cannot be undone")

    async with ran(store, dag, any=script, undo=undo) as (app, job):
        await drained(app, app.advance(3600))
        assert (await job.get()).status == "failed"
        assert undone == ["two", "one"], "the latest first, and all although one failed"
        assert [e.step for e in await app.events(job, limit=100) if e.type == "undo_failed"] == ["two"]
        await drained(app, app.retry(job))
        assert script.ran.count("one") == 2, "what was undone runs again"
        undone.clear()
        await drained(app, app.cancel(job))
        assert ((await job.get()).status, undone) == ("cancelled", ["two", "one"])


async def test_j9_a_cancel_does_not_undo_again_what_was_undone_before_a_retry(store: Store) -> None:
    dag = Dag("undoing")
    dag.task("pay", "any", undo="undo")
    dag.task("check", "any", after=["pay"])
    dag.sleep("long", 3600, after=["check"])
    undone: list[Any] = []
    async with ran(store, dag, any=Script(check=1), undo=lambda task: undone.append(task.input)) as (app, job):
        assert ((await job.get()).status, undone) == ("failed", ["pay"])
        await drained(app, app.retry(job))
        await drained(app, app.cancel(job))
        assert ((await job.get()).status, undone) == ("cancelled", ["pay", "pay"])
        assert "undo_failed" not in {event.type for event in await app.events(job, limit=100)}


async def test_j9_a_cancel_during_an_undo_runs_it_again(store: Store) -> None:
    dag = Dag("undoing")
    dag.task("pay", "any", undo="undo")
    dag.task("check", "any", after=["pay"])
    async with harness(store, dag) as app:
        begun: list[Any] = []
        handlers(app, any=Script(check=1))

        @app.handler("undo")
        async def undo(task: Any) -> None:
            begun.append((task.input, (await job.get()).finished_at))
            if len(begun) == 1:
                await task.wait_for_signal("never", timeout=600)

        job = await app.start(dag)
        await app.drain()
        assert begun == [("pay", None)]
        await app.cancel(job)
        await app.drain()
        assert ((await job.get()).status, begun) == ("cancelled", [("pay", None)] * 2)
        assert "undo_failed" not in {event.type for event in await app.events(job, limit=100)}
