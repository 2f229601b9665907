"""What the tests of jobs share: handlers that follow a script, and the statuses of tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hark import Hark, Instance


def handlers(app: Hark, **functions: Callable[[Any], Any]) -> None:
    """Register plain functions of the task as handlers; a name with `_` has `-` in jobs."""
    for name, function in functions.items():
        app.handler(name.replace("_", "-"))(_handler(function))


def _handler(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def handler(task: Any) -> Any:
        return function(task)

    return handler


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
