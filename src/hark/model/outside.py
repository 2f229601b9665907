"""Tasks as workers outside see them: FetchedTask, and the token that proves a claim."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

from hark.model.errors import TaskLost

OWNER: Final = "outside:"  # the prefix of the owners of fetched tasks, which are the ids of their leases in `workers`


class FetchedTask(Struct, frozen=True):
    """A task that a worker outside has fetched.

    Attributes:
        id: The id of the task.
        token: Proves that this worker holds the task; every call about the task needs it.
        handler: The handler that it is for.
        run_id: The id of its job or process.
        name: Its name in the job, or the id of its element.
        input: The job's input, or the output of its one need, or the outputs of its needs by name; in a process, the
            variables that it sees.
        inputs: The inputs of the job; in a process, the same as `input`.
        attempt: From 1.
        iteration: Of a loop, from 0.
        checkpoint: What the last heartbeat with a checkpoint stored; null before the first.
        previous: Of a loop, what its last iteration gave to `continue`; absent in the first.
        headers: Of a process, the texts that the file has for the handler; absent if there are none.
    """

    id: str
    token: str
    handler: str
    run_id: str
    name: str
    input: Any
    inputs: Any
    attempt: int
    iteration: int
    checkpoint: Any
    previous: Any | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET


class TaskHeartbeat(Struct, frozen=True):
    """The response to a heartbeat.

    Attributes:
        cancelled: Whether the task was cancelled: its worker ends it, and reports nothing more.
        until: When the lease ends if there is no other heartbeat; null if the task was cancelled.
    """

    cancelled: bool
    until: datetime | None


def epoch_of(token: str, id: str) -> int:
    """The epoch in a token, which is the lease of the task as text (task_lease.py). Raises TaskLost if it is not a
    token of this task."""
    epoch, _, task = token.partition(".")
    if task != id or not (epoch.isascii() and epoch.isdigit() and len(epoch) < 20):
        raise TaskLost(f"This is not a token of task {id}. Use the one that came with the task.")
    return min(int(epoch), (1 << 63) - 1)
