"""Move a job to another version: without I/O, from its state to its state (V4).

A task becomes the one with its name. Its row stays, and so does the number in the id of that: the number of a task is
its index in the spec, which another version changes, so the state says which tasks have another number in their ids. A
task that runs goes on with the version with which it began; one that starts later has the new version.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from hark.model import json
from hark.model.activation import Claim
from hark.model.errors import InvalidInput
from hark.model.migration import Migrated, refuse
from hark.model.problem import Problem
from hark.programs.jobs import states
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_inputs import checked_inputs
from hark.programs.jobs.job_spec import TaskSpec
from hark.programs.jobs.job_state import DEADLINE, START, JobState, dump_job_state, load_job_state


def migrate_job(old: JobGraph, new: JobGraph, claim: Claim) -> Migrated:
    """Compute what becomes of a job.

    Args:
        old: The version that it has.
        new: The version that it gets.
        claim: The job, as it is in the store, with its waits.

    Raises:
        InvalidMigration: It cannot be moved; `.problems` has all reasons.
    """
    moving = _MovingJob(old, new, claim)
    migrated = moving.not_begun() if claim.step == START else moving.migrated()
    if moving.problems:
        raise refuse(f"{claim.definition} {claim.correlation_key or claim.id}", moving.problems)
    return migrated


class _MovingJob:
    """A job on its way to another version."""

    def __init__(self, old: JobGraph, new: JobGraph, claim: Claim) -> None:
        self._old, self._new, self._claim = old, new, claim
        self.problems: list[Problem] = []

    def _refuse(self, task: str | None, message: str) -> None:
        self.problems.append(Problem(task, None, message))

    def not_begun(self) -> Migrated:
        """A job that has not begun moves freely, if its input fits."""
        try:
            checked_inputs(self._new.spec, json.load(self._claim.state))
        except InvalidInput as error:
            self._refuse(None, str(error))
        return Migrated(step=self._claim.step, state=self._claim.state)

    def migrated(self) -> Migrated:
        state = load_job_state(self._claim.state)
        self._state = state
        self._numbers = {task.name: number for number, task in enumerate(self._new.tasks)}
        self._check_tasks()
        self._check_new_tasks()
        moved = JobState(
            self._moved_inputs(),
            "".join(self._letter(task) for task in self._new.tasks),
            generations=self._moved(state.generations),
            regressions=self._moved(state.regressions),
            errors=self._moved(state.errors),
            undo=[each for each in self._moved_pairs(state.undo) if self._new.tasks[each[0]].undo is not None],
            undone=self._moved_pairs(state.undone),
            cancelling=state.cancelling,
            timed_out=state.timed_out,
            failed=state.failed,
            migrated=True,
        )
        if state.undoing is not None:
            moved.undoing = next(iter(self._moved_pairs([state.undoing])), None)
        self._move_rows(moved)
        waits = {wait.place: wait.id for wait in self._claim.waits if wait.kind == "timer"}
        wait = next((wait.id for wait in self._claim.waits if wait.kind == "children"), None)
        has_limit = self._new.spec.timeout_sec is not None
        return Migrated(
            step=self._claim.step,
            state=dump_job_state(moved),
            dropped_waits=() if has_limit or DEADLINE not in waits else (waits[DEADLINE],),
            control=None if state.failed else wait,
        )

    # -- what cannot be moved ------------------------------------------------------------------------

    def _check_tasks(self) -> None:
        """Compare the tasks that have begun with those of the new version."""
        to_undo = {number for number, _ in self._state.undo}
        for number, (task, letter) in enumerate(zip(self._old.tasks, self._state.tasks, strict=True)):
            new = None if task.name not in self._numbers else self._new.tasks[self._numbers[task.name]]
            if new is None and letter == states.STARTED:
                self._refuse(task.name, "it runs, and the new version does not have it: let it end first")
            elif new is None and self._state.undoing is not None and self._state.undoing[0] == number:
                self._refuse(task.name, "it is being undone, and the new version does not have it")
            elif new is None and number in to_undo:
                self._refuse(task.name, "it has completed and would be undone, and the new version does not have it")
            elif new is None or letter == states.PENDING:
                continue
            elif new.is_finally != task.is_finally:
                where = "listed under `finally:`" if new.is_finally else "not listed under `finally:`"
                self._refuse(task.name, f"it has begun or ended, and is {where} only in the new version")
            elif letter == states.STARTED and (change := _change_of(task, new)) is not None:
                what, was, now = change
                self._refuse(
                    task.name,
                    f"it runs, and its {what} is {now} in the new version instead of {was}: let it end first",
                )

    def _check_new_tasks(self) -> None:
        """Refuse tasks that would start after the end of all tasks."""
        state = self._state
        if state.failed:
            return  # a retry begins again
        finals = state.tasks[self._old.normal :]
        if state.undoing is not None or state.undone:
            after = "the undos of the job"
        elif finals.strip(states.PENDING):
            after = "the finally tasks of the job"
        else:
            return
        for task in self._new.tasks[: self._new.normal]:
            if self._letter(task) == states.PENDING:
                self._refuse(task.name, f"it would start, and {after} have begun: let the job end, and start it again")

    # -- what they become ----------------------------------------------------------------------------

    def _letter(self, task: TaskSpec) -> str:
        """The state of a task of the new version. A new one does not start if no other one would."""
        state, number = self._state, self._old.numbers.get(task.name)
        if number is not None:
            return state.tasks[number]
        if task.is_finally:
            return states.PENDING
        has_failed = not states.FAILURES.isdisjoint(state.tasks[: self._old.normal])
        fails_fast = self._new.spec.fail_fast and has_failed and task.when == "all_success" and not state.failed
        return states.NOT_STARTED if state.cancelling or state.timed_out or fails_fast else states.PENDING

    def _moved(self, values: dict[int, Any]) -> dict[int, Any]:
        """Values by the numbers that their tasks have now; those of tasks that are gone are left out."""
        named = ((self._old.tasks[number].name, value) for number, value in values.items())
        return {self._numbers[name]: value for name, value in named if name in self._numbers}

    def _moved_pairs(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        named = ((self._old.tasks[number].name, generation) for number, generation in pairs)
        return [(self._numbers[name], generation) for name, generation in named if name in self._numbers]

    def _moved_inputs(self) -> Raw:
        """The inputs, and the defaults of those that only the new version has."""
        defaults = self._new.spec.inputs
        given = json.load(bytes(self._state.inputs).decode())
        if not defaults or not isinstance(given, dict) or not defaults.keys() - given.keys():
            return self._state.inputs
        return Raw(json.dump({**defaults, **given}).encode())

    def _move_rows(self, moved: JobState) -> None:
        """Keep the numbers in the ids of rows, and give new ones to new tasks. Tasks that have a row begin as a further
        generation if they run again: their rows have the earlier version."""
        state = self._state
        next_row = max([state.next_row, len(state.tasks), *(row + 1 for row in state.row_numbers.values())])
        for number, task in enumerate(self._new.tasks):
            before = self._old.numbers.get(task.name)
            if before is None:
                row, next_row = next_row, next_row + 1
            else:
                row = state.row_numbers.get(before, before)
                self._mark_older(moved, number, before)
            if row != number:
                moved.row_numbers[number] = row
        moved.next_row = next_row

    def _mark_older(self, moved: JobState, number: int, before: int) -> None:
        state, generation = self._state, self._state.generations.get(before, 0)
        if before in state.again:  # it would run again in its row
            moved.older[number] = generation
            moved.generations[number] = generation + 1
        elif state.tasks[before] in states.WITH_ROW:
            moved.older[number] = generation
        elif generation:
            moved.older[number] = generation - 1


def _change_of(old: TaskSpec, new: TaskSpec) -> tuple[str, str, str] | None:
    """The change of what a task that runs has to keep: the name of that, and both values; None if there is none."""
    for what, was, now in (
        ("type", old.type, new.type),
        ("handler", old.handler, new.handler),
        ("agent", _agent(old), _agent(new)),
        ("gate", old.gate, new.gate),
    ):
        if was != now:
            return what, _text(was), _text(now)
    if (old.run is None) != (new.run is None):
        return "command", "one" if old.run else "none", "one" if new.run else "none"
    return None


def _agent(task: TaskSpec) -> str | None:
    return None if task.agent is None else task.agent.type


def _text(value: str | None) -> str:
    return "none" if value is None else repr(value)
