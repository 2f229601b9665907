"""The interpreter of durable functions: replays the journal, then continues where it ended.

One session drives one activation. It begins with the replay (replay.py). After that it is live: rows of the inbox
become new lines, functions run, and each result is committed before the code receives it (invariant 1). Before a
function runs, everything it may depend on is committed too. When nothing runs and nothing can, the instance parks on
all open operations.

    replay.py            the code runs again up to where it was
    read_ahead.py        the short way of a run through a replay
    branches.py          the code, driven from one promise to the next
    operations.py        what the code awaits
    function_context.py  what the code can call (`ctx`)
    function_journal.py  the lines, and what a retry cuts off
    function_inbox.py    which row resolves which operation
    function_waits.py    which waits to arm and to disarm
    function_runs.py     the user's functions
    undo.py              the undo of runs, after a failure or a cancel
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import Decision, Effect, FailedAttempt, Finish, JournalLine, Park, Proceed
from hark.model.errors import HarkError, InvalidOutcome
from hark.model.events import OutcomeType
from hark.model.failures import failure_of
from hark.programs.functions.function_journal import NEW_VISIT, UNDOING
from hark.programs.functions.function_runs import plan_retry
from hark.programs.functions.function_waits import (
    WaitChanges,
    needs_changes,
    newly_awaited,
    unawaited_places,
    wait_changes,
)
from hark.programs.functions.operations import (
    AwakeableAnswer,
    EffectOperation,
    Operation,
    Result,
    Run,
    entry_of,
    label_of,
    shortened,
)
from hark.programs.functions.replay import Replay
from hark.programs.functions.unawaited import check_all_awaited
from hark.programs.functions.undo import Undoing, start_over, succeeded
from hark.programs.misfits import hold
from hark.programs.services import FunctionServices

if TYPE_CHECKING:
    from hark.programs.functions.function_program import FunctionProgram


class ContinueAsNew(Struct, frozen=True):
    """The value of `ctx.continue_as_new`: the input of the next visit, and the version that it runs."""

    input: Any
    version: int | Literal["newest"] | None  # None: the same


_PROCEED, _PROCEED_KEEPING_SLOT = Proceed(), Proceed(keep_slot=True)


class Session(Replay):
    """An activation of a function, from its claim to its park or end."""

    def __init__(self, program: FunctionProgram, claim: Claim, services: FunctionServices) -> None:
        super().__init__(program, claim, services)
        self._resolved_by_commit: list[tuple[JournalLine, Operation]] = []  # the code receives these after the commit
        self._failed_attempts: list[FailedAttempt] = []  # of runs, since the last commit
        self._known_to = 0  # of the inbox, up to this seq, when it resumed after a park
        self._undoing: Undoing | None = None

    # -- live -------------------------------------------------------------------------------------

    async def next_decision(self) -> Decision:
        """Run from one commit to what has to be committed next."""
        if self._undoing is not None:
            return await self._undoing.next_decision()
        if self._branches.root is None:
            if self._journal.is_undone:
                return start_over(self.claim, self._journal, self.program.initial)
            self._replay()
            if self._must_undo:
                return await self._undo()
        else:
            self._resume_after_commit()
        self._read_inbox()
        while self._can_continue():
            run = self._only_run()
            if run is not None:
                self._end_run(run, await self._runs.execute(run))
                if self._resolved_by_commit:
                    return self._decide("next", _PROCEED_KEEPING_SLOT if self._keeps_slot() else _PROCEED, [])
                continue
            self._write_effects()
            if self._resolved_by_commit:
                return self._proceed()
            runs = [o for o in self._open.values() if isinstance(o, Run) and not o.awaits_retry and not o.started]
            if not runs and not self._runs.tasks:
                if not self._open:
                    self._branches.root.resolve(error=_awaits_nothing(self.program.name))  # type: ignore[union-attr]
                    break
                return self._park()
            if self._has_uncommitted() or needs_changes(self.claim, self._open) or self._needs_listener():
                return self._proceed()  # commit everything these runs may depend on before they start
            self._runs.start(runs)
            ended = await self._runs.wait(self.claim.waits)
            if not ended:
                return self._proceed(fire_deadlines=True)
            for run, result in ended:
                self._end_run(run, result)
        return self._finish()

    def _can_continue(self) -> bool:
        root = self._branches.root
        return root is not None and not root.done and self._misfit is None and self.stalled is None

    def _resume_after_commit(self) -> None:
        """Continue after the commit of the last decision: the code receives the results in its lines."""
        committed, self._resolved_by_commit = self._resolved_by_commit, []
        for line, operation in committed:
            if operation.withdrawn:
                continue
            del self._open[line.entry]
            operation.read_line(line.value, line.error)
            self._drive()

    def _read_inbox(self) -> None:
        """Resolve operations with the rows of the inbox, one at a time: each may lead to new operations."""
        inbox = self._inbox
        if self.claim.inbox:
            known_to = self._known_to
            inbox.add([row for row in self.claim.inbox if row.seq > known_to] if known_to else self.claim.inbox)
        while inbox and self._can_continue():
            match = inbox.take_match(self._open, self.claim.waits)
            if match is None:
                return
            row, operation = match
            if isinstance(operation, Run):
                operation.awaits_retry = False  # the timer of its next attempt
            else:
                kind = "answer" if isinstance(operation, AwakeableAnswer) else operation.kind
                self._resolve(operation, inbox.result_of(operation, row, self.claim), kind)

    def _only_run(self) -> Run | None:
        """Return the only open run, if nothing else is open: the usual case, which needs no asyncio task and no
        waits."""
        if len(self._open) == 1 and not self._journal.uncommitted and self._progress is None and not self.claim.waits:
            for operation in self._open.values():
                if type(operation) is Run and not operation.started and not operation.attempt:
                    operation.started = True
                    return operation
        return None

    def _has_uncommitted(self) -> bool:
        """Return True if a commit is due before a run: of what it may depend on, or of the progress that people see."""
        return bool(self._journal.uncommitted) or self._progress is not None

    def _end_run(self, run: Run, result: Result) -> None:
        attempt, failure = run.attempt, run.failure
        retried = failure is not None and plan_retry(run)
        if not retried:
            line = self._journal.write("run", run.entry, run.name, result)
            line.attempts = attempt + 1
            self._resolved_by_commit.append((line, run))
        if failure is not None:
            run.failure = None
            retries = 0 if run.policy is None else run.policy.limit
            place = run.place if retried else None
            failed = FailedAttempt("retry" if retried else "error", run.label, failure, attempt, retries, place)
            self._failed_attempts.append(failed)

    def _write_effects(self) -> None:
        """Write the lines of the open effects. The turn that applies the effects fills in their results."""
        for operation in self._open.values():
            if isinstance(operation, EffectOperation):
                line = self._journal.write(operation.kind, operation.entry, operation.name)
                line.effect = operation.effect
                self._resolved_by_commit.append((line, operation))

    def _needs_listener(self) -> bool:
        """Return True if the function waits for something beside its runs, with waits it was claimed with: without a
        listener, answers to them would be read only after a run has ended."""
        return self._runs.listener is None and any(
            operation.needs_wait and not (isinstance(operation, Run) and not operation.awaits_retry)
            for operation in self._open.values()
        )

    def _keeps_slot(self) -> bool:
        """Return True if the function keeps its slot: while something it called runs, and until it has added as many
        lines as it replayed. It replays again when it comes back, and a long journal would cost more each time than it
        grows."""
        return bool(self._runs.tasks) or not self._journal.has_doubled()

    # -- decisions --------------------------------------------------------------------------------

    def _wait_changes(self) -> WaitChanges:
        changes = wait_changes(self.claim, self._open, self._withdrawn)
        self._inbox.consume_answers_to(changes.disarm)
        return changes

    def _decide(self, label: OutcomeType, move: Any, effects: list[Effect], state: str | None = None) -> Decision:
        journal = self._journal
        has_undo = None
        if self.undoable and self.claim.on_cancel is None:
            has_undo = self._has_new_undo or bool(succeeded(journal.uncommitted, self.undoable)) or None
        cut, journal.cut_from = journal.cut_from, None
        step = self.claim.step
        if label == "next" and journal.uncommitted:  # between two commits the step is the latest result
            step = label_of(journal.uncommitted[-1].kind, journal.uncommitted[-1].name)
        elif self._open:
            step = next(reversed(self._open.values())).label
        step = shortened(step)
        lines = journal.take_uncommitted()
        if cut is not None and lines is None:
            lines = []
        text = self.claim.state if state is None else state
        consumed, restored = self._inbox.take_changes()
        progress, self._progress = self._progress, None
        decision = Decision(
            label, step, text, move, consumed, (), effects, lines, cut, restored, has_undo=has_undo, progress=progress
        )
        if self._failed_attempts:
            decision.failed_attempts, self._failed_attempts = tuple(self._failed_attempts), []
        return decision

    def _proceed(self, *, fire_deadlines: bool = False) -> Decision:
        changes = self._wait_changes()
        if any(operation.needs_wait for operation in self._open.values()):
            self._runs.listen(self.claim.id)  # before the commit, so that no row after it is missed
        if self._runs.listener is not None:
            self._runs.listener.reset(self.claim.read_to)
        move = Proceed(
            arm=changes.arm,
            disarm=changes.disarmed_ids,
            awakeables=changes.awakeables,
            keep_slot=self._keeps_slot(),
            fire_deadlines=fire_deadlines,
        )
        decision = self._decide("next", move, changes.effects)
        decision.events = newly_awaited(self._open.values())
        return decision

    def _park(self) -> Decision:
        changes = self._wait_changes()
        label: OutcomeType = "spawn" if any(arm.kind == "children" for arm in changes.arm) else "await"
        move = Park(changes.arm, changes.disarmed_ids, changes.awakeables)
        move.unawaited = unawaited_places(self._open.values())
        decision = self._decide(label, move, changes.effects)
        self._runs.close()
        return decision

    def _finish(self) -> Decision:
        assert self._branches.root is not None
        self.close()
        if self._misfit is not None:
            return hold(self.claim, self._misfit)
        if self.stalled is not None:
            return self._fail(HarkError(self.stalled))
        try:
            value = self._branches.root.value_or_raise()
            unfinished = self._branches.unfinished()
            if self._open or self._resolved_early or unfinished:
                early = self._resolved_early.values()
                check_all_awaited(self.claim, self.program.name, self._open, early, unfinished)
            if isinstance(value, ContinueAsNew):
                return self._continue_as_new(value)
            what = f"result of {self.program.name}"
            result = json.dump_unchecked(value, limit=self.services.max_payload, what=what)
        except Exception as error:
            if self.undoable and succeeded(self._journal.lines, self.undoable):
                return self._begin_undo(error)
            return self._fail(error)
        # An instance that is done never runs again, and its inbox and journal are never read (S4, decision 5): marking
        # rows as consumed, and new lines, would be writes for nothing. Only a failed one can be retried.
        self._journal.uncommitted.clear()
        self._inbox.consumed = []
        self._write_effects()
        effects = self._wait_changes().effects if self._withdrawn else []
        return self._decide("done", Finish("done", result=result), effects)

    def _fail(self, error: Exception) -> Decision:
        self._journal.write_failure(error)
        failure = failure_of(error)
        decision = self._decide("stop", Finish("failed", error=failure.text, traceback=failure.traceback), [])
        decision.failure = failure
        return decision

    # -- undo -------------------------------------------------------------------------------------

    def _begin_undo(self, error: Exception) -> Decision:
        """Begin the undo of a failed function: give up what is open, and record the error before the first undo."""
        self._open.clear()
        self._withdrawn.update(entry_of(wait.place) for wait in self.claim.waits)
        changes = self._wait_changes()
        failure = failure_of(error)
        self._failed_attempts.append(FailedAttempt("undoing", self.claim.step, failure, 0))
        text = msgspec.json.encode(failure).decode()
        self._journal.write(UNDOING, self._journal.next_entry, None, (text, None))
        move = Proceed(disarm=changes.disarmed_ids, keep_slot=not self._journal.has_doubled())
        decision = self._decide("next", move, changes.effects)
        self._undoing = Undoing(self.claim, self._journal, self._runs, self.undoable)
        return decision

    async def _undo(self) -> Decision:
        """Undo a function that is cancelled now, or failed in an earlier activation: the replay has found its undos."""
        self.close()
        if self._misfit is not None:
            return hold(self.claim, self._misfit)
        self._journal.uncommitted.clear()  # what the code asked for since is not wanted any more
        self._undoing = Undoing(self.claim, self._journal, self._runs, self.undoable)
        return await self._undoing.next_decision()

    def _continue_as_new(self, anew: ContinueAsNew) -> Decision:
        version = None if anew.version == self.program.version else anew.version
        limit = self.services.max_payload
        if isinstance(version, int):  # its code may not be here, and decides what input it takes
            state = json.dump({} if anew.input is None else anew.input, limit=limit, what="input")
        else:
            codec = self.program.codec
            state = codec.dump(codec.build(anew.input, limit=limit), limit)
        self._journal.uncommitted.clear()
        asked = [operation.effect for operation in self._open.values() if isinstance(operation, EffectOperation)]
        self._open.clear()
        changes = self._wait_changes()
        move = Proceed(disarm=changes.disarmed_ids, continue_as_new=True, version=version)
        decision = self._decide("next", move, changes.effects + asked, state)
        decision.journal, decision.cut_from = [JournalLine(0, self._journal.next_entry, NEW_VISIT)], None
        decision.has_undo = None if self.claim.on_cancel is None else False
        return decision

    # -- after the park ---------------------------------------------------------------------------

    def size(self) -> int:
        """The number of characters it keeps in memory, as far as that is known."""
        claim = self.claim
        texts = len(claim.state) + sum([len(row.payload) for row in claim.inbox])
        return texts + self._journal.size()

    def resume(self, claim: Claim) -> None:
        """Continue after a park, on the next claim of the same instance: the code is where a replay would take it."""
        self._known_to = self.claim.read_to
        self.claim.session = None
        claim.session = self
        self.claim = self._runs.claim = claim
        self._claimed_waits = {}
        self._journal.resume()

    def release(self) -> None:
        """Release an activation that has ended: close, and drop what refers back to this session, so that all of it is
        freed now and not by the garbage collector (FINDINGS 72)."""
        self.close()
        self.claim.session = None
        for operation in self._open.values():
            operation.callbacks = ()
        self._open.clear()
        self._resolved_early.clear()
        self._inbox.release()
        self.undoable.clear()
        self._undoing = None


def _awaits_nothing(name: str) -> InvalidOutcome:
    return InvalidOutcome(
        f"Workflow {name} awaits something that can never be resolved: no operation it asked for is open. "
        "Check for branches that await each other."
    )
