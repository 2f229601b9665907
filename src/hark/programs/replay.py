"""The interpreter of durable functions: replays the journal, then continues where it ended.

One session drives one activation. In the replay, each line of the journal resolves the operation that
asked for it, in the order in which the function once received the results; between two lines the code
runs until every branch awaits something. Branches that once finished in any order therefore run through
the same states again. After the replay the session is live: rows of the inbox become new lines, functions
run, and each result is committed before the code receives it (invariant 1). Before a function runs,
everything it may depend on is committed too. When nothing runs and nothing can, the instance parks on all
open operations.

    branches.py     the code, driven from one promise to the next
    operations.py   what the code awaits
    functions.py    what the code can call (`ctx`)
    journal.py      the lines, and what a retry cuts off
    inbox.py        which row resolves which operation
    waits.py        which waits to arm and to disarm
    runs.py         the user's functions
    undo.py         the undo of runs, after a failure or a cancel
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import cached_property
from random import Random
from sys import _getframe
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
from msgspec import Struct

from hark.model import json
from hark.model.activation import Claim
from hark.model.decisions import Decision, Effect, FailedAttempt, Finish, JournalLine, Park, Proceed
from hark.model.errors import HarkError, InvalidOutcome, NonDeterministic
from hark.model.events import OutcomeType
from hark.model.failures import failure_of
from hark.programs.branches import Branch, Branches, Suspended
from hark.programs.inbox import FunctionInbox
from hark.programs.journal import KNOWN_WHEN_ASKED, MARKERS, NEW_VISIT, RETRIED, UNDOING, Journal, Line
from hark.programs.operations import (
    AwakeableAnswer,
    ChildCall,
    EffectOperation,
    Operation,
    Result,
    Run,
    Sleep,
    WaitForSignal,
    entry_of,
    label_of,
    shortened,
)  # fmt: skip
from hark.programs.read_ahead import ReadAhead
from hark.programs.runs import Runs, plan_retry
from hark.programs.services import FunctionServices
from hark.programs.unawaited import check_all_awaited
from hark.programs.undo import Undoing, cannot_go_on, start_over, succeeded
from hark.programs.waits import WaitChanges, needs_changes, wait_changes, waits_by_entry
from hark.programs.was_parked import was_parked

if TYPE_CHECKING:
    from hark.programs.function_program import FunctionProgram

_MAX_CALLS_WHILE_CLOSING = 100


class ContinueAsNew(Struct, frozen=True):
    """What `ctx.continue_as_new` returns: the input of the next visit."""

    input: Any


_PROCEED, _PROCEED_KEEPING_SLOT = Proceed(), Proceed(keep_slot=True)


class Session:
    """One activation of a function, from its claim to its park or end."""

    def __init__(self, program: FunctionProgram, claim: Claim, services: FunctionServices) -> None:
        self.program = program
        self.claim = claim
        self.services = services
        self.stalled: str | None = None  # set by the watchdog: where the code held the event loop for too long
        self._thread = get_ident()
        self._journal = Journal(claim.journal)
        self._inbox = FunctionInbox()
        self._runs = Runs(claim, services)
        self._branches = Branches()
        self._ready = self._branches.ready
        self._open: dict[int, Operation] = {}  # by entry: asked for, not resolved
        self._withdrawn: set[int] = set()
        self._resolved_early: dict[int, Operation] = {}  # resolved before the code awaited them
        self._resolved_by_commit: list[tuple[JournalLine, Operation]] = []  # the code receives these after the commit
        self._failed_attempts: list[FailedAttempt] = []  # of runs, since the last commit
        self._diverged: NonDeterministic | None = None
        self._progress: str | None = None  # for the next commit
        self._closed = False
        self._is_live = False  # the replay has ended
        self._known_to = 0  # of the inbox, up to this seq, when it resumed after a park
        self.undoable: dict[int, Run] = {}  # the runs with an undo, by entry
        self._has_new_undo = False  # the code has an undo for a result that was recorded before
        self._undoing: Undoing | None = None
        self._must_undo = claim.cancel_reason is not None or (
            claim.on_cancel is not None and self._journal.undoing is not None
        )
        # The waits of an undo, which a replay does not ask for, are for its next attempt: see undo.py.
        self._claimed_waits = (
            waits_by_entry(claim, self._journal.cut_entries()) if claim.waits and not self._must_undo else {}
        )
        self.read_ahead = ReadAhead(self._journal, self._claimed_waits)

    @cached_property
    def random(self) -> Random:
        """The same numbers in every replay, other numbers in every visit."""
        return Random(f"{self.claim.id}/{self.claim.visit}")

    def is_silent(self) -> bool:
        """Whether `ctx.log` says nothing: the code runs again what it has run, or is being closed."""
        if self._closed or self._ready.closing or self._must_undo:
            return True
        return not self._is_live and (bool(self._journal.unread) or was_parked(self.claim, self._journal.lines))

    # -- what the context calls -------------------------------------------------------------------

    def ask(self, operation: Operation) -> Operation:
        """Give the operation its entry. Raises Suspended if the journal has another operation there."""
        if self._closed or self._ready.closing:
            self._ready.calls_while_closing += 1
            if self._ready.calls_while_closing > _MAX_CALLS_WHILE_CLOSING:
                return operation  # ends `while True: try: … except: …`, which Suspended does not: it is never resolved
            self.check_caller()
            raise Suspended
        driving = self.services.driving
        if driving is None or driving[0] is not self or get_ident() != self._thread:
            self.check_caller()
        if self.read_ahead.pending is not None:
            self._register_pending()
        journal = self._journal
        entry = operation.entry = journal.next_entry
        journal.next_entry = entry + 1
        line = journal.line_at(entry)
        if line is not None and (line.kind != operation.kind or line.name != operation.name):
            self._diverge(entry, label_of(line.kind, line.name), operation.label)
        for wait in self._claimed_waits.get(entry, ()) if self._claimed_waits else ():
            attempt = wait.place.partition("+")[2]
            if not operation.matches_wait(wait.kind, wait.name, attempt):
                self._diverge(entry, f"a wait for {label_of(wait.kind, wait.name)}", operation.label)
            if isinstance(operation, Run):
                operation.attempt, operation.awaits_retry = int(attempt), wait.fired_at is None
        operation.session = self
        caller = _getframe(2)  # the code that called a method of ctx
        operation.asked = caller.f_code, caller.f_lasti
        self._open[entry] = operation
        if self._is_live:
            self._inbox.expect(operation)
        return operation

    async def ask_known(self, operation: Operation, make: Callable[[], str]) -> str:
        """An operation whose value is known when it is asked for: the value in its line, or a new line of `make()`."""
        self.ask(operation)
        if operation.entry < 0:
            await operation
        del self._open[operation.entry]
        line = self._journal.line_at(operation.entry)
        if line is not None and line.value is not None:
            return line.value
        return self._journal.write(operation.kind, operation.entry, operation.name, (make(), None)).value or "null"

    def open_answer(self, answer: AwakeableAnswer, entry: int) -> None:
        """An awakeable is open from its creation, awaited or not. Its answer has the entry of its creation."""
        answer.entry = entry
        answer.session = self
        self._open[entry] = answer
        if self._is_live:
            self._inbox.expect(answer)

    def awakeable_deadline(self, entry: int, life: int | None) -> int | None:
        """When the awakeable of this entry times out: as stored, or `life` from now if it is new."""
        place = str(entry)
        if place in self._deadlines:
            return self._deadlines[place]
        return None if life is None else self.services.micros() + life

    @cached_property
    def _deadlines(self) -> dict[str, int | None]:
        """The deadlines of the waits it was claimed with, by place."""
        return {wait.place: wait.deadline for wait in self.claim.waits}

    def set_progress(self, text: str) -> None:
        """With the next commit. Not in a replay: a later value may be stored."""
        self.check_caller()
        if not self.is_replaying:
            self._progress = text

    @property
    def is_replaying(self) -> bool:
        """Whether the code runs again up to where it was: lines of the journal are left."""
        return self._must_undo or bool(self._journal.unread)

    @property
    def unread_lines(self) -> int:
        """How many lines of the journal the code has not received yet. The watchdog reads it, in another thread."""
        return len(self._journal.unread)

    def branch(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        self.check_caller()
        self._register_pending()
        self.read_ahead.stop()
        return self._branches.add(coroutine)

    def check_caller(self) -> None:
        """Only the function's own code may use its context: entries asked for from elsewhere would not replay."""
        driving = self.services.driving
        if not ((driving is not None and driving[0] is self) or self._ready.closing) or get_ident() != self._thread:
            raise InvalidOutcome(
                f"ctx was used outside of workflow {self.program.name}: in a function it runs, in another thread, or "
                "after it ended or was suspended. Only the workflow's own code may use it: pass values to ctx.run, and "
                "let the function return what the workflow needs next."
            )

    # -- what an operation calls ------------------------------------------------------------------

    def read_next_line(self, operation: Operation) -> bool:
        """In a replay with one branch: resolve the operation the branch is about to await, if the next line is its own.

        No other branch could run in between, so suspending the code would only cost time.
        """
        unread = self._journal.unread
        if not unread or self._branches.parallel:
            return False
        line = unread[0]
        if line.entry != operation.entry or line.kind in MARKERS:
            return False
        unread.popleft()
        del self._open[line.entry]
        operation.read_line(line.value, line.error)
        return True

    def resolved_early(self, operation: Operation) -> None:
        if isinstance(operation, Run | ChildCall | Sleep | WaitForSignal):
            self._resolved_early[operation.entry] = operation

    def awaited_late(self, operation: Operation) -> None:
        self._resolved_early.pop(operation.entry, None)

    def withdraw(self, operation: Operation) -> None:
        self._register_pending()
        self._open.pop(operation.entry, None)
        self._withdrawn.add(operation.entry)
        self._runs.cancel(operation.entry)

    # -- driving the code -------------------------------------------------------------------------

    def _drive(self) -> None:
        """Run the code until every branch awaits something unresolved."""
        ready = self._ready
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, self._close_generator)
        self.services.driving = (self,)  # a new tuple each time: the watchdog compares identities
        try:
            while ready and self._diverged is None:
                ready.popleft().step()
        except Suspended:
            if self._diverged is None:
                raise
        finally:
            self._register_pending()
            self.services.driving = None
            sys.set_asyncgen_hooks(*hooks)

    def _register_pending(self) -> None:
        """The code has not awaited the run that was to receive the next line at once: it is open like any other."""
        run, self.read_ahead.pending = self.read_ahead.pending, None
        if run is not None:
            run.session = self
            self._open[run.entry] = run

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an async generator that was not exhausted. The event loop would do it in a task at some later time,
        where its `finally` could ask for operations at entries that no replay repeats."""
        if get_ident() == self._thread:
            self._register_pending()
            self.read_ahead.stop()
            self._ready.close_code(lambda: generator.aclose().__await__().__next__())
            if not self._branches.parallel and not self._is_live:
                self.read_ahead.start()

    def _diverge(self, entry: int, expected: str, found: str) -> NoReturn:
        self._diverged = self._diverged or NonDeterministic(
            f"{self.program.name} diverged from its journal: at entry {entry} the journal has {expected}, the code "
            f"has {found}. Fix the code so that it asks for the same operations again, then retry the instance; or "
            "give the changed code a new version=.",
            entry=entry, expected=expected, found=found,
        )  # fmt: skip
        raise Suspended

    def _diverge_at(self, line: Line) -> None:
        """The journal has a line that the code did not ask for."""
        assert self._branches.root is not None
        labels = ", ".join(operation.label for operation in self._open.values())
        found = "the end" if self._branches.root.done else f"a wait for {labels}" if labels else "nothing"
        try:
            self._diverge(line.entry, label_of(line.kind, line.name), found)
        except Suspended:
            return

    # -- the replay -------------------------------------------------------------------------------

    def _replay(self) -> None:
        root = self._branches.add(self.program.begin(self.program.context(self), self.claim.state))
        journal = self._journal
        journal.start_replay()
        self.read_ahead.start()
        self._drive()
        while journal.unread:
            if self._diverged is not None:
                return
            line = journal.unread.popleft()
            if line.kind == RETRIED:
                journal.next_entry = line.entry
            if line.kind in MARKERS:
                continue
            operation = self._open.pop(line.entry, None)
            if operation is None:
                if line.entry in self._withdrawn:
                    continue
                self._diverge_at(line)
                return
            operation.read_line(line.value, line.error)
            self._drive()
        journal.end_replay()
        self.read_ahead.stop()
        self._is_live = True
        for operation in self._open.values():
            self._inbox.expect(operation)
        if journal.is_retry:
            self._repeat_cut_lines()
            # Waits of operations that only the failed attempt asked for are withdrawn.
            self._withdrawn.update({entry_of(wait.place) for wait in self.claim.waits} - self._open.keys())
        self._has_new_undo = bool(self.undoable) and bool(succeeded(journal.lines, self.undoable))
        if root.done and self._diverged is None:
            never_asked = journal.never_asked()
            if never_asked is not None:
                self._diverge_at(never_asked)

    def _repeat_cut_lines(self) -> None:
        """Of the lines a retry has cut, give those again that resolve an operation asked for before the failure: what
        succeeded is not done twice, and an answer stays an answer. The signals of the others return to the inbox."""
        for line in self._journal.cut_lines:
            operation = self._open.get(line.entry)
            kept = operation is not None and (line.error is None or line.kind == "answer")
            if operation is not None and kept and line.kind not in MARKERS and line.kind not in KNOWN_WHEN_ASKED:
                self._resolve(operation, (line.value, line.error), line.kind)
            elif line.kind == "wait" and line.value is not None:
                self._inbox.restored.append(json.load(line.value)["id"])

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
        return root is not None and not root.done and self._diverged is None and self.stalled is None

    def _resume_after_commit(self) -> None:
        """The last decision is committed: the code receives the results in its lines."""
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

    def _resolve(self, operation: Operation, result: Result, kind: str) -> None:
        """Write a line that the code receives before it is committed: after a crash the inbox still has the answer."""
        del self._open[operation.entry]
        line = self._journal.write(kind, operation.entry, operation.name, result)
        operation.read_line(line.value, line.error)
        self._drive()

    def _only_run(self) -> Run | None:
        """The usual case, which needs no task and no waits: one function after the other, with nothing else open."""
        if len(self._open) == 1 and not self._journal.uncommitted and self._progress is None and not self.claim.waits:
            for operation in self._open.values():
                if type(operation) is Run and not operation.started and not operation.attempt:
                    operation.started = True
                    return operation
        return None

    def _has_uncommitted(self) -> bool:
        """Whether something must be committed before a run: what it may depend on, and the progress people see
        while it runs."""
        return bool(self._journal.uncommitted) or self._progress is not None

    def _end_run(self, run: Run, result: Result) -> None:
        attempt, failure = run.attempt, run.failure
        retried = failure is not None and plan_retry(run)
        if not retried:
            self._resolved_by_commit.append((self._journal.write("run", run.entry, run.name, result), run))
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
        """It waits for something beside its runs, with waits it was claimed with: without a listener, answers to them
        would be read only after a run has ended."""
        return self._runs.listener is None and any(
            operation.needs_wait and not (isinstance(operation, Run) and not operation.awaits_retry)
            for operation in self._open.values()
        )

    def _keeps_slot(self) -> bool:
        """A function keeps its slot while something it called runs, and until it has added as many lines as it
        replayed: it replays again when it comes back, and a long journal would cost more each time than it grows."""
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
        return self._decide("next", move, changes.effects)

    def _park(self) -> Decision:
        changes = self._wait_changes()
        label: OutcomeType = "spawn" if any(arm.kind == "children" for arm in changes.arm) else "await"
        decision = self._decide(label, Park(changes.arm, changes.disarmed_ids, changes.awakeables), changes.effects)
        self._runs.close()
        return decision

    def _finish(self) -> Decision:
        assert self._branches.root is not None
        self.close()
        if self._diverged is not None:
            return cannot_go_on(self.claim, self._diverged)
        if self.stalled is not None:
            return self._fail(HarkError(self.stalled))
        try:
            value = self._branches.root.value_or_raise()
            unfinished = self._branches.unfinished()
            if self._open or self._resolved_early or unfinished:
                early = self._resolved_early.values()
                check_all_awaited(self.claim, self.program.name, self._open, early, unfinished)
            if isinstance(value, ContinueAsNew):
                return self._continue_as_new(value.input)
            what = f"result of {self.program.name}"
            result = json.dump_unchecked(value, limit=self.services.max_payload, what=what)
        except Exception as error:
            if self.undoable and succeeded(self._journal.lines, self.undoable):
                return self._begin_undo(error)
            return self._fail(error)
        self._write_effects()
        effects = self._wait_changes().effects if self._withdrawn else []
        # An instance that is done never runs again and its inbox is never read (S4, decision 5): marking rows as
        # consumed would be writes for nothing. Only a failed one can be retried.
        self._inbox.consumed = []
        return self._decide("done", Finish("done", result=result), effects)

    def _fail(self, error: Exception) -> Decision:
        self._journal.write_failure(error)
        failure = failure_of(error)
        decision = self._decide("stop", Finish("failed", error=failure.text, traceback=failure.traceback), [])
        decision.failure = failure
        return decision

    # -- undo -------------------------------------------------------------------------------------

    def _begin_undo(self, error: Exception) -> Decision:
        """The function has failed: give up what is open, and record the error before the first undo runs."""
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
        """The function is being cancelled, or has failed in an earlier activation: the replay has found its undos."""
        self.close()
        if self._diverged is not None:
            return cannot_go_on(self.claim, self._diverged)
        self._journal.uncommitted.clear()  # what the code asked for since is not wanted any more
        self._undoing = Undoing(self.claim, self._journal, self._runs, self.undoable)
        return await self._undoing.next_decision()

    def _continue_as_new(self, input: Any) -> Decision:
        codec = self.program.codec
        state = codec.dump(codec.build(input, limit=self.services.max_payload), self.services.max_payload)
        self._journal.uncommitted.clear()
        asked = [operation.effect for operation in self._open.values() if isinstance(operation, EffectOperation)]
        self._open.clear()
        changes = self._wait_changes()
        move = Proceed(disarm=changes.disarmed_ids, continue_as_new=True)
        decision = self._decide("next", move, changes.effects + asked, state)
        decision.journal, decision.cut_from = [JournalLine(0, self._journal.next_entry, NEW_VISIT)], None
        decision.has_undo = None if self.claim.on_cancel is None else False
        return decision

    def close(self) -> None:
        """Cancel what runs and close the code; nothing it asks for from here on is started."""
        if self._closed:
            return
        self._closed = True
        self._journal.unread.clear()
        self._runs.close()
        self._branches.close()

    def size(self) -> int:
        """How many characters it keeps in memory, as far as that is known."""
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
        """The activation has ended: close, and drop what refers back to this session, so that all of it is freed now
        and not by the garbage collector (FINDINGS 72)."""
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
