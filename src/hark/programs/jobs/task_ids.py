"""Build and parse the ids of the tasks of a job.

A task is `{job}.{number}`, where the number is its index in the spec; after a regression `{job}.{number}-{generation}`.
An item of a map is `{task}.{item}`, the undo of a task `{task}.undo`. So everything that belongs to a job has an id
between `{job}.` and `{job}/`, and is found without another index.
"""

from __future__ import annotations

UNDO_SUFFIX = "undo"


def task_id(job: str, number: int, generation: int = 0) -> str:
    return f"{job}.{number}-{generation}" if generation else f"{job}.{number}"


def item_id(task: str, item: int) -> str:
    """The id of an item of a map, which is the task with this id."""
    return f"{task}.{item}"


def undo_id(task: str) -> str:
    """The id of the undo of a task."""
    return f"{task}.{UNDO_SUFFIX}"


def parse_task_id(job: str, id: str) -> tuple[int, int] | None:
    """The number and generation of a task of this job; None for an id that is not one, such as that of an undo."""
    if not id.startswith(f"{job}."):
        return None
    number, _, generation = id[len(job) + 1 :].partition("-")
    if not number.isdecimal() or not (generation.isdecimal() or not generation):
        return None
    return int(number), int(generation or 0)


def last_part(id: str) -> int:
    """The number of an item of a map, from its id."""
    return int(id.rpartition(".")[2])
