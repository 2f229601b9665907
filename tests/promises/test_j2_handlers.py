"""J2: a task runs a registered Python handler, which gets the inputs of the job and the outputs of its needs."""

from typing import Any

import pytest

from hark import Dag, InvalidDefinition, InvalidInput
from hark.testing import Harness
from tests.promises.support_jobs import ran
from tests.support.harness import drained
from tests.support.inspect import until
from tests.support.stores import Store


async def test_j2_the_input_of_a_handler_comes_from_the_job_or_from_its_needs(store: Store) -> None:
    dag = Dag("inputs")
    dag.task("first", "show")
    dag.task("second", "show", after=["first"])
    dag.task("third", "show", after=["first", "second"])
    dag.task("given", "show", after=["first"], input={"n": "{{ inputs.n + 1 }}", "of": "{{ tasks.first.output.name }}"})

    async def show(task: Any) -> Any:
        return {"name": task.name, "input": task.input}

    async with ran(store, dag, {"n": 1}, show=show) as (_, job):
        result = await job.result(timeout=10)
        first = {"name": "first", "input": {"n": 1}}
        second = {"name": "second", "input": first}
        assert result["first"] == first
        assert result["second"] == second
        assert result["third"]["input"] == {"first": first, "second": second}
        assert result["given"]["input"] == {"n": 2, "of": "first"}


async def test_j2_a_handler_sees_its_job_its_attempt_and_the_outputs_it_needs() -> None:
    dag = Dag("context", inputs={"big": "x" * 2000})
    dag.task("one", "plain")
    dag.task("two", "context", after=["one"])
    async with Harness(dag) as app:

        @app.handler("plain")
        def plain(task: Any) -> Any:
            assert task.wait_for_signal is not None
            return task.complete([1])

        @app.handler("context")
        async def context(task: Any) -> Any:
            assert len(task.inputs["big"]) == 2000, "large inputs are read from the job"
            assert task.scheduled_at is None
            task.log.info("in the log")
            return [task.id, task.run_id, task.name, task.attempt, task.iteration, task.outputs]

        job = await drained(app, app.start(dag, id="run"))
        assert (await job.result(timeout=10))["two"] == ["run.1", "run", "two", 1, 0, {"one": [1]}]


async def test_j2_an_input_that_cannot_be_rendered_fails_the_task() -> None:
    dag = Dag("broken")
    dag.task("work", "work", input="{{ inputs.n.deep.er }}")
    async with Harness(dag) as app:
        app.handler("work")(lambda task: None)
        job = await drained(app, app.start(dag, {"n": 1}))
        task = await app.get(f"{job.id}.0")
        assert (task.status, (task.error or "").split(":")[0]) == ("failed", "ExpressionError")


async def test_j2_a_handler_is_registered_once_under_a_usable_name() -> None:
    app = Harness()

    def work(task: Any) -> None: ...

    app.handler("work")(work)
    app.handler("work")(work)
    with pytest.raises(InvalidDefinition):
        app.handler("work")(lambda task: None)
    with pytest.raises(InvalidDefinition):
        app.handler("other")("not a function")  # type: ignore[type-var]
    for name in ("", "a\0b", "shell", "x" * 300):
        with pytest.raises(InvalidInput):
            app.handler(name)


async def test_j2_a_handler_that_no_worker_has_is_visible_and_the_task_waits_for_one(store: Store) -> None:
    dag = Dag("missing")
    dag.task("work", "elsewhere")
    async with ran(store, dag) as (app, job):
        why = await app.why(f"{job.id}.0")
        assert [blocker.reason for blocker in why.blockers] == ["no_worker"]
        assert "handler 'elsewhere'" in why.text
        app.handler("elsewhere")(lambda task: "here")
        await app.drain()
        assert await job.result(timeout=10) == {"work": "here"}


async def test_j2_a_handler_that_no_worker_has_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    dag = Dag("missing")
    dag.task("work", "elsewhere")
    async with Harness(dag) as app:
        await drained(app, app.start(dag))
        await until(lambda: "no live worker has the handler 'elsewhere'" in caplog.text, "the warning")
