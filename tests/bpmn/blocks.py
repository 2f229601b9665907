"""Block-structured processes for tests: how they are generated, how they look as XML, and what they do.

`Model` says what a process does, over the blocks and not over tokens: which tasks are open, and which signals it waits
for. It shares nothing with the interpreter. Choices depend on the boolean variables VARIABLES, which answers set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape

from hypothesis import strategies as st

VARIABLES = ("p", "q", "r")


@dataclass(frozen=True)
class Task:
    """A user task."""

    name: str


@dataclass(frozen=True)
class Sequence:
    """Blocks one after the other; none of them is a task that does nothing."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Choice:
    """Takes the first block whose variable is true, or the last block."""

    name: str
    branches: tuple[tuple[str, Block], ...]
    otherwise: Block


@dataclass(frozen=True)
class Parallel:
    """Runs all blocks, and goes on when all have ended."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Inclusive:
    """Runs every block whose variable is true, or the last block, and goes on when all of these have ended."""

    name: str
    branches: tuple[tuple[str, Block], ...]
    otherwise: Block


@dataclass(frozen=True)
class Loop:
    """Runs a block again while a variable is true. The block begins with a task, so that it waits."""

    name: str
    variable: str
    body: Block


@dataclass(frozen=True)
class Scope:
    """A sub-process with a signal on its boundary, which leads to a task.

    If it interrupts, that task replaces the sub-process; otherwise it runs beside it and leads nowhere. A scope that
    catches has an error on its boundary too, which leads to a task that replaces the sub-process.
    """

    name: str
    body: Block
    interrupting: bool
    catches: bool = False

    @property
    def signal(self) -> str:
        return f"{self.name}_signal"

    @property
    def handler(self) -> str:
        return f"{self.name}_handler"

    @property
    def rescue(self) -> str:
        return f"{self.name}_rescue"


@dataclass(frozen=True)
class Repeat:
    """A sequential multi-instance sub-process."""

    name: str
    body: Block
    times: int


@dataclass(frozen=True)
class Many:
    """A parallel multi-instance user task."""

    name: str
    times: int


@dataclass(frozen=True)
class Raise:
    """A user task, after which an error is thrown if a variable is true."""

    name: str
    variable: str


Block = Task | Sequence | Choice | Parallel | Inclusive | Loop | Scope | Repeat | Many | Raise


# -- Generating ------------------------------------------------------------------------------------


@st.composite
def blocks(draw: st.DrawFn, tasks: int = 7) -> Block:
    """A block with at most so many tasks, each with its own name. Around all is a sub-process that catches errors."""
    names = iter(f"t{number}" for number in range(100))
    return Scope("all", _block(draw, names, draw(st.integers(1, tasks))), draw(st.booleans()), True)


_KINDS = ("sequence", "choice", "parallel", "inclusive", "loop", "scope", "scope", "repeat")


def _block(draw: st.DrawFn, names: Iterator[str], size: int) -> Block:
    name = next(names)
    if size <= 1:
        kind = draw(st.sampled_from(("task", "task", "raise", "many")))
        if kind == "raise":
            return Raise(name, draw(st.sampled_from(VARIABLES)))
        return Many(name, draw(st.integers(0, 3))) if kind == "many" else Task(name)
    kind = draw(st.sampled_from(_KINDS))
    if kind == "loop":
        variable = draw(st.sampled_from(VARIABLES))
        return Loop(name, variable, Sequence((Task(f"{name}_first"), _block(draw, names, size - 1))))
    if kind == "scope":
        return Scope(name, _block(draw, names, size - 1), draw(st.booleans()), draw(st.booleans()))
    if kind == "repeat":
        return Repeat(name, _block(draw, names, size - 1), draw(st.integers(0, 2)))
    first = draw(st.integers(1, size - 1))
    parts = [_block(draw, names, first), _block(draw, names, size - first)]
    if draw(st.booleans()):
        parts.append(_block(draw, names, 1))
    if kind == "sequence":
        return Sequence(tuple(parts))
    if kind == "parallel":
        return Parallel(name, tuple(parts))
    branches = tuple((draw(st.sampled_from(VARIABLES)), part) for part in parts[:-1])
    return (Choice if kind == "choice" else Inclusive)(name, branches, parts[-1])


# -- As XML ----------------------------------------------------------------------------------------


def as_bpmn(process: str, block: Block) -> str:
    """The process as a BPMN file."""
    writer = _Writer()
    writer.scope("root", block)
    signals = "".join(f'<signal id="{name}" name="{name}"/>\n' for name in writer.signals)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<definitions xmlns="http://www.omg.org/spec/BPMN/20100524/MODEL" targetNamespace="urn:hark:tests">\n'
        f'{signals}<error id="oops" errorCode="oops"/>\n<process id="{process}" isExecutable="true">\n'
        + "\n".join(writer.lines)
        + "\n</process>\n</definitions>\n"
    )


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.signals: list[str] = []

    def scope(self, name: str, block: Block) -> None:
        self.lines.append(f'<startEvent id="{name}_start"/>')
        first, last = self.block(block)
        self.lines.append(f'<endEvent id="{name}_end"/>')
        self.flow(f"{name}_start", first)
        self.flow(last, f"{name}_end")

    def flow(self, source: str, target: str, variable: str | None = None) -> str:
        id = f"f{len(self.lines)}"
        inside = f"<conditionExpression>{escape('${' + variable + '}')}</conditionExpression>" if variable else ""
        self.lines.append(f'<sequenceFlow id="{id}" sourceRef="{source}" targetRef="{target}">{inside}</sequenceFlow>')
        return id

    def block(self, block: Block) -> tuple[str, str]:
        """Write a block; the ids of its first and its last node."""
        match block:
            case Task(name):
                self.lines.append(f'<userTask id="{name}"/>')
                return name, name
            case Sequence(blocks):
                ends = [self.block(one) for one in blocks]
                for (_, before), (after, _) in pairwise(ends):
                    self.flow(before, after)
                return ends[0][0], ends[-1][1]
            case Parallel(name, blocks):
                self._split("parallelGateway", name, [(None, one) for one in blocks])
            case Choice(name, branches, otherwise):
                self._split("exclusiveGateway", name, [*branches, (None, otherwise)])
            case Inclusive(name, branches, otherwise):
                self._split("inclusiveGateway", name, [*branches, (None, otherwise)])
            case Loop(name, variable, body):
                first, last = self.block(body)
                at = len(self.lines)
                self.flow(f"{name}_split", f"{name}_join", variable)
                self.lines.insert(at, f'<exclusiveGateway id="{name}_join"/>')
                self.flow(f"{name}_join", first)
                self.flow(last, f"{name}_split")
                leave = f"{name}_leave"
                self.lines.append(f'<exclusiveGateway id="{name}_split" default="{leave}"/>')
                self.lines.append(f'<task id="{name}_after"/>')
                self.lines.append(f'<sequenceFlow id="{leave}" sourceRef="{name}_split" targetRef="{name}_after"/>')
                return f"{name}_join", f"{name}_after"
            case Many(name, times):
                self.lines.append(f'<userTask id="{name}">{_instances(times)}</userTask>')
                return name, name
            case Raise(name, variable):
                self.flow(name, f"{name}_split")
                self.flow(f"{name}_split", f"{name}_oops", variable)
                leave = self.flow(f"{name}_split", f"{name}_after")
                self.lines += [
                    f'<userTask id="{name}"/><task id="{name}_after"/>',
                    f'<exclusiveGateway id="{name}_split" default="{leave}"/>',
                    f'<endEvent id="{name}_oops"><errorEventDefinition errorRef="oops"/></endEvent>',
                ]
                return name, f"{name}_after"
            case Repeat(name, body, times):
                self.lines.append(f'<subProcess id="{name}">{_instances(times, sequential=True)}')
                self.scope(name, body)
                self.lines.append("</subProcess>")
                return name, name
            case Scope(name, body, interrupting, catches):
                self.lines.append(f'<subProcess id="{name}">')
                self.scope(name, body)
                cancel = "true" if interrupting else "false"
                self.signals.append(block.signal)
                self.lines += [
                    "</subProcess>",
                    f'<boundaryEvent id="{name}_event" attachedToRef="{name}" cancelActivity="{cancel}">',
                    f'<signalEventDefinition signalRef="{block.signal}"/></boundaryEvent>',
                    f'<userTask id="{block.handler}"/>',
                    f'<exclusiveGateway id="{name}_join"/>',
                ]
                self.flow(f"{name}_event", block.handler)
                self.flow(name, f"{name}_join")
                if interrupting:
                    self.flow(block.handler, f"{name}_join")
                if catches:
                    self.lines += [
                        f'<boundaryEvent id="{name}_caught" attachedToRef="{name}">',
                        "<errorEventDefinition/></boundaryEvent>",
                        f'<userTask id="{block.rescue}"/>',
                    ]
                    self.flow(f"{name}_caught", block.rescue)
                    self.flow(block.rescue, f"{name}_join")
                return name, f"{name}_join"
        return f"{name}_split", f"{name}_join"

    def _split(self, tag: str, name: str, branches: list[tuple[str | None, Block]]) -> None:
        conditional = any(variable for variable, _ in branches)
        flows: list[str] = []
        for variable, block in branches:
            first, last = self.block(block)
            flows.append(self.flow(f"{name}_split", first, variable))
            self.flow(last, f"{name}_join")
        default = f' default="{flows[-1]}"' if conditional else ""
        self.lines.append(f'<{tag} id="{name}_split"{default}/>')
        self.lines.append(f'<{tag} id="{name}_join"/>')


def _instances(times: int, *, sequential: bool = False) -> str:
    flag = "true" if sequential else "false"
    return (
        f'<multiInstanceLoopCharacteristics isSequential="{flag}"><loopCardinality>{times}</loopCardinality>'
        "</multiInstanceLoopCharacteristics>"
    )


# -- What it does ----------------------------------------------------------------------------------


@dataclass
class _Run:
    """A block that runs: a task that is open, or a block with the runs inside it."""

    block: Block
    inside: list[_Run] = field(default_factory=list)
    position: int = 0
    handlers: list[str] = field(default_factory=list)
    """Of a scope: the handlers of non-interrupting boundary events in it that run."""


class _Raised(Exception):
    """An error on its way to the innermost scope that catches it."""


class Model:
    """A process that runs."""

    def __init__(self, block: Block, variables: dict[str, bool]) -> None:
        self.variables = dict(variables)
        self._root = Scope("root", block, True)
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
            case Task() | Raise():
                return _Run(block)
            case Many(name, times):
                return self._around(block, [_Run(Task(name)) for _ in range(times)])
            case Repeat(_, body, times):
                return self._around(block, [self._enter(body)]) if times else None
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
            case Loop(_, _, body) | Scope(_, body):
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
            case Repeat(_, body, times):
                return self._again(run, body, times)
        return None

    def _again(self, run: _Run, body: Block, times: int) -> _Run | None:
        """The next instance of a repetition that does not end at once."""
        while (position := run.position + 1) < times:
            run.position = position
            inside = self._enter(body)
            if inside:
                run.inside = [inside]
                return run
        return None

    def _open(self, run: _Run) -> list[str]:
        own = [run.block.name] if isinstance(run.block, Task | Raise) else list(run.handlers)
        return own + [name for one in run.inside for name in self._open(one)]

    def _signals(self, run: _Run) -> list[str]:
        own = [run.block.signal] if isinstance(run.block, Scope) and run.block is not self._root else []
        return own + [name for one in run.inside for name in self._signals(one)]

    def _completed(self, run: _Run, task: str) -> _Run | None:
        if isinstance(run.block, Task):
            return None
        if isinstance(run.block, Raise):
            if self.variables[run.block.variable]:
                raise _Raised
            return None
        if task in run.handlers:
            run.handlers.remove(task)
            return self._continue(run)
        for position, one in enumerate(run.inside):
            if task in self._open(one):
                try:
                    left = self._completed(one, task)
                except _Raised:
                    if not (isinstance(one.block, Scope) and one.block.catches):
                        raise
                    left = _Run(Task(one.block.rescue))
                run.inside[position : position + 1] = [left] if left else []
                return self._continue(run)
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
