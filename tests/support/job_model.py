"""A small model of a job: what becomes of its tasks, computed from scratch after each end.

It knows nothing of rows, letters or activations: it looks at every task again and again until nothing changes. It is
slow, and short enough to be checked by reading.
"""

from __future__ import annotations

from hark.programs.jobs.job_spec import JobSpec, TaskSpec

_BAD = ("failed", "cancelled", "unreached")


class JobModel:
    """The statuses of the tasks of a job, by name: pending, running, completed, failed, cancelled, skipped (its
    condition does not hold) or unreached (skipped because of a failure)."""

    def __init__(self, spec: JobSpec, holds: dict[str, bool]) -> None:
        """`holds`: which conditions hold, by task."""
        self.spec = spec
        self.holds = holds
        self.status = {task.name: "pending" for task in spec.tasks}
        self.generation = {task.name: 0 for task in spec.tasks}
        self.regressions = {task.name: 0 for task in spec.tasks}
        self._not_started: set[str] = set()  # cancelled before they started
        self._settle()

    def running(self) -> list[str]:
        return [name for name, status in self.status.items() if status == "running"]

    def end(self, name: str, success: bool) -> None:
        """A running task ends, after its last attempt."""
        task = self._task(name)
        if success:
            self.status[name] = "completed"
        elif (
            task.on_fail is not None
            and self.regressions[name] < task.on_fail.limit
            and not self._is_cancelled_fast(task)
        ):
            self.regressions[name] += 1
            for other in self._below(task.on_fail.regress_to) | self._below(name):
                had_row = self.status[other] in ("running", "completed", "failed", "cancelled")
                if had_row and other not in self._not_started:
                    self.generation[other] += 1
                self._not_started.discard(other)
                self.status[other] = "pending"
        else:
            self.status[name] = "failed"
            if self.spec.fail_fast and not task.is_finally:
                self._fail_fast(name)
        self._settle()

    def job(self) -> str:
        if any(status in ("pending", "running") for status in self.status.values()):
            return "running"
        return "failed" if any(status in ("failed", "cancelled") for status in self.status.values()) else "done"

    def _task(self, name: str) -> TaskSpec:
        return next(task for task in self.spec.tasks if task.name == name)

    def _below(self, name: str) -> set[str]:
        """The task and all that need it, directly or not."""
        found = {name}
        while more := {t.name for t in self.spec.tasks if found.intersection(t.needs)} - found:
            found |= more
        return found

    def _is_cancelled_fast(self, task: TaskSpec) -> bool:
        """Whether it runs although another failure was to cancel it: then it does not regress the job."""
        others = [self.status[other.name] for other in self.spec.tasks if not other.is_finally]
        is_cancelled = self.spec.fail_fast and task.when == "all_success" and not task.is_finally
        return is_cancelled and any(status in ("failed", "cancelled") for status in others)

    def _fail_fast(self, name: str) -> None:
        for task in self.spec.tasks:
            if task.when == "all_success" and not task.is_finally:
                if self.status[task.name] == "running":
                    self.status[task.name] = "cancelled"
                elif self.status[task.name] == "pending":
                    self._not_started.add(task.name)
                    self.status[task.name] = "unreached" if task.name in self._below(name) else "cancelled"

    def _settle(self) -> None:
        before = None
        while before != self.status:
            before = dict(self.status)
            for task in self.spec.tasks:
                if self.status[task.name] == "pending":
                    self.status[task.name] = self._next(task)

    def _next(self, task: TaskSpec) -> str:
        others = [self.status[other.name] for other in self.spec.tasks if not other.is_finally]
        if task.is_finally and any(status in ("pending", "running") for status in others):
            return "pending"
        needs = [self.status[need] for need in task.needs]
        if any(status in ("pending", "running") for status in needs):
            return "pending"
        if task.when == "one_failed":
            looked_at = others if task.is_finally and not needs else needs
            if not any(status in _BAD for status in looked_at):
                return "skipped"
        if task.when == "all_success" and not task.is_finally and any(status in _BAD for status in needs):
            return "unreached"
        if task.condition is not None and not self.holds[task.name]:
            return "skipped"
        return "running"
