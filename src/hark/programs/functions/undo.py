"""Undo the runs of a function that has failed or is being cancelled.

The runs with `undo=` that succeeded are undone one after the other, the latest first, each with the result of its run.
An undo is journaled like a run, so a crash repeats none that is recorded, and retried like its run, with a timer
between two attempts. One that fails for good is recorded, and the others still run.

The code of the function does not run any more: the replay has only found the undos again. See function_session.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import Decision, FailedAttempt, Finish, JournalLine, Move, Park, Proceed, stop
from hark.model.events import OutcomeType
from hark.model.failures import Failure, failure_of
from hark.programs.functions.function_journal import NEW_VISIT, UNDO, UNDONE, Journal, Line
from hark.programs.functions.function_runs import Runs, plan_retry
from hark.programs.functions.operations import Run, entry_of, shortened


class Undo(Run):
    """The undo of a run: as its run, with the result of the run as its argument."""

    kind = UNDO
    keeps_result = False  # it is not read, and need not be JSON

    def __init__(self, run: Run) -> None:
        assert run.undo is not None
        super().__init__(run.undo, (), run.name or "")
        self.entry, self.policy, self.timeout = run.entry, run.policy, run.timeout


def succeeded(lines: Iterable[Line], undoable: Mapping[int, Run]) -> list[Line]:
    """The lines that are the result of a run with an undo."""
    return [line for line in lines if line.kind == Run.kind and line.error is None and line.entry in undoable]


def start_over(claim: Claim, journal: Journal, step: str) -> Decision:
    """The retry of a function that was undone: a new visit with the same input. Its signals return to the inbox."""
    taken = [line.value for line in journal.lines if line.kind == "wait" and line.value is not None]
    signals = tuple(json.load(value)["id"] for value in taken)
    first = JournalLine(0, journal.lines[-1].entry, NEW_VISIT)
    return Decision("next", step, claim.state, Proceed(continue_as_new=True), journal=[first], restore=signals)


def cannot_go_on(claim: Claim, error: BaseException) -> Decision:
    """Fail an instance whose code cannot go on. A retry continues from its journal, also in the middle of an undo."""
    return stop(claim.step, claim.state, failure_of(error), keeps_undo=True)


class Undoing:
    """The undos that are left in one activation: one decision per undo, and the end of the instance."""

    def __init__(self, claim: Claim, journal: Journal, runs: Runs, undoable: Mapping[int, Run]) -> None:
        """Begin to undo these runs; `undoable` has them by entry."""
        self._claim = claim
        self._journal = journal
        self._runs = runs
        self._undoable = undoable
        recorded = {line.entry for line in journal.lines if line.kind == UNDO}
        self._left = [line for line in succeeded(journal.lines, undoable) if line.entry not in recorded]

    async def next_decision(self) -> Decision:
        """Call the next undo; decide what becomes of it, or end the instance when none is left."""
        if not self._left:
            return self._end()
        run = self._undoable[self._left[-1].entry]
        undo = Undo(run)
        undo.args = (run.decode(self._left[-1].value or "null"),)
        for wait in self._claim.waits:
            if entry_of(wait.place) == undo.entry:
                undo.attempt = int(wait.place.partition("+")[2])
        result = await self._runs.execute(undo)
        attempt, failure = undo.attempt, undo.failure
        retried = failure is not None and plan_retry(undo)
        if retried:
            decision = self._decide("await", undo.label, Park(tuple(undo.waits_to_arm())))
        else:
            self._left.pop()
            self._journal.write(UNDO, undo.entry, undo.name, result)
            answered = tuple(wait.id for wait in self._claim.waits)
            move = Proceed(disarm=answered, keep_slot=not self._journal.has_doubled())
            decision = self._decide("next", undo.label, move)
        if failure is not None:
            retries = 0 if undo.policy is None else undo.policy.limit
            place = undo.place if retried else None
            type: Literal["retry", "undo_failed"] = "retry" if retried else "undo_failed"
            decision.failed_attempts = (FailedAttempt(type, undo.label, failure, attempt, retries, place),)
        return decision

    def _end(self) -> Decision:
        if self._claim.cancel_reason is not None:
            return self._decide("done", self._claim.step, Finish("done"))
        marker = self._journal.undoing
        assert marker is not None
        failure = msgspec.json.decode(marker.value or "", type=Failure)
        self._journal.write(UNDONE, marker.entry)
        decision = stop(self._claim.step, self._claim.state, failure)
        decision.journal, decision.has_undo = self._journal.take_uncommitted(), False
        return decision

    def _decide(self, label: OutcomeType, step: str, move: Move) -> Decision:
        waits = {wait.id for wait in self._claim.waits}
        consumed = tuple(row.seq for row in self._claim.inbox if row.wait_id in waits)
        lines = self._journal.take_uncommitted()
        return Decision(label, shortened(step), self._claim.state, move, consumed, journal=lines)
