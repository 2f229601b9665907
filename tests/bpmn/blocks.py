"""Block-structured processes for tests, and how they are generated.

block_xml.py writes them as BPMN, block_model.py says what they do. Choices depend on the boolean variables VARIABLES,
which answers set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Undoable:
    """A user task that another one compensates."""

    name: str

    @property
    def handler(self) -> str:
        return f"{self.name}_undo"


@dataclass(frozen=True)
class Undo:
    """Compensates all that has completed in the scope around it."""

    name: str


Leaf = Task | Many | Raise | Undoable | Undo
Block = Leaf | Sequence | Choice | Parallel | Inclusive | Loop | Scope | Repeat


@st.composite
def blocks(draw: st.DrawFn, tasks: int = 7) -> Block:
    """A block with at most so many tasks, each with its own name.

    Around all is a sub-process that catches errors. Behind one of the blocks, what has completed is compensated.
    """
    names = iter(f"t{number}" for number in range(100))
    undone = draw(st.sampled_from(("t0", "t0", "t1", "t2", "t3", "none")))
    return Scope("all", _block(draw, names, draw(st.integers(2, tasks)), undone), draw(st.booleans()), True)


_KINDS = ("sequence", "choice", "parallel", "inclusive", "loop", "scope", "scope", "repeat")


def _block(draw: st.DrawFn, names: Iterator[str], size: int, undone: str) -> Block:
    name = next(names)
    block = _leaf(draw, name) if size <= 1 else _composite(draw, names, name, size, undone)
    return Sequence((block, Undo(f"{name}_back"))) if name == undone else block


def _composite(draw: st.DrawFn, names: Iterator[str], name: str, size: int, undone: str) -> Block:
    kind = draw(st.sampled_from(_KINDS))
    if kind == "loop":
        variable = draw(st.sampled_from(VARIABLES))
        return Loop(name, variable, Sequence((Task(f"{name}_first"), _block(draw, names, size - 1, undone))))
    if kind == "scope":
        return Scope(name, _block(draw, names, size - 1, undone), draw(st.booleans()), draw(st.booleans()))
    if kind == "repeat":
        return Repeat(name, _block(draw, names, size - 1, undone), draw(st.integers(0, 2)))
    first = draw(st.integers(1, size - 1))
    parts = [_block(draw, names, first, undone), _block(draw, names, size - first, undone)]
    if draw(st.booleans()):
        parts.append(_block(draw, names, 1, undone))
    if kind == "sequence":
        return Sequence(tuple(parts))
    if kind == "parallel":
        return Parallel(name, tuple(parts))
    branches = tuple((draw(st.sampled_from(VARIABLES)), part) for part in parts[:-1])
    return (Choice if kind == "choice" else Inclusive)(name, branches, parts[-1])


def _leaf(draw: st.DrawFn, name: str) -> Leaf:
    match draw(st.sampled_from(("undoable", "undoable", "undoable", "task", "raise", "many"))):
        case "raise":
            return Raise(name, draw(st.sampled_from(VARIABLES)))
        case "many":
            return Many(name, draw(st.integers(0, 3)))
        case "undoable":
            return Undoable(name)
    return Task(name)
