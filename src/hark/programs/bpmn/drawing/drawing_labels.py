"""Draw texts: in figures, beside them, and at wires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hark.programs.bpmn.bpmn_elements import BOUNDARY_EVENTS
from hark.programs.bpmn.drawing.drawing_scene import (
    ACTIVITIES,
    LANES,
    POOLS,
    SUBPROCESSES,
    Box,
    Figure,
    Wire,
    bounds,
    middle,
)
from hark.programs.bpmn.drawing.drawing_text import LABEL_SIZE, LEADING, SIZE, block, width_of, wrapped
from hark.programs.bpmn.layout.layout_sizes import LABEL_WIDTH
from hark.programs.svg import escape, number

_SIZES = (SIZE, 11.0, 10.0)
_MOST_COMPARED = 1500  # boxes that texts without a place avoid; in a larger file they avoid nothing
_GROUNDS = POOLS | LANES | SUBPROCESSES | {"bpmn:group"}
_INSIDE = ACTIVITIES | POOLS | LANES | {"bpmn:textAnnotation"}


class Label(NamedTuple):
    """Lines of text beside something, and their place."""

    lines: list[str]
    box: Box


def labels_of(figures: Sequence[Figure], wires: Sequence[Wire]) -> dict[Figure | Wire, Label]:
    """The texts beside figures and at wires. One that the file gives no place avoids figures and other texts."""
    found: dict[Figure | Wire, Label] = {}
    free: list[Figure | Wire] = []
    things: list[Figure | Wire] = [*figures, *wires]
    for thing in things:
        if not thing.name or thing.tag in _INSIDE:
            continue
        if thing.label is None or thing.label.width <= 0:
            free.append(thing)
            continue
        # The font of the modeler is not ours: a little more room keeps its lines together.
        lines = wrapped(thing.name, max(thing.label.width * 1.1 + 4, 50.0), LABEL_SIZE, 8)
        width, height = block(lines, LABEL_SIZE)
        found[thing] = Label(lines, Box(thing.label.center.x - width / 2, thing.label.y, width, height))
    taken = [label.box for label in found.values()]
    taken += [figure.place for figure in figures if figure.tag not in _GROUNDS]
    if len(taken) + len(free) > _MOST_COMPARED:
        taken = []
    lines_at = _lines_at(wires)
    for thing in free:
        lines = wrapped(thing.name, LABEL_WIDTH, LABEL_SIZE, 6)
        size = block(lines, LABEL_SIZE)
        spots = list(_at_wire(thing, *size) if isinstance(thing, Wire) else _at_figure(thing, *size))
        others = [*taken, *lines_at.get(thing, ())]
        box = next((spot for spot in spots if not any(_overlap(spot, one) for one in others)), spots[0])
        found[thing] = Label(lines, box)
        if taken:
            taken.append(box)
    return found


def _lines_at(wires: Sequence[Wire]) -> dict[Figure | Wire, list[Box]]:
    """The pieces of the wires at each figure."""
    found: dict[Figure | Wire, list[Box]] = {}
    for wire in wires:
        for end, piece in ((wire.source, wire.points[:2]), (wire.target, wire.points[-2:])):
            if isinstance(end, Figure):
                box = bounds([Box(*point, 0, 0) for point in piece]).grown(1)
                found.setdefault(end, []).append(box)
    return found


def _at_figure(figure: Figure, width: float, height: float) -> Iterator[Box]:
    """Places for the text of a figure, the best first: below it, above it, beside what leaves it."""
    box = figure.place
    x, y = box.center
    if figure.tag == "bpmn:group":
        yield Box(x - width / 2, box.y + 6, width, height)
        return
    below, above = box.bottom + 3, box.y - height - 3
    yield Box(x - width / 2, below, width, height)
    if figure.tag not in BOUNDARY_EVENTS:
        yield Box(x - width / 2, above, width, height)
    yield Box(x + 6, below, width, height)
    yield Box(x - 6 - width, below, width, height)
    yield Box(x - 6 - width, above, width, height)
    yield Box(box.right + 4, y - height / 2, width, height)


def _overlap(one: Box, other: Box) -> bool:
    return one.x < other.right and other.x < one.right and one.y < other.bottom and other.y < one.bottom


def _at_wire(wire: Wire, width: float, height: float) -> Iterator[Box]:
    """Places for the text of a wire, the best first: above a level piece, right of an upright one."""
    aside = 16.0 if wire.envelope else 5.0
    pieces = list(pairwise(wire.points))
    order = sorted(range(len(pieces)), key=lambda index: abs(index - (len(pieces) - 1) / 2))
    for share in (0.5, 0.25, 0.75):
        for index in order:
            one, two = pieces[index]
            x, y = one.x + (two.x - one.x) * share, one.y + (two.y - one.y) * share
            if abs(two.y - one.y) < 2 and abs(two.x - one.x) >= width:
                yield Box(x - width / 2, y - height - 3, width, height)
            elif abs(two.x - one.x) < 2 and abs(two.y - one.y) >= height:
                yield Box(x + aside, y - height / 2, width, height)
    spot = middle(wire.points)
    yield Box(spot.x - width / 2, spot.y - height - 3, width, height)


def text_lines(lines: list[str], x: float, y: float, size: float, kind: str = "") -> str:
    """Lines below each other, from the top `y` on. The class `kind` sets the size, if it is not that of all texts."""
    step = size * LEADING
    spans = "".join(
        f'<tspan x="{number(x)}" y="{number(y + step * (index + 0.78))}">{escape(line)}</tspan>'
        for index, line in enumerate(lines)
    )
    name = f' class="{kind}"' if kind else ""
    return f"<text{name}>{spans}</text>" if lines else ""


def draw_label(label: Label) -> str:
    return f'<g class="label">{text_lines(label.lines, label.box.center.x, label.box.y, LABEL_SIZE)}</g>'


def text_inside(figure: Figure, *, has_symbol: bool, has_markers: bool) -> str:
    """The name of an activity, in its box."""
    box = figure.place
    width = box.width - 12
    if figure.tag in SUBPROCESSES and figure.expanded:
        lines = wrapped(figure.name, width - (30 if has_symbol else 0), SIZE, 2)
        return text_lines(lines, box.center.x, box.y + 7, SIZE)
    room = box.height - 8 - (18 if has_markers else 0)
    lines, top, size = [], 0.0, SIZE
    for text, size in _tries(figure.name):
        lines, top = _fitted(text, box, room, size, has_symbol)
        if not lines or not lines[-1].endswith("…"):
            break
    return text_lines(lines, box.center.x, top, size, class_of(size))


def note_inside(figure: Figure) -> str:
    """The text of a note, in its box."""
    box = figure.place
    lines, size = [], SIZE
    for text, size in _tries(figure.name):
        lines = wrapped(text, box.width - 10, size, max(int((box.height - 2) / (size * LEADING)), 1))
        if not lines or not lines[-1].endswith("…"):
            break
    return f'<g class="left">{text_lines(lines, box.x + 7, box.y + 3, size, class_of(size))}</g>'


def class_of(size: float) -> str:
    """The class that sets the size of a text; none for that of all texts."""
    return f"s{size:g}" if size != SIZE else ""


def _tries(text: str) -> Iterator[tuple[str, float]]:
    """The ways to draw a text, the best first: with its line breaks, without them, smaller."""
    if "\n" in text:
        yield text, SIZE
    for size in _SIZES:
        yield " ".join(text.split()), size


def _fitted(text: str, box: Box, room: float, size: float, has_symbol: bool) -> tuple[list[str], float]:
    """The lines of a text in a box, and where they begin: below or beside the symbol in its corner."""
    step = size * LEADING
    lines = wrapped(text, box.width - 10, size, max(int(room / step), 1))
    top = box.y + 4 + (room - len(lines) * step) / 2
    if not (has_symbol and lines and top < box.y + 22 and width_of(lines[0], size) > box.width - 54):
        return lines, top
    below = wrapped(text, box.width - 10, size, max(int((room - 18) / step), 1))
    beside = wrapped(text, box.width - 56, size, max(int(room / step), 1))
    if beside[-1].endswith("…") or not below[-1].endswith("…"):
        return below, box.y + 22 + max(room - 18 - len(below) * step, 0) / 2
    return beside, box.y + 4 + (room - len(beside) * step) / 2


def text_along(figure: Figure, head: float, *, upright: bool = False) -> str:
    """The name of a pool or lane, along its edge: of a horizontal one, and if it must be, from bottom to top."""
    box = figure.place
    if not figure.horizontal and not upright:
        lines = wrapped(figure.name, box.width - 8, SIZE, 2)
        return text_lines(lines, box.center.x, box.y + (head - len(lines) * SIZE * LEADING) / 2, SIZE)
    lines = wrapped(figure.name, box.height - 8, SIZE, 2)
    x, y = box.x + head / 2, box.center.y
    top = -len(lines) * SIZE * LEADING / 2
    return f'<g transform="translate({number(x)} {number(y)}) rotate(-90)">{text_lines(lines, 0, top, SIZE)}</g>'
