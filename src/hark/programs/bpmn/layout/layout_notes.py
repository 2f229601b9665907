"""Place the texts and data of a part: texts in rows above it, data in rows below, each near what it belongs to."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from hark.programs.bpmn.drawing.drawing_scene import Box, Figure, Wire
from hark.programs.bpmn.layout.layout_columns import Part
from hark.programs.bpmn.layout.layout_sizes import label_size, own_size

_BETWEEN, _AWAY, _SHELF = 20.0, 30.0, 800.0
_TRIED = 8  # rows, from the last one


def notes_near(
    notes: Sequence[Figure], figures: Collection[Figure], wires: Sequence[Wire]
) -> dict[Figure, Figure | None]:
    """The notes that belong to one of the figures, each with the first that it belongs to."""
    wanted = set(notes)
    found: dict[Figure, Figure | None] = {}
    for wire in wires:
        for note, other in ((wire.source, wire.target), (wire.target, wire.source)):
            if isinstance(note, Figure) and note in wanted and isinstance(other, Figure) and other in figures:
                found.setdefault(note, other)
    return found


def add_notes(part: Part, notes: Mapping[Figure, Figure | None], left: float = 0.0) -> None:
    """Place notes above and below a part, each near its figure, and none left of `left`."""
    texts = {note: other for note, other in notes.items() if note.tag == "bpmn:textAnnotation"}
    rows, height = _in_rows(texts, left, part.width)
    if rows:
        part.move(0, height + _AWAY)
        part.rows = [(top + height + _AWAY, bottom + height + _AWAY) for top, bottom in part.rows]
        part.height += height + _AWAY
        _set(part, rows, 0.0)
    rows, height = _in_rows({note: other for note, other in notes.items() if note not in texts}, left, part.width)
    if rows:
        _set(part, rows, part.height + _AWAY)
        part.height += height + _AWAY


def _place_of(pair: tuple[Figure, Figure | None]) -> float:
    return pair[1].place.center.x if pair[1] is not None and pair[1].box is not None else math.inf


def _in_rows(
    notes: Mapping[Figure, Figure | None], left: float, wide: float
) -> tuple[list[list[tuple[Figure, Box]]], float]:
    """The notes in rows where none touches another, with their rooms; and the height of it all."""
    rows: list[list[tuple[Figure, Box]]] = []
    # From left to right, so that a row has room only at its end; those that belong to nothing come last.
    for note, other in sorted(notes.items(), key=_place_of):
        width, height = own_size(note)
        label, below = label_size(note)
        room = max(width, label)
        box = Box(left, 0, room, height + (below + 4 if below else 0))
        if other is not None and other.box is not None:
            box = box._replace(x=max(left, other.place.center.x - room / 2))
        elif rows and rows[-1][-1][1].right + _BETWEEN + room < max(wide, _SHELF):
            box = box._replace(x=rows[-1][-1][1].right + _BETWEEN)
        for row in rows[-_TRIED:]:
            if box.x >= row[-1][1].right + _BETWEEN:
                row.append((note, box))
                break
        else:
            rows.append([(note, box)])
    heights = [max(box.height for _, box in row) for row in rows]
    return rows, sum(heights) + _BETWEEN * max(len(rows) - 1, 0)


def _set(part: Part, rows: list[list[tuple[Figure, Box]]], y: float) -> None:
    for row in rows:
        for note, room in row:
            width, height = own_size(note)
            label, below = label_size(note)
            note.box = Box(room.center.x - width / 2, y, width, height)
            note.label = Box(room.center.x - label / 2, note.box.bottom + 3, label, below) if below else None
            part.figures.append(note)
            part.width = max(part.width, room.right)
        y += max(room.height for _, room in row) + _BETWEEN
