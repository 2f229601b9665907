"""The state of a task's row: where it stands among its attempts, iterations and phases.

The interpreter writes the first one, the program of the task those after it. A checkpoint is kept across attempts,
iterations, suspensions and a retry of the job.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MAX_EMBEDDED = 512  # bytes of JSON: larger inputs of a job are read from the row of the job

# What `data` has of a service task of a process.
LOCAL: Final = "local"  # the variables that it sees beside those of the process itself, if these are large
STARTED_AT: Final = "started_at"  # if its variables are large: the count in the epoch of the process once it has
# started the task, and a time, µs, at which it was at an earlier one
BPMN_ERROR: Final = "bpmn_error"  # the error that its handler threw: `{"code", "message", "variables"}`


class TaskState(Struct, omit_defaults=True):
    """The state of a task, of an item of a map, or of the undo of a task. JSON values that are absent are UNSET.

    Attributes:
        task: Its number: its index in the tasks of the spec.
        run: The id of the job or process.
        generation: How often a regression, or a retry of the job, started it anew.
        generations: Those of the tasks that it may read, by number; a task that is not in it has generation 0.
        inputs: The inputs of the job, or the variables of the process, if they are small; else they are read with
            `services.inputs` or `services.variables`.
        item: The value of a map's item.
        number: The number of the item, for an item.
        undo: This is the undo of the task: it runs `undo:` of the spec, and its input is the task's output.
        attempt: From 1.
        iteration: Of a loop, from 0.
        phase: `run`; or `gate`, once it has an output that its gate has to accept.
        ended: It has failed or was cancelled. When it runs again, the job was retried: it begins with attempt 1, and
            its checkpoint.
        checkpoint: What the handler last gave to `checkpoint`.
        output: In the phase `gate`, the output.
        since: When it first began, µs, for `max_duration` of a loop; 0: it has not.
        period: How many checkpoints, attempts, iterations and pauses there were: what was asked before is asked anew.
        worked: µs that this attempt has worked before its present activation, for `timeout_sec`.
        paused: The name that the handler gave to its last pause, while it is paused.
        previous: Of a loop, what the last iteration gave to `continue_`.
        decided: How its gate was decided last: `{"gate", "action", "by"?, "comment"?, "reason"?}`.
        data: What else the program of the task keeps.
        row_numbers: The numbers in the ids of its own row and of those of tasks that it may read, where they differ.
        absent: How tasks that it may read ended that have no row: status and error. Without an entry, it was skipped.
    """

    task: int
    run: str
    generation: int = 0
    generations: dict[int, int] = {}
    inputs: Raw | UnsetType = UNSET
    item: Raw | UnsetType = UNSET
    number: int | None = None
    undo: bool = False
    attempt: int = 1
    iteration: int = 0
    phase: Literal["run", "gate"] = "run"
    ended: bool = False
    checkpoint: Raw | UnsetType = UNSET
    output: Raw | UnsetType = UNSET
    since: int = 0
    period: int = 0
    worked: int = 0
    paused: str | None = None
    previous: Raw | UnsetType = UNSET
    decided: dict[str, Any] | None = None
    data: dict[str, Any] = {}
    row_numbers: dict[int, int] = {}
    absent: dict[int, tuple[str, str | None]] = {}


load_task_state = msgspec.json.Decoder(TaskState).decode
"""Read the state of a task from the text in its row."""
_encoder = msgspec.json.Encoder()


def dump_task_state(state: TaskState) -> str:
    """The state of a task as the text for its row."""
    return _encoder.encode(state).decode()


def restarted(status: str, state: str) -> str | None:
    """The state with which a retry of the job runs a task again; None: the one in its row. A task that was cancelled
    could not write that it has ended. At its gate it has its output, and asks again."""
    task = load_task_state(state) if status == "cancelled" else None
    if task is None or task.phase == "gate":
        return None
    task.ended = True
    return dump_task_state(task)
