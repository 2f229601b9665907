"""Record which asyncio tasks the engine has cancelled, because what runs in them does not count any more (X8).

`Task.cancelling()` does not say so: before Python 3.13, a TaskGroup that fails leaves the task that it is in marked as
cancelled, and the error of the user's code would be taken for the end of its activation.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakSet

_cancelled: WeakSet[asyncio.Task[Any]] = WeakSet()


def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task that runs the code of a user."""
    _cancelled.add(task)
    task.cancel()


def is_cancelled() -> bool:
    """Return True if the engine has cancelled the asyncio task that calls this."""
    task = asyncio.current_task()
    return task is not None and task in _cancelled
