"""Model: what a block-structured process does, over its blocks and not over tokens.

It says which tasks are open, and which signals the process waits for. It shares nothing with the interpreter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.bpmn.blocks import (
    Block,
    Choice,
    Inclusive,
    Loop,
    Many,
    Parallel,
    Raise,
    Repeat,
    Scope,
    Sequence,
    Task,
    Undo,
    Undoable,
)


@dataclass
class _Run:
    """A block that runs: a task that is open, or a block with the runs inside it."""

    block: Block
    inside: list[_Run] = field(default_factory=list)
    position: int = 0
    handlers: list[str] = field(default_factory=list)
    """Of a scope: the handlers of non-interrupting boundary events in it that run."""
    records: list[Any] = field(default_factory=list)
    """Of a scope, and of an instance of a repetition: what has completed in it, in order, as the names of handlers and
    the records of scopes. Of a compensation: the handlers that are left."""
    kept: list[Any] = field(default_factory=list)
    """Of a repetition: the records of the instances that have ended."""


class _Raised(Exception):
    """An error on its way to the innermost scope that catches it."""


class Model:
    """A process that runs."""

    def __init__(self, block: Block, variables: dict[str, bool]) -> None:
        self.variables = dict(variables)
        self._root = Scope("root", block, True)
        self._scopes = [_Run(self._root)]  # the scopes around what is looked at
        self._run = self._enter(self._root)

    @property
    def ended(self) -> bool:
        return self._run is None

    def open(self) -> list[str]:
        """The names of all open tasks, sorted."""
        return sorted(self._open(self._run)) if self._run else []

    def signals(self) -> list[str]:
        """The names of the signals that it waits for, sorted."""
        return sorted(self._signals(self._run)) if self._run else []

    def complete(self, task: str, answer: dict[str, bool]) -> None:
        """A task is completed. One that is not open any more is ignored."""
        if self._run is None or task not in self._open(self._run):
            return
        self.variables |= answer
        self._run = self._completed(self._run, task)

    def fire(self, signal: str) -> None:
        """A signal comes. Without a scope that waits for it, nothing happens."""
        if self._run is not None:
            self._run = self._fired(self._run, signal)

    # A run that has ended is None.

    def _enter(self, block: Block) -> _Run | None:
        match block:
            case Task() | Raise() | Undoable():
                return _Run(block)
            case Undo():
                records, self._scopes[-1].records = _flat(self._scopes[-1].records), []
                return _Run(block, records=records) if records else None
            case Many(name, times):
                return self._around(block, [_Run(Task(name)) for _ in range(times)])
            case Repeat(_, body, times):
                return self._again(_Run(block), body, times)
            case Scope(_, body):
                run = _Run(block)
                self._scopes.append(run)
                inside = self._enter(body)
                self._scopes.pop()
                run.inside = [inside] if inside else []
                return self._continue(run)
            case Sequence():
                return self._next(_Run(block))
            case Choice(_, branches, otherwise):
                taken = next((one for variable, one in branches if self.variables[variable]), otherwise)
                return self._around(block, [self._enter(taken)])
            case Parallel(_, blocks):
                return self._around(block, [self._enter(one) for one in blocks])
            case Inclusive(_, branches, otherwise):
                some = [one for variable, one in branches if self.variables[variable]] or [otherwise]
                return self._around(block, [self._enter(one) for one in some])
            case Loop(_, _, body):
                return self._around(block, [self._enter(body)])

    def _next(self, run: _Run) -> _Run | None:
        """The next block of a sequence that does not end at once."""
        assert isinstance(run.block, Sequence)
        while run.position < len(run.block.blocks):
            inside = self._enter(run.block.blocks[run.position])
            run.position += 1
            if inside:
                run.inside = [inside]
                return run
        return None

    def _around(self, block: Block, inside: list[_Run | None]) -> _Run | None:
        left = [one for one in inside if one]
        return _Run(block, left) if left else None

    def _continue(self, run: _Run) -> _Run | None:
        """What a run becomes after something inside it has changed."""
        if run.inside or run.handlers:
            return run
        match run.block:
            case Sequence():
                return self._next(run)
            case Loop(_, variable, _) if self.variables[variable]:
                return self._enter(run.block)
            case Scope():
                self._keep(run.records)
            case Repeat(_, body, times):
                self._end_instance(run)
                return self._again(run, body, times)
        return None

    def _keep(self, records: list[Any]) -> None:
        if records:
            self._scopes[-1].records.append(records)

    def _again(self, run: _Run, body: Block, times: int) -> _Run | None:
        """Begin the instance of a repetition that is next, and those after it as long as each ends at once."""
        while run.position < times:
            self._scopes.append(run)
            inside = self._enter(body)
            self._scopes.pop()
            if inside:
                run.inside = [inside]
                return run
            self._end_instance(run)
        self._keep(run.kept)
        return None

    def _end_instance(self, run: _Run) -> None:
        run.kept += [run.records] if run.records else []
        run.records, run.position = [], run.position + 1

    def _open(self, run: _Run) -> list[str]:
        own = [run.block.name] if isinstance(run.block, Task | Raise | Undoable) else list(run.handlers)
        if isinstance(run.block, Undo):
            own = run.records[-1:]
        return own + [name for one in run.inside for name in self._open(one)]

    def _signals(self, run: _Run) -> list[str]:
        own = [run.block.signal] if isinstance(run.block, Scope) and run.block is not self._root else []
        return own + [name for one in run.inside for name in self._signals(one)]

    def _completed(self, run: _Run, task: str) -> _Run | None:
        if isinstance(run.block, Task):
            return None
        if isinstance(run.block, Undoable):
            self._scopes[-1].records.append(run.block.handler)
            return None
        if isinstance(run.block, Undo):
            run.records.pop()
            return run if run.records else None
        if isinstance(run.block, Raise):
            if self.variables[run.block.variable]:
                raise _Raised
            return None
        if task in run.handlers:
            run.handlers.remove(task)
            return self._continue(run)
        is_scope = isinstance(run.block, Scope | Repeat)
        if is_scope:
            self._scopes.append(run)
        try:
            self._completed_inside(run, task)
        finally:
            if is_scope:
                self._scopes.pop()
        return self._continue(run)

    def _completed_inside(self, run: _Run, task: str) -> None:
        for position, one in enumerate(run.inside):
            if task in self._open(one):
                try:
                    left = self._completed(one, task)
                except _Raised:
                    if not (isinstance(one.block, Scope) and one.block.catches):
                        raise
                    left = _Run(Task(one.block.rescue))
                run.inside[position : position + 1] = [left] if left else []
                return
        raise AssertionError(task)

    def _fired(self, run: _Run, signal: str, scope: _Run | None = None) -> _Run | None:
        """`scope` is the innermost sub-process around the run: handlers that do not interrupt run in it."""
        inner = run if isinstance(run.block, Scope | Repeat) else scope
        for position, one in enumerate(run.inside):
            if isinstance(one.block, Scope) and one.block.signal == signal:
                if one.block.interrupting:
                    run.inside[position] = _Run(Task(one.block.handler))
                else:
                    assert inner is not None
                    inner.handlers.append(one.block.handler)
                return run
        for one in run.inside:
            self._fired(one, signal, inner)
        return run


def _flat(records: list[Any]) -> list[str]:
    """The handlers of records, oldest first."""
    return [name for one in records for name in (_flat(one) if isinstance(one, list) else [one])]
