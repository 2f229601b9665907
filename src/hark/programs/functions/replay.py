"""The replay of a durable function: its code runs again, and receives the lines of its journal.

Each line resolves the operation that asked for it, in the order in which the function once received the results;
between two lines the code runs until every branch awaits something. Branches that once finished in any order therefore
run through the same states again. What the code asks for is compared with the journal. What the context and the
operations call is here too, in a replay and after it. What happens after the last line is in function_session.py.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import cached_property
from random import Random
from sys import _getframe
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from hark.model import json
from hark.model.activation import Claim
from hark.model.errors import InvalidInput, InvalidOutcome, NonDeterministic
from hark.model.failures import innermost_line_of_user
from hark.programs.functions.branches import Branch, Branches, Suspended
from hark.programs.functions.function_inbox import FunctionInbox
from hark.programs.functions.function_journal import KNOWN_WHEN_ASKED, MARKERS, PATCH, RETRIED, Journal
from hark.programs.functions.function_runs import Runs
from hark.programs.functions.function_waits import waits_by_entry
from hark.programs.functions.operations import (
    AwakeableAnswer,
    ChildCall,
    Operation,
    Result,
    Run,
    Sleep,
    WaitForSignal,
    entry_of,
    label_of,
    shortened,
)
from hark.programs.functions.read_ahead import ReadAhead
from hark.programs.functions.unawaited import line_of
from hark.programs.functions.undo import succeeded
from hark.programs.functions.was_parked import was_parked
from hark.programs.misfits import ADVICE
from hark.programs.services import FunctionServices

if TYPE_CHECKING:
    from hark.programs.functions.function_program import FunctionProgram

_MAX_CALLS_WHILE_CLOSING = 100


class Patch:
    """The calls of `ctx.patched` with one name."""

    __slots__ = ("answered_false", "place")

    def __init__(self, place: tuple[CodeType, int]) -> None:
        self.place = place  # the code object and the instruction
        self.answered_false = False


class Replay:
    """The code of a function in one activation, and the lines it has received."""

    def __init__(self, program: FunctionProgram, claim: Claim, services: FunctionServices) -> None:
        self.program = program
        self.claim = claim
        self.services = services
        self.stalled: str | None = None  # set by the watchdog: where the code held the event loop for too long
        self._current_thread = services.current_thread
        self._thread = services.current_thread()
        self._journal = Journal(claim.journal)
        self._inbox = FunctionInbox()
        self._runs = Runs(claim, services)
        self._branches = Branches()
        self._ready = self._branches.ready
        self._open: dict[int, Operation] = {}  # by entry: asked for, not resolved
        self._withdrawn: set[int] = set()
        self._resolved_early: dict[int, Operation] = {}  # resolved before the code awaited them
        self._misfit: NonDeterministic | None = None
        self._progress: str | None = None  # for the next commit
        self._closed = False
        self._is_live = False  # the replay has ended
        self.undoable: dict[int, Run] = {}  # the runs with an undo, by entry
        self.patches: dict[str, Patch] = {}  # the calls of `ctx.patched`, by name
        self._has_new_undo = False  # the code has an undo for a result that was recorded before
        self._must_undo = claim.cancel_reason is not None or (
            claim.on_cancel is not None and self._journal.undoing is not None
        )
        # The waits of an undo, which a replay does not ask for, are for its next attempt: see undo.py.
        self._claimed_waits = (
            waits_by_entry(claim, self._journal.cut_entries()) if claim.waits and not self._must_undo else {}
        )
        self.read_ahead = ReadAhead(self._journal, self._claimed_waits, services.current_thread)

    @cached_property
    def random(self) -> Random:
        """A generator that gives the same numbers in every replay, other numbers in every visit."""
        return Random(self._journal.seed or f"{self.claim.id}/{self.claim.visit}")

    def is_silent(self) -> bool:
        """Return True if `ctx.log` says nothing: the code runs again what it has run, or is being closed."""
        if self._closed or self._ready.closing or self._must_undo:
            return True
        return not self._is_live and (bool(self._journal.unread) or was_parked(self.claim, self._journal.lines))

    # -- what the context calls -------------------------------------------------------------------

    def ask(self, operation: Operation, depth: int = 2) -> Operation:
        """Give the operation its entry. Raises Suspended if the journal has another operation there.

        The code of the user is `depth` frames above this one."""
        if self._closed or self._ready.closing:
            self._ready.calls_while_closing += 1
            if self._ready.calls_while_closing > _MAX_CALLS_WHILE_CLOSING:
                return operation  # ends `while True: try: … except: …`, which Suspended does not: it is never resolved
            self.check_caller()
            raise Suspended
        running = self.services.running_session
        if running is None or running[0] is not self or self._current_thread() != self._thread:
            self.check_caller()
        if self.read_ahead.pending is not None:
            self._register_pending()
        journal = self._journal
        entry = operation.entry = journal.next_entry
        journal.next_entry = entry + 1
        line = journal.line_at(entry)
        if line is not None and (line.kind != operation.kind or line.name != operation.name):
            self._diverge(entry, label_of(line.kind, line.name), operation.label, _line(_getframe(depth)))
        for wait in self._claimed_waits.get(entry, ()) if self._claimed_waits else ():
            attempt = wait.place.partition("+")[2]
            if not operation.matches_wait(wait.kind, wait.name, attempt):
                awaited = f"a wait for {label_of(wait.kind, wait.name)}"
                self._diverge(entry, awaited, operation.label, _line(_getframe(depth)))
            if isinstance(operation, Run):
                operation.attempt, operation.awaits_retry = int(attempt), wait.fired_at is None
        operation.session = self
        caller = _getframe(depth)  # the code that called a method of ctx
        operation.asked = caller.f_code, caller.f_lasti
        self._open[entry] = operation
        if self._is_live:
            self._inbox.expect(operation)
        return operation

    async def ask_known(self, operation: Operation, make: Callable[[], str]) -> str:
        """An operation whose value is known when it is asked for: the value in its line, or a new line of `make()`."""
        self.ask(operation, 3)
        if operation.entry < 0:
            await operation
        del self._open[operation.entry]
        line = self._journal.line_at(operation.entry)
        if line is not None and line.value is not None:
            return line.value
        return self._journal.write(operation.kind, operation.entry, operation.name, (make(), None)).value or "null"

    def open_answer(self, answer: AwakeableAnswer, entry: int) -> None:
        """Open the answer of an awakeable, from its creation on, awaited or not. Both have one entry."""
        answer.entry = entry
        answer.session = self
        self._open[entry] = answer
        if self._is_live:
            self._inbox.expect(answer)

    def awakeable_deadline(self, entry: int, life: int | None) -> int | None:
        """The time at which the awakeable of this entry times out: as stored, or `life` from now if it is new."""
        place = str(entry)
        if place in self._deadlines:
            return self._deadlines[place]
        return None if life is None else self.services.micros() + life

    @cached_property
    def _deadlines(self) -> dict[str, int | None]:
        """The deadlines of the waits it was claimed with, by place."""
        return {wait.place: wait.deadline for wait in self.claim.waits}

    def set_progress(self, text: str) -> None:
        """Set the progress with the next commit. Not in a replay: a later value may be stored."""
        self.check_caller()
        if not self.is_replaying:
            self._progress = text

    @property
    def is_replaying(self) -> bool:
        """Return True if the code runs again up to where it was: lines of the journal are left."""
        return self._must_undo or bool(self._journal.unread)

    @property
    def unread_lines(self) -> int:
        """The number of lines of the journal that the code has not received. The watchdog reads it, in another
        thread."""
        return len(self._journal.unread)

    def patched(self, name: str) -> bool:
        """Answer `ctx.patched`: True if a line says so, or if the code comes to this place for the first time.

        Code has been here before if the journal has a line that it received later, or if it asked for an operation at
        this entry or a later one. An answer of True takes no entry, so that the call can be removed."""
        self.check_caller()
        self._register_pending()
        caller = _getframe(2)
        place = caller.f_code, caller.f_lasti
        if self.patches.setdefault(name, Patch(place)).place != place:
            self._hold_ambiguous_patch(name, place)
        journal = self._journal
        entry = journal.next_entry
        if journal.has_patch(entry, name):
            return True
        if journal.unread or journal.has_entry_from(entry) or any(asked >= entry for asked in self._claimed_waits):
            self.patches[name].answered_false = True
            return False
        journal.write(PATCH, entry, name, ("true", None))
        return True

    def _hold_ambiguous_patch(self, name: str, place: tuple[CodeType, int]) -> NoReturn:
        first, second = line_of(self.patches[name].place), line_of(place)
        text = (
            f"{self.program.name} calls ctx.patched({name!r}) at two places, {first} and {second}: their answers may "
            "differ. Keep the answer in a variable, or give the second change a name of its own."
        )
        self._misfit = self._misfit or NonDeterministic(text, cause=text, line=second)
        raise Suspended

    def branch(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        self.check_caller()
        self._register_pending()
        self.read_ahead.stop()
        return self._branches.add(coroutine)

    def check_caller(self) -> None:
        """Raise unless the function's own code calls: entries asked for from elsewhere would not replay."""
        running = self.services.running_session
        is_driven = (running is not None and running[0] is self) or self._ready.closing
        if not is_driven or self._current_thread() != self._thread:
            raise InvalidOutcome(
                f"ctx was used outside of workflow {self.program.name}: in a function it runs, in another thread, or "
                "after it ended or was suspended. Only the workflow's own code may use it: pass values to ctx.run, and "
                "let the function return what the workflow needs next."
            )

    # -- what an operation calls ------------------------------------------------------------------

    def read_next_line(self, operation: Operation) -> bool:
        """Resolve the operation that the branch is about to await, if the next line is its own. In a replay with one
        branch.

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
        return operation.done

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
        self.services.running_session = (self,)  # a new tuple each time: the watchdog compares identities
        try:
            while ready and self._misfit is None:
                ready.popleft().step()
        except Suspended:
            if self._misfit is None:
                raise
        finally:
            if self.read_ahead.pending is not None:
                self._register_pending()
            self.services.running_session = None
            sys.set_asyncgen_hooks(*hooks)

    def _register_pending(self) -> None:
        """Register the run that was to receive the next line as open: the code has not awaited it at once."""
        run, self.read_ahead.pending = self.read_ahead.pending, None
        if run is not None:
            run.session = self
            self._open[run.entry] = run

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Close an async generator that was not exhausted. The event loop would do it in a task at some later time,
        where its `finally` could ask for operations at entries that no replay repeats."""
        if self._current_thread() == self._thread:
            self._register_pending()
            self.read_ahead.stop()
            self._ready.close_code(lambda: generator.aclose().__await__().__next__())
            if not self._branches.parallel and not self._is_live:
                self.read_ahead.start()

    def cannot_read(self, operation: Operation, value: str, error: Exception) -> None:
        """Hold the instance: the stored result of an operation does not match the types of the code."""
        cause = f"{type(error).__name__}: {error}"
        found = f"{cause} ({shortened(value)})"
        self._hold(
            operation.entry, operation.label, found, line_of(operation.asked), cause, "cannot read the result of"
        )

    def _diverge(self, entry: int, expected: str, found: str, line: str | None = None) -> NoReturn:
        self._hold(entry, expected, found, line)
        raise Suspended

    def _hold(
        self, entry: int, expected: str, found: str, line: str | None, cause: str | None = None, problem: str = ""
    ) -> None:
        if self._misfit is not None:
            return
        where = f" ({line})" if line else ""
        if problem:
            text = f"{self.program.name} {problem} {expected}, entry {entry} of its journal{where}: {found}."
        else:
            text = (
                f"{self.program.name} diverged from its journal: at entry {entry} the journal has {expected}, the code "
                f"has {found}{where}."
            )
        self._misfit = NonDeterministic(
            f"{text} {ADVICE}", cause=cause or text, entry=entry, expected=expected, found=found, line=line
        )

    def _diverge_at(self, entry: int, expected: str) -> None:
        """Report that the code did not ask for something that it has asked for before."""
        root = self._branches.root
        assert root is not None
        if root.done and root.error is not None:
            self._hold_raised(entry, expected, root.error)
            return
        labels = ", ".join(operation.label for operation in self._open.values())
        found = "the end" if root.done else f"a wait for {labels}" if labels else "nothing"
        asked = next((operation.asked for operation in reversed(self._open.values())), None)
        code = self.program.function.__code__
        place = line_of(asked) if asked is not None else f"{code.co_filename}:{code.co_firstlineno}"
        self._hold(entry, expected, found, place)

    def _hold_raised(self, entry: int, expected: str, error: BaseException) -> None:
        """Hold the instance: the code raised an exception where it has gone on before."""
        raised = f"{type(error).__name__}: {error}"
        place = innermost_line_of_user(error, self.program.function.__module__.partition(".")[0])
        self._hold(entry, expected, raised, None if place is None else f"{place[0]}:{place[1]}")
        if self._misfit is not None:
            self._misfit.__cause__ = error

    # -- the replay -------------------------------------------------------------------------------

    def _replay(self) -> None:
        try:
            code = self.program.begin(self.program.context(self), self.claim.state)
        except InvalidInput as error:
            code = self._without_input(error)
        root = self._branches.add(code)
        journal = self._journal
        journal.start_replay()
        if journal.unread:
            self.read_ahead.start()
        self._drive()
        while journal.unread:
            if self._misfit is not None:
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
                self._diverge_at(line.entry, label_of(line.kind, line.name))
                return
            operation.read_line(line.value, line.error)
            self._drive()
        journal.end_replay()
        self.read_ahead.stop()
        self._is_live = True
        for operation in self._open.values():
            self._inbox.expect(operation)
            if isinstance(operation, AwakeableAnswer):  # after a crash an event may be missing, none is written twice
                operation.told = operation.awaited
        if journal.is_retry:
            self._repeat_cut_lines()
            # Waits of operations that only the failed attempt asked for are withdrawn.
            self._withdrawn.update({entry_of(wait.place) for wait in self.claim.waits} - self._open.keys())
        self._has_new_undo = bool(self.undoable) and bool(succeeded(journal.lines, self.undoable))
        if self._misfit is None:
            self._compare_with_never_asked(is_at_end=root.done)

    def _compare_with_never_asked(self, *, is_at_end: bool) -> None:
        """Report an operation of the journal, or a wait, that the code has not asked for in the whole replay.

        An open wait was asked for behind the last line at the latest. Without this, code that ends there would end
        the instance. A retry has given up the waits that only the failed attempt had."""
        line = self._journal.never_asked() if is_at_end else None
        if line is not None:
            self._diverge_at(line.entry, label_of(line.kind, line.name))
            return
        entry = max(self._claimed_waits, default=-1)
        if entry >= self._journal.next_entry and not self._journal.is_retry:
            wait = self._claimed_waits[entry][0]
            self._diverge_at(entry, f"a wait for {label_of(wait.kind, wait.name)}")

    def _without_input(self, error: InvalidInput) -> Coroutine[Any, Any, Any]:
        """The code of a function that does not accept its stored input. An instance that has run is held."""
        if self.claim.has_run:
            raised = error.__cause__ or error
            cause = f"{type(raised).__name__}: {raised}"
            code = self.program.function.__code__
            self._misfit = NonDeterministic(
                f"{self.program.name} cannot be called with its stored input: {cause}. {ADVICE}",
                cause=cause,
                expected=shortened(self.claim.state),
                line=f"{code.co_filename}:{code.co_firstlineno}",
            )
        return _raise(error)

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

    def _resolve(self, operation: Operation, result: Result, kind: str) -> None:
        """Write a line that the code receives before it is committed: after a crash the inbox still has the answer."""
        del self._open[operation.entry]
        line = self._journal.write(kind, operation.entry, operation.name, result)
        operation.read_line(line.value, line.error)
        self._drive()

    def close(self) -> None:
        """Cancel what runs and close the code; nothing it asks for from here on is started."""
        if self._closed:
            return
        self._closed = True
        self._journal.unread.clear()
        self._runs.close()
        self._branches.close()


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


async def _raise(error: Exception) -> Any:
    raise error
