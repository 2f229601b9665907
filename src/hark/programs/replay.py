"""The interpreter of functions: replays the journal, then goes on where it ended.

One session drives one activation. First every line of the journal is given to the operation that asked
for it, in the order in which the function once came to know them; between two lines the code runs until
it can do nothing more. That is all a replay is, so branches that finished in any order take the same
road again. Then the session lives: answers from the inbox become new lines, functions run, and each
result is committed before the code sees it (invariant 1). Before a function runs everything it may
depend on is committed too. When nothing runs and nothing can, the instance parks on all that is open.

What the code awaits is in operations.py and branches.py; what it can say is in functions.py.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from inspect import CO_COROUTINE
from random import Random
from typing import Any, NoReturn

from hark.model import json
from hark.model.activation import Claim, InboxRow, JournalRow, WaitRow
from hark.model.decisions import (
    Arm,
    CancelChild,
    Decision,
    Effect,
    Entry,
    Finish,
    NewAwakeable,
    Park,
    Proceed,
    Settle,
)  # fmt: skip
from hark.model.error_codec import encode_error
from hark.model.errors import (
    CallFailed,
    HarkError,
    InvalidOutcome,
    NonDeterministic,
    RunFailed,
    SignalTimeout,
)  # fmt: skip
from hark.programs.branches import Branch, Ready, Suspended
from hark.programs.operations import AwakeableAnswer, ChildCall, Do, Operation, Run, WaitForSignal, named
from hark.programs.services import FunctionServices, InboxListener, InputCodec
from hark.programs.steps import error_text, is_cancelled

_AT_ONCE = frozenset(("now", "awakeable"))  # known when asked: their lines are read by entry, not in order
_MARKS = frozenset(("anew", "retried", "failed"))  # lines that nobody asked for
_STEP = 255
_SERVED = "-1"  # the place of a wait that belongs to no entry any more
_PLEAS = 100  # of code that is being left, before it is left as it is


@dataclass(frozen=True, slots=True)
class ContinueAsNew:
    """The end of this visit, and the input of the next."""

    input: Any


_ON, _HOLD = Proceed(), Proceed(keep_slot=True)
_Line = JournalRow | Entry
_Ran = tuple[Run, str | None, str | None]  # and its value, or its error


@dataclass(slots=True)
class FunctionProgram:
    """A function, as the interpreter needs it."""

    name: str
    version: int
    queue: str
    codec: InputCodec
    function: Callable[..., Any]
    begin: Callable[[Any, str], Coroutine[Any, Any, Any]]  # from the context and the stored input
    context: Callable[[Session], Any]
    initial: str = "start"
    kind: str = "workflow"
    source: str | None = None
    digest: str | None = None

    @property
    def steps(self) -> dict[str, Any]:
        return {self.initial: self.function}

    async def run(self, claim: Claim, services: FunctionServices) -> Decision:
        session: Session | None = claim.session
        if session is None:
            session = claim.session = Session(self, claim, services)
            services.watch()
        try:
            return await session.turn()
        except BaseException:
            session.close()
            raise

    async def recover(self, claim: Claim, services: FunctionServices, error: BaseException) -> Decision:
        """Nobody but the function itself decides about its errors: what comes here is beyond it."""
        if claim.session is not None:
            claim.session.close()
        return Decision("stop", claim.step, claim.state, Finish("failed", error=error_text(error)))


class Session:
    """One activation of a function."""

    def __init__(self, program: FunctionProgram, claim: Claim, services: FunctionServices) -> None:
        self.program = program
        self.claim = claim
        self.services = services
        self.blocked: str | None = None  # where its code held the loop for too long, when it did
        self._loop = asyncio.get_running_loop()
        self._lines: list[_Line] = list(claim.journal)
        self._cut: int | None = None
        self._entry = 0
        self._road: deque[_Line] = deque()  # in a replay, the lines to be learned, in their order
        self._base: int | None = None
        self._undone: list[_Line] = []  # lines that the retry we are has cut off
        self._open: dict[int, Operation] = {}
        self._withdrawn: set[int] = set()
        self._fresh: list[Entry] = []  # not committed yet
        self._held: list[tuple[Entry, Operation]] = []  # those of them the code learns when they are
        self._consume: list[int] = []
        self._restore: list[int] = []
        self._mail: list[InboxRow] = []
        self._tasks: dict[int, asyncio.Task[_Ran | BaseException]] = {}
        self._listener: InboxListener | None = None
        self._ready: Ready = Ready()
        self._branches: dict[Coroutine[Any, Any, Any], Branch] = {}
        self._closed = False
        self._diverged: NonDeterministic | None = None
        self._root: Branch | None = None
        self._past = self._read_journal()
        self._armed: dict[str, list[WaitRow]] = {}  # the waits it was claimed with, by entry
        for wait in claim.waits:
            self._armed.setdefault(wait.place.partition("+")[0], []).append(wait)
        self._replayed = len(self._lines)

    @cached_property
    def random(self) -> Random:
        """The same numbers in every replay, and others in every visit."""
        return Random(f"{self.claim.id}/{self.claim.visit}")

    # -- the journal ------------------------------------------------------------------------------

    def _read_journal(self) -> dict[int, _Line]:
        """The lines by entry. A last line that says «failed» was written for the retry that we are now."""
        lines = self._lines
        if lines and lines[0].kind == "anew":
            self._entry = lines[0].entry
        if lines and lines[-1].kind == "failed":
            failed = lines[-1]
            self._cut = cut = int(failed.value or failed.seq)
            self._base = failed.entry
            self._undone = [line for line in lines if line.seq >= cut]
            had = {str(line.entry) for line in self._undone if line.kind not in _AT_ONCE}
            for wait in self.claim.waits:
                if wait.place.partition("+")[0] in had:
                    wait.place = _SERVED  # it had its answer: who asks again arms another
            lines[:] = [line for line in lines if line.seq < cut]
            self._write("retried", failed.entry)
        # Of an awakeable its creation, which comes first.
        return {line.entry: line for line in reversed(lines) if line.kind not in _MARKS}

    def _write(self, kind: str, entry: int, name: str | None = None, fact: tuple[Any, Any] = (None, None)) -> Entry:
        seq = self._lines[-1].seq + 1 if self._lines else 0
        line = Entry(seq + len(self._fresh), entry, kind, name, *fact)
        self._fresh.append(line)
        return line

    def enter(self, operation: Operation) -> Operation:
        """The code asks for something: it gets the next entry, and the journal must agree."""
        if self._closed or self._ready.leaving:
            self._ready.pleas += 1
            if self._ready.pleas > _PLEAS:
                return operation  # a bare `except` in a loop would hold us for ever; awaiting what never comes ends it
            self.check()
            raise Suspended
        driving = self.services.driving
        if driving is None or driving[0] is not self or _get_running_loop() is not self._loop:
            self.check()
        entry = operation.entry = self._entry
        self._entry = entry + 1
        line = self._past.get(entry)
        if line is not None and (line.kind != operation.kind or line.name != operation.name):
            self._diverge(entry, named(line.kind, line.name), operation.label)
        for wait in self._armed.get(str(entry), ()) if self._armed else ():
            attempt = wait.place.partition("+")[2]
            if not operation.stands(wait.kind, wait.name, attempt):
                self._diverge(entry, f"a wait for {named(wait.kind, wait.name)}", operation.label)
            if isinstance(operation, Run):
                operation.attempt, operation.waiting = int(attempt), wait.fired_at is None
        operation.session = self
        self._open[entry] = operation
        return operation

    def catch_up(self, operation: Operation) -> bool:
        """In a replay with one branch, when it awaits what the next line says: nobody else could go on meanwhile, so it
        learns it without being suspended. It makes no difference but to the cost."""
        road = self._road
        if not road or len(self._branches) > 1:
            return False
        line = road[0]
        if line.entry != operation.entry or line.kind in _MARKS:
            return False
        road.popleft()
        self.services.driving = (self,)  # it came further: a watchdog must not take a long road for one piece of code
        del self._open[line.entry]
        operation.learn(line.value, line.error)
        return True

    def check(self) -> None:
        """Only the function's own code may ask: entries that come from elsewhere would not replay."""
        driving = self.services.driving
        if not ((driving is not None and driving[0] is self) or self._ready.leaving) or not self._on_our_loop():
            raise InvalidOutcome(
                f"ctx was used outside of workflow {self.program.name}: in a function it runs, in another thread, or "
                "after it ended or was suspended. Only the workflow's own code may use it: give values to ctx.run, and "
                "let the function return what the workflow is to go on with."
            )

    def _on_our_loop(self) -> bool:
        return _get_running_loop() is self._loop

    async def at_once(self, operation: Operation, fact: Callable[[], str]) -> str:
        """For what is known when it is asked: the line's value, or a new line."""
        self.enter(operation)
        if operation.entry < 0:
            await operation
        del self._open[operation.entry]
        line = self._past.get(operation.entry)
        if line is not None and line.value is not None:
            return line.value
        return self._write(operation.kind, operation.entry, operation.name, (fact(), None)).value or "null"

    def listen_for(self, answer: AwakeableAnswer, entry: int) -> None:
        """An awakeable is open from its creation on, awaited or not."""
        answer.entry = entry
        answer.session = self
        self._open[entry] = answer

    def until(self, entry: int, life: int | None) -> int | None:
        """When an awakeable of this entry times out, as far as we know."""
        for wait in self.claim.waits:
            if wait.place == str(entry):
                return wait.deadline
        return None if life is None else self.services.micros() + life

    def branch(self, coroutine: Coroutine[Any, Any, Any]) -> Branch:
        """The same coroutine twice is one branch: nobody could drive it twice."""
        self.check()
        branch = self._branches.get(coroutine)
        if branch is None:
            branch = self._branches[coroutine] = Branch(coroutine, self._ready)
        return branch

    def forget(self, operation: Operation) -> None:
        """Withdrawn."""
        self._open.pop(operation.entry, None)
        self._withdrawn.add(operation.entry)
        task = self._tasks.pop(operation.entry, None)
        if task is not None:
            task.cancel()

    def _diverge(self, entry: int, expected: str, found: str) -> NoReturn:
        name = self.program.name
        self._diverged = self._diverged or NonDeterministic(
            f"{name} took another road than its journal: entry {entry} was {expected}, the code now says {found}. "
            "Mend the code so that it does again what it did, then retry the instance; or give the changed code "
            f"a new version=.",
            entry=entry, expected=expected, found=found,
        )  # fmt: skip
        raise Suspended

    # -- driving ----------------------------------------------------------------------------------

    def _drive(self) -> None:
        """Run the code until it can do nothing more."""
        ready = self._ready
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, self._let_go)
        self.services.driving = (self,)  # another one each time: the watchdog knows it by that
        try:
            while ready and self._diverged is None:
                ready.popleft().step()
        except Suspended:
            if self._diverged is None:
                raise
        finally:
            self.services.driving = None
            sys.set_asyncgen_hooks(*hooks)

    def _let_go(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Of an async generator nobody went on with. The loop would close it in a task, whenever: it could ask then
        for something that no replay asks for at the same entry."""
        if self._on_our_loop():
            self._ready.leave(lambda: generator.aclose().__await__().__next__())

    def _replay(self) -> None:
        context = self.program.context(self)
        code = self.program.begin(context, self.claim.state)
        self._root = self._branches[code] = Branch(code, self._ready)
        self._road.extend([line for line in self._lines if line.kind not in _AT_ONCE])
        self._drive()
        while self._road:
            if self._diverged is not None:
                return
            line = self._road.popleft()
            if line.kind == "retried":
                self._entry = line.entry
            if line.kind in _MARKS:
                continue
            operation = self._open.pop(line.entry, None)
            if operation is None:
                if line.entry in self._withdrawn:
                    continue
                self._lost(line)
                return
            operation.learn(line.value, line.error)
            self._drive()
        if self._base is not None:
            self._entry = max(self._entry, self._base)
            self._undo()
            # What was asked for on the road that failed, and is not asked for now, nobody wants any more.
            self._withdrawn.update({int(wait.place.partition("+")[0]) for wait in self.claim.waits} - self._open.keys())
        over = self._root.done and self._diverged is None
        unread = [line for line in self._past.values() if line.entry >= self._entry]
        if over and unread:
            self._lost(min(unread, key=lambda line: line.entry))

    def _undo(self) -> None:
        """What was asked for before the failure and was done all the same is not done again; an answer stays one.
        The rest has not happened: its signals are there again."""
        for line in self._undone:
            operation = self._open.get(line.entry)
            kept = operation is not None and (line.error is None or line.kind == "answer")
            if operation is not None and kept and line.kind not in _MARKS and line.kind not in _AT_ONCE:
                self._learn(operation, (line.value, line.error), line.kind)
            elif line.kind == "wait" and line.value is not None:
                self._restore.append(json.load(line.value)["id"])

    def _lost(self, line: _Line) -> None:
        """A line that nobody asked for."""
        assert self._root is not None
        waits = ", ".join(operation.label for operation in self._open.values())
        found = "the end" if self._root.done else f"it waits for {waits}" if waits else "nothing"
        try:
            self._diverge(line.entry, named(line.kind, line.name), found)
        except Suspended:
            return

    def _learn(self, operation: Operation, fact: tuple[str | None, str | None], kind: str | None = None) -> None:
        """A new line that the code may know before it is committed: the inbox would say the same again."""
        del self._open[operation.entry]
        line = self._write(kind or operation.kind, operation.entry, operation.name, fact)
        operation.learn(line.value, line.error)
        self._drive()

    # -- the inbox --------------------------------------------------------------------------------

    def _take_answers(self) -> None:
        """Give what is in the inbox to those who asked, one at a time. A signal wins over its deadline (S6)."""
        if not self.claim.inbox:
            self._mail = []
            return
        self._mail = sorted(self.claim.inbox, key=lambda row: (row.kind == "timer", row.seq))
        while self._mail and self._live():
            names = {name for o in self._open.values() if isinstance(o, WaitForSignal) for name in o.names}
            for n, row in enumerate(self._mail):  # thousands may be there that nobody asks for: a look costs little
                directed = row.wait_id is not None or row.kind == "awakeable"
                if (directed or (row.kind, row.name) in names) and self._give(row):
                    del self._mail[n]
                    break
            else:
                return

    def _give(self, row: InboxRow) -> bool:
        operation = self._asker(row)
        if operation is None:
            return False
        self._consume.append(row.seq)
        match operation:
            case Run():
                operation.waiting = False  # the time for its next attempt has come
            case WaitForSignal():
                self._learn(operation, operation.fact(row))
            case AwakeableAnswer():
                self._learn(operation, operation.fact(row), "answer")
            case ChildCall():
                self._learn(operation, operation.fact(*self._child(operation)))
            case _:
                self._learn(operation, ("null", None))
        return True

    def _asker(self, row: InboxRow) -> Operation | None:
        if row.wait_id is not None:
            for wait in self.claim.waits:
                if wait.id == row.wait_id:
                    operation = self._open.get(int(wait.place.partition("+")[0]))
                    return operation if operation is not None and operation.place == wait.place else None
            return None
        for operation in self._open.values():
            match operation:
                case WaitForSignal() if (row.kind, row.name) in operation.names:
                    return operation
                case AwakeableAnswer() if row.kind == "awakeable" and row.name == operation.id:
                    return operation
        return None

    def _child(self, call: ChildCall) -> tuple[str, str, str | None, str | None]:
        for wait in self.claim.waits:
            if wait.place == call.place:
                for wait_id, id, _, status, _, result, error in self.claim.children:
                    if wait_id == wait.id:
                        return id, status, result, error
        return call.child.id, "failed", None, "it is gone: retention removed it before it was looked at"

    # -- the turn ---------------------------------------------------------------------------------

    def _live(self) -> bool:
        assert self._root is not None
        return not self._root.done and self._diverged is None and self.blocked is None

    async def turn(self) -> Decision:
        """From one commit to what is to be committed next."""
        if self._root is None:
            self._replay()
        else:
            self._committed()
        self._take_answers()
        while self._live():
            run = self._lone_run()
            if run is not None:
                self._finished(await self._execute(run))
                if self._held:
                    return self._decide("next", _HOLD if self._holds() else _ON, [])
                continue
            self._do()
            if self._held:
                return self._proceed()
            runs = [o for o in self._open.values() if isinstance(o, Run) and not o.waiting and not o.begun]
            if not runs and not self._tasks:
                if not self._open:
                    self._root.keep(error=_idle(self.program.name))  # type: ignore[union-attr]
                    break
                return self._park()
            if self._fresh or self._changes_waits() or self._is_deaf():
                return self._proceed()  # all that these runs may depend on is committed before they begin
            for run in runs:
                run.begun = True
                self._tasks[run.entry] = asyncio.get_running_loop().create_task(self._beside(run))
            if await self._wait():
                return self._proceed(fire_deadlines=True)
        return self._finish()

    def _lone_run(self) -> Run | None:
        """What most functions do most of the time: one function after the other, and nothing else is open."""
        if len(self._open) == 1 and not self._fresh and not self.claim.waits:
            for operation in self._open.values():
                if type(operation) is Run and not operation.begun and not operation.attempt:
                    operation.begun = True
                    return operation
        return None

    def _committed(self) -> None:
        """The last decision is in the store, and so are its lines."""
        held, self._held = self._held, []
        for entry, operation in held:
            if operation.withdrawn:
                continue
            del self._open[entry.entry]
            operation.learn(entry.value, entry.error)
            self._drive()

    def _do(self) -> None:
        """Effects: their lines are completed by the turn that does them."""
        for operation in self._open.values():
            if isinstance(operation, Do):
                line = self._write(operation.kind, operation.entry, operation.name)
                line.effect = operation.effect
                self._held.append((line, operation))

    async def _execute(self, run: Run) -> _Ran:
        """Run a function of the user's; what came of it, as text."""
        try:
            if _is_async(run.function):
                result = await run.function(*run.args)
            else:
                result = await self.services.call(run.function, *run.args)
                if asyncio.iscoroutine(result) or isinstance(result, asyncio.Future):
                    result = await result
            if result is None:
                return run, "null", None
            return run, json.dump(result, limit=self.services.max_payload, what=f"result of {run.name}"), None
        except (Exception, asyncio.CancelledError) as error:
            _raise_if_cancelled(error)
            kind, message = type(error).__name__, error_text(error).partition(": ")[2]
            text = f"{run.name} raised {kind}: {message}" if message else f"{run.name} raised {kind}"
            return run, None, encode_error(RunFailed(text, type=kind, message=message))

    async def _beside(self, run: Run) -> _Ran | BaseException:
        """The same in a task of its own, whose exit would end the loop before anybody knew whose it was (M5)."""
        try:
            return await self._execute(run)
        except (KeyboardInterrupt, SystemExit) as end:
            return end

    def _finished(self, ran: _Ran) -> None:
        run, value, error = ran
        if error is not None and run.attempt < run.retries:
            run.attempt += 1
            run.waiting, run.begun = True, False
        else:
            self._held.append((self._write("run", run.entry, run.name, (value, error)), run))

    async def _wait(self) -> bool:
        """Until a function has run, mail has come or a deadline has. True when the store has to be looked at."""
        assert self._tasks
        listener = self._listener
        deadlines = [wait.deadline for wait in self.claim.waits if wait.deadline is not None and wait.fired_at is None]
        patience = None
        if deadlines and listener is not None:
            patience = max(0.0, (min(deadlines) - self.services.micros()) / 1_000_000)
        tasks: set[asyncio.Task[Any]] = set(self._tasks.values())
        bell = None
        if listener is not None and not listener.is_notified():
            bell = asyncio.get_running_loop().create_task(listener.wait())
            tasks.add(bell)
        try:
            if listener is None or not listener.is_notified():
                await asyncio.wait(tasks, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if bell is not None:
                bell.cancel()
        done = [entry for entry, task in self._tasks.items() if task.done()]
        for entry in done:
            ran = self._tasks.pop(entry).result()
            if isinstance(ran, BaseException):
                raise ran
            self._finished(ran)
        return not done

    # -- decisions --------------------------------------------------------------------------------

    def _is_deaf(self) -> bool:
        """It waits for something beside what it runs, and was claimed with those waits: nobody would tell it."""
        return self._listener is None and any(
            operation.waits and not (isinstance(operation, Run) and not operation.waiting)
            for operation in self._open.values()
        )

    def _changes_waits(self) -> bool:
        if not self.claim.waits:
            return any(operation.waits for operation in self._open.values())
        wanted = {operation.place for operation in self._open.values() if operation.waits}
        return wanted != {wait.place for wait in self.claim.waits}

    def _waits(self) -> tuple[tuple[Arm, ...], tuple[str, ...], tuple[NewAwakeable, ...], list[Effect]]:
        """What to arm, what to disarm, what to create, and what goes with those nobody wants any more."""
        armed = {wait.place for wait in self.claim.waits}
        wanted = {operation.place: operation for operation in self._open.values() if operation.waits}
        arms: list[Arm] = []
        new: list[NewAwakeable] = []
        for place, operation in wanted.items():
            if place not in armed:
                arms += operation.arms()
                if isinstance(operation, AwakeableAnswer) and operation.new is not None:
                    new.append(operation.new)
        gone = [wait for wait in self.claim.waits if wait.place not in wanted]
        effects: list[Effect] = []
        for wait in gone:
            if wait.fired_at is None and int(wait.place.partition("+")[0]) in self._withdrawn:
                if wait.kind == "awakeable":
                    effects.append(Settle(wait.name or "", "CANCELLED"))
                elif wait.kind == "children":
                    ids = [child[1] for child in self.claim.children if child[0] == wait.id]
                    effects += [CancelChild(id, "its parent no longer waits for it") for id in ids]
        names = {wait.name if wait.kind == "awakeable" else wait.id for wait in gone}
        self._consume += [r.seq for r in self._mail if (r.name if r.kind == "awakeable" else r.wait_id) in names]
        return tuple(arms), tuple(wait.id for wait in gone), tuple(new), effects

    def _journal(self) -> list[Entry] | None:
        fresh, self._fresh = self._fresh, []
        self._lines += fresh
        return fresh or None

    def _decide(self, label: str, move: Any, effects: list[Effect], state: str | None = None) -> Decision:
        consume, self._consume = tuple(self._consume), []
        cut, self._cut = self._cut, None
        step = self.claim.step
        if label == "next" and self._fresh:  # on its way: what it has just come to know
            step = named(self._fresh[-1].kind, self._fresh[-1].name)
        elif self._open:
            step = next(reversed(self._open.values())).label
        if len(step) > _STEP // 4:
            step = step.encode()[:_STEP].decode(errors="ignore")
        journal = self._journal()
        if cut is not None and journal is None:
            journal = []
        text = self.claim.state if state is None else state
        restore, self._restore = tuple(self._restore), []
        return Decision(label, step, text, move, consume, (), effects, None, journal, cut, restore)

    def _proceed(self, *, fire_deadlines: bool = False) -> Decision:
        arms, disarm, new, effects = self._waits()
        if self._listener is None and any(operation.waits for operation in self._open.values()):
            self._listener = self.services.listen(self.claim.id)  # before the commit: what comes after it is heard
        if self._listener is not None:
            self._listener.reset({row.seq for row in self._mail})
        move = Proceed(arm=arms, disarm=disarm, awakeables=new, keep_slot=self._holds(), fire_deadlines=fire_deadlines)
        return self._decide("next", move, effects)

    def _holds(self) -> bool:
        """It makes no room for others while something of it runs, nor before it has gone as far as it had to be
        replayed: who is sent away replays again, and a long journal would cost more each time than it grows."""
        return bool(self._tasks) or len(self._lines) < 2 * self._replayed

    def _park(self) -> Decision:
        arms, disarm, new, effects = self._waits()
        label = "spawn" if any(arm.kind == "children" for arm in arms) else "await"
        decision = self._decide(label, Park(arms, disarm, new), effects)
        self.close()
        return decision

    def _finish(self) -> Decision:
        assert self._root is not None
        self.close()
        if self._diverged is not None:
            return Decision(
                "stop", self.claim.step, self.claim.state, Finish("failed", error=error_text(self._diverged))
            )
        if self.blocked is not None:
            return self._fail(HarkError(self.blocked))
        try:
            value = self._root.outcome()
            if isinstance(value, ContinueAsNew):
                return self._anew(value.input)
            result = json.dump(value, limit=self.services.max_payload, what=f"result of {self.program.name}")
        except Exception as error:
            return self._fail(error)
        self._do()
        effects = self._waits()[3] if self._withdrawn else []
        self._consume = []  # what is done never runs again: its inbox goes with it (S4), unread
        return self._decide("done", Finish("done", result=result), effects)

    def _fail(self, error: Exception) -> Decision:
        """A retry does again what failed: the line that says so goes first, and all that came after it."""
        cause = _stems_from(error)
        if cause is not None:
            for line in self._lines + self._fresh:
                if line.error is not None and line.entry == cause:
                    self._write("failed", self._entry, None, (str(line.seq), None))
                    break
        return self._decide("stop", Finish("failed", error=error_text(error)), [])

    def _anew(self, input: Any) -> Decision:
        codec = self.program.codec
        state = codec.dump(codec.build(input, limit=self.services.max_payload), self.services.max_payload)
        self._fresh.clear()
        asked = [operation.effect for operation in self._open.values() if isinstance(operation, Do)]
        self._open.clear()
        _, gone, _, effects = self._waits()
        decision = self._decide("next", Proceed(disarm=gone, continue_as_new=True), effects + asked, state)
        decision.journal, decision.cut = [Entry(0, self._entry, "anew")], None
        return decision

    def close(self) -> None:
        """Let go of everything: what runs is told to stop, and the code can ask for nothing more."""
        if self._closed:
            return
        self._closed = True
        self._road.clear()
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        if self._listener is not None:
            self._listener.close()
        for branch in self._branches.values():
            branch.close()


def _stems_from(error: BaseException | None) -> int | None:
    """The entry an error came from, however often it was raised from others."""
    for _ in range(100):
        if error is None:
            return None
        if isinstance(error, RunFailed | CallFailed | SignalTimeout) and hasattr(error, "entry"):
            return int(error.entry)
        error = error.__cause__ or error.__context__
    return None


def _idle(name: str) -> InvalidOutcome:
    return InvalidOutcome(
        f"workflow {name} awaits something that can never come: it has asked for nothing that is still open. "
        "Look for branches that await each other."
    )


def _is_async(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)  # the answer for nearly all of them, at a tenth of the cost
    return bool(code.co_flags & CO_COROUTINE) if code is not None else asyncio.iscoroutinefunction(function)


def _raise_if_cancelled(error: BaseException) -> None:
    """Who is told to stop gets no say: nobody waits for what comes of it (X8)."""
    if is_cancelled():
        raise asyncio.CancelledError from error
