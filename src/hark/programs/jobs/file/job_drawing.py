"""Drawings of a job: a tree of text for the terminal, and SVG."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from hark.programs.jobs.job_spec import JobSpec, TaskSpec
from hark.programs.svg import document, escape, number, style

_CHAR = 7.3  # the width of a character in the drawing
_HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _HEAD = 46, 56, 18, 20, 34
_LONGEST = 34  # characters of a line in a box
_STATES = {  # the colors of a box and its edge, by the state of its task
    "pending": ("surface", "line"),
    "running": ("blue-wash", "blue"),
    "suspended": ("amber-wash", "amber"),
    "completed": ("green-wash", "green"),
    "failed": ("red-wash", "red"),
    "skipped": ("well", "faint"),
    "cancelled": ("well", "line"),
}
_RULES = {
    ".paper": {"fill": "paper"},
    "text": {"fill": "ink"},
    ".work": {"fill": "soft"},
    ".arrow": {"stroke": "line"},
    ".head": {"fill": "line"},
    **{f".{state} rect": {"fill": fill, "stroke": stroke} for state, (fill, stroke) in _STATES.items()},
}
_PLAIN = ".hark{font:12px ui-monospace,monospace}.hark .name{font-weight:bold}.hark .title{font-size:15px}"


def what_it_does(task: TaskSpec) -> str:
    """A task's work in a few words: `$ make build`, `handler verify`, `approval`."""
    match task.type:
        case "approval":
            work = "approval"
        case "wait_for_event":
            work = f"event {task.event}"
        case "sleep":
            work = f"sleep {task.seconds} s"
        case "workflow":
            work = f"runs {task.definition}"
        case _:
            if task.handler is not None:
                work = f"handler {task.handler}"
            elif task.agent is not None:
                work = f"agent {task.agent.type}"
            else:
                work = f"$ {_first_line(task.run or '')}"
            if task.type != "task":
                work = f"{task.type}: {work}"
    return f"{work} [gate: {_first_line(task.gate)}]" if task.gate is not None else work


def draw_text(spec: JobSpec, mark: Callable[[TaskSpec], str] = what_it_does) -> list[str]:
    """The tasks as a tree: each below the last of the tasks that it needs, which are named if there are several.

    Args:
        spec: The job.
        mark: What to print after the name of a task.
    """
    lines = [spec.name, *_tree([task for task in spec.tasks if not task.is_finally], mark)]
    last = [task for task in spec.tasks if task.is_finally]
    return [*lines, "finally", *_tree(last, mark)] if last else lines


def _tree(tasks: list[TaskSpec], mark: Callable[[TaskSpec], str]) -> Iterator[str]:
    depth = _layers(tasks)
    below: dict[str | None, list[TaskSpec]] = defaultdict(list)
    for task in tasks:
        parent = max(task.needs, key=lambda need: depth[need]) if task.needs else None
        below[parent].append(task)
    todo = [(task, "", task is below[None][-1]) for task in reversed(below[None])]
    while todo:
        task, indent, is_last = todo.pop()
        needs = f" (needs {', '.join(task.needs)})" if len(task.needs) > 1 else ""
        note = mark(task)
        yield f"{indent}{'└─' if is_last else '├─'} {task.name}{needs}{f'  {note}' if note else ''}"
        inner = below[task.name]
        further = indent + ("   " if is_last else "│  ")
        todo += [(one, further, one is inner[-1]) for one in reversed(inner)]


def _layers(tasks: list[TaskSpec]) -> dict[str, int]:
    """The number of tasks that come one after the other before each task. Without recursion: a chain may be long."""
    needs = {task.name: task.needs for task in tasks}
    found: dict[str, int] = {}
    for start in needs:
        todo = [start]
        while todo:
            name = todo[-1]
            missing = [need for need in needs[name] if need not in found]
            if name in found or not missing:
                todo.pop()
                found.setdefault(name, 1 + max((found[need] for need in needs[name]), default=-1))
            else:
                todo += missing
    return found


def draw_svg(spec: JobSpec, states: Mapping[str, str] | None = None) -> str:
    """The job as SVG: layers from left to right, an arrow for each need.

    Args:
        spec: The job.
        states: The states of the tasks by name, which color them.
    """
    columns = _columns(spec)
    boxes: dict[str, tuple[float, float, float]] = {}  # x, y and width by task
    x = float(_MARGIN)
    tallest = max(len(column) for column in columns)
    for column in columns:
        width = max(max(len(line) for line in _box_lines(task)) for task in column) * _CHAR + 24
        free = (tallest - len(column)) * (_HEIGHT + _GAP_Y) / 2
        for row, task in enumerate(column):
            boxes[task.name] = (x, _MARGIN + _HEAD + free + row * (_HEIGHT + _GAP_Y), width)
        x += width + _GAP_X
    height = _MARGIN * 2 + _HEAD + tallest * (_HEIGHT + _GAP_Y) - _GAP_Y
    total = max(x - _GAP_X + _MARGIN, len(spec.name) * 9 + 2 * _MARGIN)
    body = [
        f'<text class="name title" x="{_MARGIN}" y="{_MARGIN + 12}">{escape(spec.name)}</text>',
        *(_arrow(boxes[need], boxes[task.name]) for task in spec.tasks for need in task.needs),
        *(_box(task, boxes[task.name], (states or {}).get(task.name)) for task in spec.tasks),
    ]
    sheet = style(_RULES, plain=_PLAIN)
    return document(
        body, size=(total, height), title=spec.name, description=_description(spec, states or {}), sheet=sheet
    )


def _description(spec: JobSpec, states: Mapping[str, str]) -> str:
    """The drawing in words: how many tasks there are, and their states."""
    count = Counter(states[task.name] for task in spec.tasks if task.name in states)
    tasks = "1 task" if len(spec.tasks) == 1 else f"{len(spec.tasks)} tasks"
    return f"A job with {tasks}{''.join(f', {number} {state}' for state, number in count.items())}."


def _columns(spec: JobSpec) -> list[list[TaskSpec]]:
    """The tasks by layer, those of `finally` behind all others; in a layer, near what they need."""
    columns: list[list[TaskSpec]] = []
    for is_finally in (False, True):
        tasks = [task for task in spec.tasks if task.is_finally is is_finally]
        depth = _layers(tasks)
        layers: list[list[TaskSpec]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
        for task in tasks:
            layers[depth[task.name]].append(task)
        columns += layers
    place: dict[str, float] = {}
    for column in columns:
        column.sort(key=lambda task: sum(place[need] for need in task.needs) / (len(task.needs) or 1))
        place |= {task.name: row / len(column) for row, task in enumerate(column)}
    return columns


def _box_lines(task: TaskSpec) -> tuple[str, str]:
    return _cut(task.name), _cut(what_it_does(task))


def _box(task: TaskSpec, box: tuple[float, float, float], state: str | None) -> str:
    x, y, width = box
    kind = state if state in _STATES else "pending"
    name, work = (escape(line) for line in _box_lines(task))
    dash = ' stroke-dasharray="5 3"' if task.is_finally or state == "skipped" else ""
    said = f" ({state})" if state is not None else ""
    return (
        f'<g class="task {kind}"><title>{escape(f"{task.name}: {what_it_does(task)}{said}")}</title>'
        f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{_HEIGHT}" rx="7" '
        f'stroke-width="1.5"{dash}/>'
        f'<text class="name" x="{number(x + 12)}" y="{number(y + 19)}">{name}</text>'
        f'<text class="work" x="{number(x + 12)}" y="{number(y + 36)}">{work}</text></g>'
    )


def _arrow(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x1, y1 = start[0] + start[2], start[1] + _HEIGHT / 2
    x2, y2 = end[0], end[1] + _HEIGHT / 2
    bend = max(24.0, (x2 - x1) / 2)
    curve = " ".join(map(number, (x1 + bend, y1, x2 - bend, y2, x2 - 6, y2)))
    return (
        f'<path class="arrow" d="M{number(x1)} {number(y1)}C{curve}" fill="none" stroke-width="1.3"/>'
        f'<path class="head" d="M{number(x2)} {number(y2)}l-8 -4v8Z"/>'
    )


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
