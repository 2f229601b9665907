"""The state of a job's row: its inputs, one letter per task, and what only regressions, retries and undos need.

Outputs are not in it: they stay in the rows of the tasks.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from hark.programs.jobs.task_ids import task_id

START = "start"  # the step of a job that has not begun: its state is the input as it was given
RUN = "run"
DEADLINE = "timeout"  # the place of the wait for the end of the time that `timeout_sec` gives a job

_Task = tuple[int, int]  # number and generation


class JobState(Struct, omit_defaults=True):
    """The state of a job that has begun.

    Attributes:
        inputs: The inputs, with the defaults of the spec.
        tasks: One letter per task, see states.py.
        generations: How often each task was started anew, by number; 0 is left out.
        regressions: How often each task has regressed the job, by number.
        errors: Why tasks failed before they started, by number.
        again: Tasks that have a row of an earlier run of the job: they are started by retrying that row.
        undo: The completed tasks that have an undo and are not undone, in the order of their completion.
        undoing: The one that is being undone.
        undone: Those that were undone.
        cancelling: The job was cancelled, and only what a cancel leaves to do runs.
        timed_out: Its time was over before its tasks had ended, and only what a failure leaves to do runs.
        failed: The job has ended as failed. When it runs again, it was retried.
        row_numbers: After a migration: the numbers in the ids of the rows of tasks whose own number is another one.
        next_row: After a migration: the first number that is in the id of no row.
        older: After a migration: the last generation of each task whose row has an earlier version, by number.
        migrated: The job was migrated since the last activation.
    """

    inputs: Raw
    tasks: str
    generations: dict[int, int] = {}
    regressions: dict[int, int] = {}
    errors: dict[int, str] = {}
    again: list[int] = []
    undo: list[_Task] = []
    undoing: _Task | None = None
    undone: list[_Task] = []
    cancelling: bool = False
    timed_out: bool = False
    failed: bool = False
    row_numbers: dict[int, int] = {}
    next_row: int = 0
    older: dict[int, int] = {}
    migrated: bool = False

    def row_id(self, job: str, number: int, generation: int | None = None) -> str:
        """The id of the row of a task: of its present generation, or of an earlier one."""
        if generation is None:
            generation = self.generations.get(number, 0)
        return task_id(job, self.row_numbers.get(number, number), generation)

    def numbers(self) -> dict[int, int]:
        """The tasks by the numbers in the ids of their rows."""
        return {self.row_numbers.get(number, number): number for number in range(len(self.tasks))}

    def is_older(self, number: int, generation: int) -> bool:
        """Return True if the row of this generation of a task has an earlier version of the job."""
        return generation <= self.older.get(number, -1)


load_job_state = msgspec.json.Decoder(JobState).decode
"""Read the state of a job from the text in its row."""
_encoder = msgspec.json.Encoder()


def dump_job_state(state: JobState) -> str:
    """The state of a job as the text for its row."""
    return _encoder.encode(state).decode()
