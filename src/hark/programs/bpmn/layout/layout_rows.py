"""Give each cell of a column a vertical position: near its neighbours, in order, and without overlap."""

from __future__ import annotations

from collections.abc import Callable

from hark.programs.bpmn.layout.layout_graph import Cell, Near

APART, PASSING = 32.0, 16.0  # between two nodes, and beside an edge that passes


def set_rows(columns: list[list[Cell]]) -> None:
    """Give each cell its height. Bands (lanes) are placed one below the other by the caller."""
    for column in columns:
        at: dict[int, float] = {}
        for cell in column:
            cell.y = at.get(cell.band, 0.0) + cell.top
            at[cell.band] = cell.y + cell.bottom + APART
    for near in (_before, _after, _before, _after, _in_line):
        for column in reversed(columns) if near is _after else columns:
            for band in dict.fromkeys(cell.band for cell in column):
                _settle([cell for cell in column if cell.band == band], near)


def _before(cell: Cell) -> list[Near]:
    return cell.before


def _after(cell: Cell) -> list[Near]:
    return cell.after


def _in_line(cell: Cell) -> list[Near]:
    """The neighbours that a cell forms a chain with: their lines are to be straight. Without one, those before it."""
    chained = [one for one in cell.before if len(cell.before) == 1 and len(one.cell.after) == 1]
    chained += [one for one in cell.after if len(cell.after) == 1 and len(one.cell.before) == 1]
    return chained or cell.before


def _settle(cells: list[Cell], neighbours: Callable[[Cell], list[Near]]) -> None:
    """Move cells as near to their neighbours as their order and their sizes let them.

    With the distances they must have taken off, this is the isotonic regression: neighbours that would pass each other
    form a group, which stands at the weighted mean of what its members want.
    """
    offset = 0.0
    groups: list[tuple[float, float, int]] = []  # mean, weight, count
    offsets: list[float] = []
    for index, cell in enumerate(cells):
        if index:
            above = cells[index - 1]
            gap = APART if above.node is not None and cell.node is not None else PASSING
            offset += above.bottom + cell.top + gap
        offsets.append(offset)
        near = [one for one in neighbours(cell) if one.cell.band == cell.band]
        wanted = sum(one.cell.y + one.below for one in near) / len(near) if near else cell.y
        mean, weight, count = wanted - offset, _weight(cell, near), 1
        while groups and groups[-1][0] > mean:
            other, more, others = groups.pop()
            mean = (mean * weight + other * more) / (weight + more)
            weight, count = weight + more, count + others
        groups.append((mean, weight, count))
    index = 0
    for mean, _, count in groups:
        for _ in range(count):
            cells[index].y = mean + offsets[index]
            index += 1


def _weight(cell: Cell, near: list[Near]) -> float:
    """The weight of a cell's own height: a long edge has most, what boundary events lead to has least."""
    if not near:
        return 1e-3
    if cell.node is None:
        return 3.0
    return 1e-4 if all(one.below for one in near) else 1.5
