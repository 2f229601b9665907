"""The lease of a task as text, which a command of the task sends with its requests, and which fences them.

The text is `{epoch}.{task id}`; a shell task finds it in `HARK_LEASE`. It names a claim and is not a permission: a
command that sends it has the URL of the store. Workers outside have tokens instead (outside.py).
"""

from __future__ import annotations

from hark.model.errors import InvalidInput


def lease_text(task_id: str, epoch: int) -> str:
    return f"{epoch}.{task_id}"


def parse_lease(text: str) -> tuple[str, int]:
    """The task and the epoch of a lease.

    Raises:
        InvalidInput: It is not a lease.
    """
    epoch, dot, task_id = text.partition(".")
    if not dot or not task_id or not (epoch.isascii() and epoch.isdecimal()):
        raise InvalidInput(f"HARK_LEASE is {text!r}, which is not the lease of a task. Do not set it yourself.")
    return task_id, int(epoch)
