"""JobReport: a job and its tasks as the command line and the console show them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hark.model.activation import KINDS
from hark.model.values import Instance, WaitKind


@dataclass(frozen=True, slots=True)
class TaskWait:
    """Something a task waits for.

    Attributes:
        kind: The kind of the wait, as in `Wait.kind`.
        name: The awaited name; of an awakeable, its id.
        title: What an awakeable asks, or None.
        deadline: When it times out, or None.
        since: When the task began to wait.
        wake: The command that would end the wait, or None: also for a question whose time is over.
    """

    kind: WaitKind
    name: str | None
    title: str | None
    deadline: datetime | None
    since: datetime
    wake: str | None

    @property
    def ended_from_outside(self) -> bool:
        """True if the wait ends from outside: by a signal, a message or an answer."""
        return KINDS[self.kind].from_outside


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task of a job.

    Attributes:
        name: Its name.
        type: Its type, as in the job file.
        status: "pending" (also while a task that has run before waits for a worker or for its next attempt), "running",
            "suspended", "completed", "failed", "skipped" or "cancelled".
        id: The id of its instance; None if it has not started.
        attempt: Which attempt it is, from 1; 0 if it has not started.
        gate: The gate that decides on its output, or None.
        at_gate: Whether it has an output that its gate has not accepted yet.
        output: Its output as JSON, once it has completed.
        error: Why it failed or was cancelled, as text.
        started_at: When it was started, or None.
        finished_at: When it ended, or None.
        waits: What it waits for.
        note: What keeps it from running, such as a handler that no worker has; or None.
        only_waits: Of a map or a workflow task that runs: whether nothing below it runs, and nothing will until an
            answer, a signal or a worker comes from outside.
        is_held: Whether its code does not fit what it has committed; `note` says more.
    """

    name: str
    type: str
    status: str
    id: str | None = None
    attempt: int = 0
    gate: str | None = None
    at_gate: bool = False
    output: Any = None
    error: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    waits: tuple[TaskWait, ...] = ()
    note: str | None = None
    only_waits: bool = False
    is_held: bool = False

    @property
    def is_open(self) -> bool:
        """True if it was started and has not ended."""
        return self.id is not None and self.status in ("pending", "running", "suspended")


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job with its tasks.

    Attributes:
        job: The job.
        tasks: Its tasks, in the order of the file.
    """

    job: Instance
    tasks: tuple[TaskReport, ...]

    @property
    def only_waits(self) -> bool:
        """True if nothing runs, and nothing will run until an answer, a signal or a worker comes from outside."""
        return self.only_waits_beside(())

    def only_waits_beside(self, tasks: Container[str | None]) -> bool:
        """Return True if this is so of all but these tasks, by their ids."""
        open_tasks = [task for task in self.tasks if task.is_open]
        return (
            self.job.status == "awaiting_children"
            and bool(open_tasks)
            and all(task.id in tasks or _needs_help(task) for task in open_tasks)
        )


def _needs_help(task: TaskReport) -> bool:
    if task.status == "running":
        return task.only_waits
    return task.note is not None or any(wait.ended_from_outside for wait in task.waits)
