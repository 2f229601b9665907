"""Share among the tests of jobs: handlers that follow a script, a job that has run, and the statuses of tasks."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from hark import Dag, Handle, Hark, Instance, Job
from hark.testing import Harness
from tests.promises.support_machines import harness
from tests.support.stores import Store


def one_task(name: str = "job", **options: Any) -> Dag:
    """A job whose only task is `work`, with the handler `work`."""
    dag = Dag(name)
    dag.task("work", "work", **options)
    return dag


def handlers(app: Hark, **functions: Callable[[Any], Any]) -> None:
    """Register functions of the task as handlers on the loop; a name with `_` has `-` in jobs."""
    for name, function in functions.items():
        app.handler(name.replace("_", "-"))(_handler(function))


def _handler(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def handler(task: Any) -> Any:
        answer = function(task)
        return await answer if inspect.isawaitable(answer) else answer

    return handler


@asynccontextmanager
async def started(
    store: Store | None, job: Dag | Job, *input: Any, id: str | None = None, **functions: Callable[[Any], Any]
) -> AsyncIterator[tuple[Harness, Handle]]:
    """A job with these handlers that was started and has not run yet; without a store, in memory."""
    async with Harness(job) if store is None else harness(store, job) as app:
        handlers(app, **functions)
        yield app, await app.start(job, *input, id=id)


@asynccontextmanager
async def ran(
    store: Store | None, job: Dag | Job, *input: Any, **options: Any
) -> AsyncIterator[tuple[Harness, Handle]]:
    """A job that was started in the same way, and has run until nothing can run."""
    async with started(store, job, *input, **options) as (app, handle):
        await app.drain()
        yield app, handle


class Script:
    """A handler for every task: it raises as often as it was told to, and else returns the name of its task."""

    def __init__(self, **failures: int) -> None:
        self.failures = failures
        self.ran: list[str] = []

    def __call__(self, task: Any) -> str:
        self.ran.append(task.name)
        if self.failures.get(task.name, 0) > 0:
            self.failures[task.name] -= 1
            raise ValueError(f"{task.name} does not work")
        return str(task.name)


def statuses(job: Instance) -> dict[str, str]:
    """The status of each task of a job."""
    return {name: task["status"] for name, task in job.state["tasks"].items()}
