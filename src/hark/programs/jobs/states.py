"""The state of a task within its job: one letter in the state of the job.

The row of the task says more (whether it is suspended, its attempt, its output); see views/job_view.py.
"""

from __future__ import annotations

from typing import Final

PENDING: Final = "p"
STARTED: Final = "r"
COMPLETED: Final = "c"
FAILED: Final = "f"
SKIPPED: Final = "s"  # its condition does not hold: whatever needs it may start
UNREACHED: Final = "n"  # skipped because a task that it needs has failed: whatever needs it is skipped too
CANCELLED: Final = "x"
NOT_STARTED: Final = "a"  # cancelled before it started: it has no row
INVALID: Final = "e"  # failed before it started: a condition or template is wrong, or its id is taken. It has no row

UNFINISHED: Final = frozenset((PENDING, STARTED))
FAILURES: Final = frozenset((FAILED, CANCELLED, NOT_STARTED, INVALID))
WITH_ROW: Final = frozenset((STARTED, COMPLETED, FAILED, CANCELLED))

SHOWN: Final = {
    PENDING: "pending",
    STARTED: "running",
    COMPLETED: "completed",
    FAILED: "failed",
    SKIPPED: "skipped",
    UNREACHED: "skipped",
    CANCELLED: "cancelled",
    NOT_STARTED: "cancelled",
    INVALID: "failed",
}
"""The state that people see for a letter."""

OF_STATUS: Final = {"done": COMPLETED, "failed": FAILED, "cancelled": CANCELLED, "refused": INVALID}
"""The letter for the end of a task: the status of its row, or `refused` if it has none."""
