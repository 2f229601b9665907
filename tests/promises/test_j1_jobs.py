"""J1: a job runs its tasks in the order of their needs, with conditions, regressions and inputs."""

import pytest

from hark import Conflict, Dag, InvalidInput, NotFound, load_job
from hark.testing import Harness
from tests.promises.support_jobs import Script, handlers, ran, statuses
from tests.promises.support_machines import harness, neighbour
from tests.support.harness import drained
from tests.support.stores import Store


async def test_j1_a_job_of_two_tasks_ends_with_their_outputs(store: Store) -> None:
    dag = Dag("release")
    build = dag.task("build", "build", var="image")
    dag.task("verify", "verify", after=[build])
    async with harness(store, dag) as app:
        handlers(app, build=lambda task: f"image of {task.input['service']}", verify=lambda task: [task.input])
        job = await app.start(dag, {"service": "api"})
        before = await job.get()
        assert before.kind == "job"
        assert statuses(before) == {"build": "pending", "verify": "pending"}
        assert await app.drain() == {"steps": 5, "done": 3, "spawn": 2}
        spawned = [event.data["waits"] for event in await app.events(job.id) if event.type == "spawn"]
        assert spawned == [[{"kind": "children"}]] * 2, "a job does not count down its tasks"
        ended = await job.get()
        assert ended.result == {"image": "image of api", "verify": ["image of api"]}
        assert ended.state == {
            "inputs": {"service": "api"},
            "tasks": {
                "build": {"status": "completed", "attempt": 1, "output": "image of api", "error": None},
                "verify": {"status": "completed", "attempt": 1, "output": ["image of api"], "error": None},
            },
        }
        assert [one.state for one in await app.list(kind="job")] == [ended.state]
        tasks = await app.list(kind="task")
        assert [(task.id, task.step, task.parent_id) for task in tasks] == [
            (f"{job.id}.1", "verify", job.id), (f"{job.id}.0", "build", job.id),
        ]  # fmt: skip


async def test_j1_a_condition_reads_inputs_and_outputs_and_a_skipped_need_is_satisfied() -> None:
    dag = Dag("conditions", inputs={"service": "api"})
    dag.task("build", "any")
    dag.task("docs", "any", after=["build"], condition="{{ inputs.service == 'docs' }}")
    dag.task("check", "any", after=["docs"], condition="{{ tasks.build.output == 'build' }}")
    dag.task("broken", "any", after=["build"], condition="{{ tasks.build.output.size > 3 }}")
    async with ran(None, dag, any=Script()) as (_, job):
        ended = await job.get()
        assert statuses(ended) == {"build": "completed", "docs": "skipped", "check": "completed", "broken": "failed"}
        assert ended.error is not None
        assert ended.error.startswith("Task 'broken' failed: ")
        assert ended.error == f"Task 'broken' failed: {ended.state['tasks']['broken']['error']}"


async def test_j1_a_failed_task_skips_what_depends_on_it_and_the_rest_runs_to_its_end(store: Store) -> None:
    dag = Dag("failing")
    dag.task("bad", "any")
    dag.task("below", "any", after=["bad"])
    dag.task("further", "any", after=["below"])
    dag.task("beside", "any")
    dag.task("after", "any", after=["beside"])
    script = Script(bad=1)
    async with ran(store, dag, any=script) as (app, job):
        ended = await job.get()
        assert (ended.status, ended.error) == ("failed", "Task 'bad' failed: ValueError: bad does not work")
        assert statuses(ended) == {
            "bad": "failed", "below": "skipped", "further": "skipped", "beside": "completed", "after": "completed",
        }  # fmt: skip
        assert ended.state["tasks"]["bad"]["error"] == "ValueError: bad does not work"
        assert f"hark instance retry {job.id}" in (await app.why(f"{job.id}.0")).text
        with pytest.raises(Conflict, match=job.id):  # a task runs again with its job only
            await app.retry(f"{job.id}.0")
        await drained(app, app.retry(job))
        retried = await job.get()
        assert (retried.status, set(retried.result)) == ("done", {"bad", "below", "further", "beside", "after"})
        assert sorted(script.ran) == ["after", "bad", "bad", "below", "beside", "further"], "only what had to run ran"


async def test_j1_a_regression_begins_again_at_an_earlier_task_and_is_recorded(store: Store) -> None:
    dag = Dag("regressing")
    dag.task("plan", "any")
    dag.task("build", "any", after=["plan"])
    dag.task("slow", "wait", after=["build"])
    dag.task("verify", "any", after=["build"], on_fail={"regress_to": "build", "limit": 2})
    script = Script(verify=2)
    async with ran(store, dag, any=script, wait=lambda task: task.wait_for_signal("go", timeout=60)) as (app, job):
        assert script.ran == ["plan", "build", "verify", "build", "verify", "build", "verify"]
        assert statuses(await job.get()) == {
            "plan": "completed", "build": "completed", "slow": "suspended", "verify": "completed",
        }  # fmt: skip
        regressed = [event for event in await app.events(job, limit=100) if event.type == "regressed"]
        assert [(event.step, event.data) for event in regressed] == [
            ("verify", {"to": "build", "error": "ValueError: verify does not work", "count": count}) for count in (1, 2)
        ]
        old = [await app.get(f"{job.id}.2"), await app.get(f"{job.id}.2-1")]
        assert [task.status for task in old] == ["cancelled", "cancelled"], "what ran in the reset set was cancelled"
        assert (await app.get(f"{job.id}.3-1")).status == "failed", "the history of an older generation is kept"
        await drained(app, app.signal(job, "go", 1))
        assert (await job.get()).result == {"plan": "plan", "build": "build", "slow": 1, "verify": "verify"}


async def test_j1_a_task_that_has_regressed_too_often_fails_the_job() -> None:
    dag = Dag("limit")
    dag.task("build", "any")
    dag.task("verify", "any", after=["build"], on_fail={"regress_to": "build", "limit": 1})
    async with ran(None, dag, any=Script(verify=9)) as (app, job):
        ended = await job.get()
        assert ended.status == "failed"
        assert len([e for e in await app.events(job, limit=100) if e.type == "regressed"]) == 1


async def test_j1_inputs_have_defaults_and_others_are_refused() -> None:
    job = load_job(
        {"name": "greet", "inputs": {"who": "you", "times": 1}, "tasks": [{"name": "say", "handler": "say"}]}
    )
    async with Harness(job) as app:
        handlers(app, say=lambda task: task.inputs)
        with pytest.raises(InvalidInput, match=r"no input 'whom'.*Did you mean 'who'"):
            await app.start(job, {"whom": "me"})
        with pytest.raises(InvalidInput, match="takes an object"):
            await app.start(job, [1])
        with pytest.raises(InvalidInput, match="step="):
            await app.start(job, step="say")
        started = await drained(app, app.start(job, {"who": "me"}))
        assert (await started.get()).result == {"say": {"who": "me", "times": 1}}


async def test_j1_a_job_is_started_by_name_and_a_changed_one_is_the_next_version(store: Store) -> None:
    first = {"name": "versions", "inputs": {"n": 1}, "tasks": [{"name": "one", "handler": "any"}]}
    second = {**first, "tasks": [{"name": "two", "handler": "any"}]}
    async with harness(store) as app:
        assert await app.deploy(first) == [("versions", 1)]
        assert await app.deploy(first) == [("versions", 1)]
        old = await app.start("versions")
        async with neighbour(app, store) as other:
            assert await other.deploy(second) == [("versions", 2)]
        new, wrong = await app.start("versions"), await app.start("versions", {"m": 1})
        with pytest.raises(NotFound):
            await app.start("versions", version=3)
        handlers(app, any=Script())
        await app.drain()
        assert [(await job.get()).result for job in (old, new)] == [{"one": "one"}, {"two": "two"}]
        assert "no input 'm'" in str((await wrong.get()).error), "this process had not loaded that version"


async def test_j1_a_name_means_the_newest_version_and_a_dag_its_own(store: Store) -> None:
    dag = Dag("versions", inputs={"n": 1})
    dag.task("one", "any")
    async with harness(store, dag) as app:
        async with neighbour(app, store) as other:
            newer = {"name": "versions", "inputs": {"m": 2}, "tasks": [{"name": "two", "handler": "any"}]}
            assert await other.deploy(newer) == [("versions", 2)]
        by_name, by_dag = await app.start("versions"), await app.start(dag)
        handlers(app, any=lambda task: task.inputs)
        await app.drain()
        assert [(await job.get()).result for job in (by_name, by_dag)] == [{"two": {"m": 2}}, {"one": {"n": 1}}]
