"""V3: the matrix of changes of jobs, processes, their handlers, and schedules. Each line of these tables in
docs/deploys.md, made while an instance waits.

Jobs and processes are in the store: live ones go on with the file that they began with. Handlers and gates are code
without a journal: a task whose handler is not there waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hark import Dag, Instance, TaskContext, workflow
from hark.testing import Harness
from tests.promises.support_jobs import handlers, statuses
from tests.support.bpmn_text import bpmn, line, service
from tests.support.harness import harness
from tests.support.stores import Store

Scenario = Callable[[Store], Awaitable[None]]
Table = dict[str, tuple[str, Scenario]]

# By the first column of the tables in docs/deploys.md, in their order: the effect, and the test.
JOBS: Table = {}
PROCESSES: Table = {}
HANDLERS: Table = {}
SCHEDULES: Table = {}


def change(table: Table, text: str, effect: str) -> Callable[[Scenario], Scenario]:
    def add(scenario: Scenario) -> Scenario:
        table[text] = effect, scenario
        return scenario

    return add


# -- jobs ------------------------------------------------------------------------------------------------------------

OLD = {
    "name": "release",
    "tasks": [{"name": "build", "handler": "build"}, {"name": "ship", "handler": "ship", "needs": ["build"]}],
}
NEW = {"name": "release", "tasks": [{"name": "test", "handler": "test", "gate": "user_approval"}]}


def builds(app: Harness, *names: str) -> None:
    """Handlers of these names. That of `build` waits for a signal."""

    async def build(task: TaskContext) -> str:
        await task.wait_for_signal("built", timeout=3600)
        return "image"

    handlers(app, **{name: build if name == "build" else lambda task: task.name for name in names})


async def release(store: Store) -> str:
    """A job whose first task waits."""
    async with harness(store) as app:
        builds(app, "build", "ship")
        await app.deploy(OLD)
        job = await app.start("release")
        await app.drain()
        return job.id


async def built(app: Harness, job: str) -> Instance:
    await app.signal(job, "built")
    await app.drain()
    return await app.get(job)


@change(JOBS, "Change the file, and deploy it again", "goes on")
async def changed_job(store: Store) -> None:
    job = await release(store)
    async with harness(store) as app:
        builds(app, "build", "ship", "test")
        assert await app.deploy(NEW) == [("release", 2)]
        assert not (await app.check()).problems
        found = await built(app, job)
        assert (found.status, found.version, [*statuses(found)]) == ("done", 1, ["build", "ship"])
        assert (await (await app.start("release")).get()).version == 2


@change(JOBS, "Undeploy it", "goes on")
async def undeployed_job(store: Store) -> None:
    job = await release(store)
    async with harness(store) as app:
        builds(app, "build", "ship")
        await app.undeploy("release")
        assert not (await app.check()).problems
        assert (await built(app, job)).status == "done"


@change(JOBS, "Change a job in Python, and register it", "goes on")
async def registered_job(store: Store) -> None:
    old, new = Dag("nightly"), Dag("nightly")
    old.task("build", "build")
    new.task("test", "test")
    async with harness(store, old) as app:
        builds(app, "build")
        job = await app.start(old)
        await app.drain()
    async with harness(store, new) as app:
        builds(app, "build", "test")
        assert not (await app.check()).problems
        found = await built(app, job.id)
        assert (found.status, found.version) == ("done", 1)


# -- processes -------------------------------------------------------------------------------------------------------

PROCESS = bpmn(line(service("build", "build"), service("ship", "ship")))
OTHER_PROCESS = bpmn(line(service("test", "test")))


async def order(store: Store) -> str:
    """A process whose first service task waits."""
    async with harness(store) as app:
        builds(app, "build", "ship")
        await app.deploy(PROCESS)
        found = await app.start("order")
        await app.drain()
        return found.id


@change(PROCESSES, "Change the file, and deploy it again", "goes on")
async def changed_process(store: Store) -> None:
    process = await order(store)
    async with harness(store) as app:
        builds(app, "build", "ship", "test")
        assert await app.deploy(OTHER_PROCESS) == [("order", 2)]
        assert not (await app.check()).problems
        found = await built(app, process)
        assert (found.status, found.version) == ("done", 1)
        assert (await (await app.start("order")).get()).version == 2


@change(PROCESSES, "Undeploy it", "goes on")
async def undeployed_process(store: Store) -> None:
    process = await order(store)
    async with harness(store) as app:
        builds(app, "build", "ship")
        await app.undeploy("order")
        assert not (await app.check()).problems
        assert (await built(app, process)).status == "done"


# -- handlers and gates ----------------------------------------------------------------------------------------------


@change(HANDLERS, "Change the code of a handler or a gate", "goes on")
async def changed_handler(store: Store) -> None:
    job = await release(store)
    async with harness(store) as app:

        async def build(task: TaskContext) -> str:
            await task.put_stream("another call before the wait")
            await task.wait_for_signal("built", timeout=3600)
            return "another image"

        handlers(app, build=build, ship=lambda task: task.outputs["build"])
        assert not (await app.check()).problems
        assert (await built(app, job)).result == {"build": "another image", "ship": "another image"}


@change(HANDLERS, "Change what a handler waits for", "goes on")
async def other_wait_of_handler(store: Store) -> None:
    job = await release(store)
    async with harness(store) as app:
        handlers(app, build=lambda task: task.wait_for_signal("image", timeout=3600), ship=lambda task: 1)
        assert not (await app.check()).problems
        assert (await built(app, job)).status == "awaiting_children"  # woken by the old wait, and waits anew
        await app.signal(job, "image", 1)
        await app.drain()
        assert (await app.get(job)).result["build"] == 1


@change(HANDLERS, "Change what a checkpoint has, so that the handler raises when it reads the old one", "fails")
async def other_checkpoint(store: Store) -> None:
    dag = Dag("loop")
    dag.task("build", "build", retry={"limit": 1})

    async def before(task: TaskContext) -> None:
        await task.checkpoint(["a"])
        await task.wait_for_signal("built", timeout=3600)

    async def after(task: TaskContext) -> None:
        (await task.load_checkpoint())["items"]

    async with harness(store, dag) as app:
        handlers(app, build=before)
        job = (await app.start(dag)).id
        await app.drain()
    async with harness(store, dag) as app:
        handlers(app, build=after)
        assert not (await app.check()).problems
        assert (await built(app, job)).status == "failed"
    async with harness(store, dag) as app:
        handlers(app, build=before)
        await app.retry(job)
        await app.drain()
        assert (await app.get(job)).status == "done"  # the signal that it did not receive was kept


@change(HANDLERS, "Rename or remove a handler that a live job or process needs", "waits")
async def renamed_handler(store: Store) -> None:
    jobs = [await release(store), await order(store)]
    async with harness(store) as app:
        builds(app, "make", "ship")
        assert {one.expected for one in (await app.check()).problems} == {"the handler 'build'"}
        for job in jobs:
            assert (await built(app, job)).finished_at is None
            assert "the handler 'build'" in (await app.why(job)).text
    async with harness(store) as app:
        builds(app, "build", "ship")
        await app.drain()
        assert [(await app.get(job)).status for job in jobs] == ["done", "done"]


@change(HANDLERS, "Rename or remove a gate that a live job needs", "waits")
async def renamed_gate(store: Store) -> None:
    dag = Dag("gated")
    dag.task("build", "build", gate="score")
    async with harness(store, dag) as app:
        builds(app, "build")
        app.gate("score")(lambda output, inputs: True)
        job = (await app.start(dag)).id
        await app.drain()
    async with harness(store, dag) as app:
        builds(app, "build")
        assert {one.expected for one in (await app.check()).problems} == {"the gate 'score'"}
        assert (await built(app, job)).finished_at is None
    async with harness(store, dag) as app:
        builds(app, "build")
        app.gate("score")(lambda output, inputs: True)
        await app.drain()
        assert (await app.get(job)).status == "done"


# -- schedules -------------------------------------------------------------------------------------------------------


def report(version: int, name: str = "report") -> Any:
    @workflow(name=name, version=version)
    async def code(ctx: Any, to: str) -> int:
        return version

    return code


async def ticked(app: Harness, seconds: int = 60) -> list[tuple[int, str]]:
    """The instances after the next tick, as version and status."""
    await app.advance(seconds)
    await app.drain()
    return [(one.version, one.status) for one in await app.list()]


async def scheduled(store: Store) -> None:
    async with harness(store, report(1)) as app:
        await app.schedule("hourly", "report", "ann", every=60)


@change(SCHEDULES, "Register another version of what a schedule starts", "goes on")
async def newer_version(store: Store) -> None:
    await scheduled(store)
    async with harness(store, report(1), report(2)) as app:
        assert await ticked(app) == [(2, "done")]


@change(SCHEDULES, "Retire that version", "goes on")
async def retired_version(store: Store) -> None:
    await scheduled(store)
    async with harness(store, report(1), report(2)) as app:
        await app.retire("report", 2)
        assert await ticked(app) == [(1, "done")]


@change(SCHEDULES, "Change `schedule:` in a job file, and deploy it again", "goes on")
async def other_schedule_of_job(store: Store) -> None:
    async with harness(store) as app:
        builds(app, "ship")
        job = {"name": "nightly", "tasks": [{"name": "ship", "handler": "ship"}]}
        await app.deploy({**job, "schedule": {"every": 60}})
        await app.deploy({**job, "schedule": {"every": 3600}})
        [schedule] = await app.schedules()
        assert schedule.every == 3600
        await app.deploy(job)
        assert await app.schedules() == []


@change(SCHEDULES, "Rename or remove what a schedule starts", "waits")
async def removed_definition(store: Store) -> None:
    await scheduled(store)
    async with harness(store, report(1, "summary")) as app:
        assert await ticked(app) == [(1, "runnable")]
    async with harness(store, report(1)) as app:
        await app.drain()
        assert [one.status for one in await app.list()] == ["done"]


@change(SCHEDULES, "Change the parameters, so that the input of the schedule does not fit", "fails")
async def other_input(store: Store) -> None:
    @workflow(name="report")
    async def other(ctx: Any, to: str, since: int) -> int:
        return since

    await scheduled(store)
    async with harness(store, other) as app:
        assert await ticked(app) == [(1, "failed")]
    async with harness(store, report(1)) as app:
        await app.retry((await app.list())[0].id)
        await app.drain()
        assert [one.status for one in await app.list()] == ["done"]


@pytest.mark.parametrize("text", JOBS)
async def test_v3_a_change_of_a_job_that_waits(store: Store, text: str) -> None:
    await JOBS[text][1](store)


@pytest.mark.parametrize("text", PROCESSES)
async def test_v3_a_change_of_a_process_that_waits(store: Store, text: str) -> None:
    await PROCESSES[text][1](store)


@pytest.mark.parametrize("text", HANDLERS)
async def test_v3_a_change_of_a_handler_whose_task_waits(store: Store, text: str) -> None:
    await HANDLERS[text][1](store)


@pytest.mark.parametrize("text", SCHEDULES)
async def test_v3_a_change_of_what_a_schedule_starts(store: Store, text: str) -> None:
    await SCHEDULES[text][1](store)
