"""Tasks as workers outside see them: FetchedTask, and the token that proves a claim."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime
from typing import Any, Final

from msgspec import UNSET, Struct, UnsetType

OWNER: Final = "outside:"  # the prefix of the owners of fetched tasks, which are the ids of their leases in `workers`


class FetchedTask(Struct, frozen=True):
    """A task that a worker outside has fetched.

    Attributes:
        id: The id of the task.
        token: Proves that this worker holds the task; every call about the task needs it. A secret of this fetch.
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


def new_token() -> str:
    """Make the token of one claim: 192 random bits. The store keeps only a digest of it, in the id of its lease."""
    return secrets.token_urlsafe(24)


def owner_of(token: str) -> str:
    """The id of the lease of the claim that has this token."""
    return OWNER + hashlib.sha256(token.encode(errors="replace")).hexdigest()[:32]
