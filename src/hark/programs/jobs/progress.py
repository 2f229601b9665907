"""JobProgress: what one activation changes in a job, without I/O.

The interpreter (job_interpreter.py) tells it what has ended and asks it what can start; what it starts and cancels is
collected here, and commits as effects. An activation costs what it changes: only the tasks that need one that has ended
are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from msgspec import Struct

from hark.programs.jobs import states
from hark.programs.jobs.job_graph import JobGraph
from hark.programs.jobs.job_state import JobState

_SATISFIED = frozenset((states.COMPLETED, states.SKIPPED))
_COUNTS_AS_FAILED = states.FAILURES | {states.UNREACHED}


class Regression(Struct, frozen=True):
    """A regression: a task failed, and the job begins again at an earlier one."""

    task: int
    to: int
    error: str
    count: int  # how often this task has regressed by now


class JobProgress:
    """The tasks of one job during one activation.

    Attributes:
        state: The state of the job; `save` writes the letters back.
        starts: The tasks to start.
        cancels: The tasks to cancel, with their generation.
        skipped: The tasks that were skipped, with the letter.
        regressions: The regressions, in order.
    """

    def __init__(self, graph: JobGraph, state: JobState) -> None:
        self.graph = graph
        self.state = state
        self.starts: dict[int, None] = {}  # in order
        self.cancels: list[tuple[int, int]] = []
        self.skipped: list[tuple[int, str]] = []
        self.regressions: list[Regression] = []
        self._letters = list(state.tasks)
        self._again = set(state.again)
        normal = state.tasks[: graph.normal]
        self._unfinished_normal = normal.count(states.PENDING) + normal.count(states.STARTED)
        finals = state.tasks[graph.normal :]
        self._unfinished_finals = finals.count(states.PENDING) + finals.count(states.STARTED)
        self._candidates: dict[int, None] = {}  # tasks that may have become ready, in order
        self._finals_open = self._unfinished_normal == 0
        self._has_failed_fast = False  # in this activation: there is nothing more to cancel

    # -- reading -----------------------------------------------------------------------------------

    def letter(self, number: int) -> str:
        return self._letters[number]

    def generation(self, number: int) -> int:
        return self.state.generations.get(number, 0)

    @property
    def finished(self) -> bool:
        """Return True if no task will start or end any more."""
        return self._unfinished_normal == 0 == self._unfinished_finals

    @property
    def tasks_have_ended(self) -> bool:
        """Return True if no task but a finally task will start or end any more."""
        return self._unfinished_normal == 0

    @property
    def failed(self) -> bool:
        """Return True if a task has failed or was cancelled, or the time of the job was over."""
        return self.state.timed_out or not states.FAILURES.isdisjoint(self._letters)

    def absent(self, number: int) -> tuple[str, str | None] | None:
        """The status and the error of a task without a row. None: it has a row, or was skipped."""
        letter = self._letters[number]
        return (
            (states.SHOWN[letter], self.state.errors.get(number))
            if letter in (states.NOT_STARTED, states.INVALID)
            else None
        )

    def numbers_of(self, letters: Iterable[str]) -> list[int]:
        """The tasks that have one of these letters."""
        wanted = frozenset(letters)
        return [number for number, letter in enumerate(self._letters) if letter in wanted]

    # -- what has happened ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Let every task start that needs none. Called by the first activation."""
        self._look_at(number for number, needs in enumerate(self.graph.needs) if not needs)
        self._open_finals()

    def look_again(self) -> None:
        """Look at all tasks that have not started: the job was migrated."""
        self._look_at(number for number, letter in enumerate(self._letters) if letter == states.PENDING)

    def ended(self, number: int, generation: int, status: str, error: str = "") -> None:
        """Take the end of the row of a task. The end of an older generation changes nothing, except that what it has
        completed is to be undone."""
        letter = states.OF_STATUS[status]
        task = self.graph.tasks[number]
        if self._letters[number] != states.STARTED or generation != self.generation(number):
            if letter == states.COMPLETED and task.undo is not None and generation < self.generation(number):
                self.state.undo.append((number, generation))
            return
        is_ending = self.state.cancelling or self.state.timed_out
        may_regress = letter == states.FAILED and not is_ending and not self._is_cancelled_fast(number)
        self._set(number, letter)
        if letter == states.INVALID:
            self.state.errors[number] = error
        if may_regress and task.on_fail is not None:
            count = self.state.regressions.get(number, 0)
            if count < task.on_fail.limit:
                self.state.regressions[number] = count + 1
                to = self.graph.numbers[task.on_fail.regress_to]
                self.regressions.append(Regression(number, to, error, count + 1))
                self._reset(self.graph.downstream(to) | self.graph.downstream(number))
                return
        if letter == states.COMPLETED and task.undo is not None:
            self.state.undo.append((number, generation))
        if letter != states.COMPLETED:
            self._fail_fast(number)

    def start(self, number: int) -> None:
        self._letters[number] = states.STARTED
        self.starts[number] = None

    def take_row(self, number: int) -> bool:
        """Return True if a task that starts has a row already, which runs again. Called once for each of `starts`."""
        if number not in self._again:
            return False
        self._again.remove(number)
        return True

    def skip(self, number: int) -> None:
        """Skip a ready task whose condition does not hold."""
        self.skipped.append((number, states.SKIPPED))
        self._set(number, states.SKIPPED)

    def refuse(self, number: int, error: str) -> None:
        """Refuse a ready task that cannot start: its condition or a template is wrong."""
        self.state.errors[number] = error
        self._set(number, states.INVALID)
        self._fail_fast(number)

    def cancel(self) -> None:
        """Cancel the job, with its tasks: only its finally tasks and its undos still run. Tasks that had ended before
        are reported first, after `cancelling` is set."""
        self.state.cancelling = True
        for number, letter in enumerate(self._letters):
            if letter == states.STARTED:
                self._set(number, states.CANCELLED)
            elif letter == states.PENDING and number < self.graph.normal:
                self._set(number, states.NOT_STARTED)
        self._open_finals()

    def time_out(self) -> None:
        """Cancel the tasks, because the time of the job is over: only its finally tasks and its undos still run. If all
        tasks have ended, nothing changes. Tasks that have ended are reported first. A task that is cancelled stays
        started until its end says whether it had completed before."""
        if self._unfinished_normal == 0:
            return
        self.state.timed_out = True
        for number, letter in enumerate(self._letters[: self.graph.normal]):
            if letter == states.STARTED and not self._is_cancelled_fast(number):
                self.cancels.append((number, self.generation(number)))
            elif letter == states.PENDING:
                self._set(number, states.NOT_STARTED)
        self._open_finals()

    def retry(self) -> None:
        """Run a failed job again: what failed runs again in its own row, and what depends on it follows.

        What was undone, and what ran after a task that runs again, starts as a new generation. Attempts and regressions
        are counted from the beginning."""
        state = self.state
        current = {number for number, generation in state.undone if generation == self.generation(number)}
        roots = {number for number, letter in enumerate(self._letters) if letter in _COUNTS_AS_FAILED}
        rows = {number for number in roots if self._letters[number] in (states.FAILED, states.CANCELLED)}
        reset = self.graph.reached(roots | current)
        anew = current | {number for number in reset if self._letters[number] == states.COMPLETED}
        anew |= {number for number in self._again | rows if state.is_older(number, self.generation(number))}
        self._again = (self._again | rows) - self.graph.reached(anew)  # their rows name the outputs from before
        if any(number < self.graph.normal for number in reset):
            self._again.difference_update(self.graph.finals)  # theirs too: a finally task may read any task
        state.failed, state.timed_out, state.undone, state.regressions = False, False, [], {}
        self._reset(reset | set(self.graph.finals), keep=self._again)

    # -- what can start ------------------------------------------------------------------------------

    def ready(self) -> list[int]:
        """The tasks that may start now: each is to be started, skipped or refused, and then this is called again."""
        found: dict[int, None] = {}  # a task may become a candidate twice
        while True:
            while self._candidates:
                candidates, self._candidates = sorted(self._candidates), {}
                for number in candidates:
                    if self._letters[number] == states.PENDING and (number < self.graph.normal or self._finals_open):
                        self._decide(number, found)
            if found or self._finals_open or self._unfinished_normal:
                return list(found)
            self._open_finals()

    def _decide(self, number: int, ready: dict[int, None]) -> None:
        letters = self._letters
        if any(letters[need] in states.UNFINISHED for need in self.graph.needs[number]):
            return
        needs = [letters[need] for need in self.graph.needs[number]]
        when = self.graph.tasks[number].when
        if when == "one_failed":
            if number >= self.graph.normal and not needs:
                needs = letters[: self.graph.normal]
            if _COUNTS_AS_FAILED.isdisjoint(needs):
                self.skip(number)
                return
        elif when == "all_success" and number < self.graph.normal and not _SATISFIED.issuperset(needs):
            self.skipped.append((number, states.UNREACHED))
            self._set(number, states.UNREACHED)
            return
        ready[number] = None

    def save(self) -> JobState:
        """The state, with the letters as they are now."""
        self.state.tasks = "".join(self._letters)
        self.state.again = sorted(self._again)
        return self.state

    # -- inside --------------------------------------------------------------------------------------

    def _look_at(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._candidates[number] = None

    def _set(self, number: int, letter: str) -> None:
        """End a task with this letter; those that need it may be ready."""
        if self._letters[number] in states.UNFINISHED:
            if number < self.graph.normal:
                self._unfinished_normal -= 1
            else:
                self._unfinished_finals -= 1
        self._letters[number] = letter
        self._look_at(self.graph.dependents[number])

    def _open_finals(self) -> None:
        if self._unfinished_normal == 0:
            self._finals_open = True
            self._look_at(self.graph.finals)

    def _is_cancelled_fast(self, number: int) -> bool:
        """Return True if a task that has failed was to be cancelled, because another one has failed."""
        if not self.graph.spec.fail_fast or number >= self.graph.normal:
            return False
        is_kept = self.graph.tasks[number].when != "all_success"
        return not is_kept and not states.FAILURES.isdisjoint(self._letters[: self.graph.normal])

    def _fail_fast(self, number: int) -> None:
        """Cancel the rest, if the job wants that. Tasks that run because of failures, or regardless of them, stay. A
        task that is cancelled stays started until its end says whether it had completed before."""
        if not self.graph.spec.fail_fast or number >= self.graph.normal or self._has_failed_fast:
            return
        self._has_failed_fast = True
        below = self.graph.downstream(number)
        for other in range(self.graph.normal):
            if self.graph.tasks[other].when != "all_success":
                continue
            if self._letters[other] == states.STARTED:
                if other in self.starts:  # by this activation: it has no row yet
                    del self.starts[other]
                    self._set(other, states.NOT_STARTED)
                else:
                    self.cancels.append((other, self.generation(other)))
            elif self._letters[other] == states.PENDING:
                letter = states.UNREACHED if other in below else states.NOT_STARTED
                self.skipped.append((other, letter))
                self._set(other, letter)

    def _reset(self, numbers: Iterable[int], keep: Set[int] = frozenset()) -> None:
        """Make these tasks pending again. Those that have a row start as a further generation, except `keep`, whose
        rows run again. The finally tasks follow: they run after everything else."""
        chosen = set(numbers)
        chosen.update(number for number in self.graph.finals if self._letters[number] != states.PENDING)
        for number in sorted(chosen):
            letter = self._letters[number]
            if letter == states.STARTED:
                if number in self.starts:
                    del self.starts[number]
                else:
                    self.cancels.append((number, self.generation(number)))
            if (letter in states.WITH_ROW or number in self._again) and number not in keep:
                self.state.generations[number] = self.generation(number) + 1
                self._again.discard(number)
            self.state.errors.pop(number, None)
            if letter not in states.UNFINISHED:
                if number < self.graph.normal:
                    self._unfinished_normal += 1
                else:
                    self._unfinished_finals += 1
            self._letters[number] = states.PENDING
        self._finals_open = self._unfinished_normal == 0
        self._has_failed_fast = False
        self._look_at(chosen)
