"""Sort a graph into layers: the column of each node, and the order of the nodes of a column.

Sugiyama's way: edges that close a cycle are set aside, each node goes behind all before it, edges over several columns
get a place in each of them, and nodes are ordered near their neighbours. Where they stand is not decided here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

MOST_PLACES = 20_000  # places of long edges; edges beyond them go around


@dataclass(slots=True, eq=False)
class Cell:
    """A place in a column: of a node, or of an edge that passes. Its sides are distances from its anchor."""

    node: Hashable = None
    left: float = 0.0
    right: float = 0.0
    top: float = 0.0
    bottom: float = 0.0
    band: int = 0
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    before: list[Near] = field(default_factory=list)
    after: list[Near] = field(default_factory=list)


class Near(NamedTuple):
    """A neighbour, and how far below its anchor the edge leaves it: that of a boundary event is below its host."""

    cell: Cell
    below: float


@dataclass(slots=True, eq=False)
class Link:
    """An edge: the cells that it passes, from its source to its target. One that goes around passes none between.

    `below` is how far below the anchor of its source it leaves it, as its edge says or as the routes choose.
    """

    edge: Edge
    cells: list[Cell]
    goes_around: bool = False
    below: float = 0.0


@dataclass(slots=True, eq=False)
class Layers:
    """The columns, and the edges between them."""

    columns: list[list[Cell]]
    links: list[Link]


class Edge(NamedTuple):
    """An edge between two cells: it leaves its source `below` its anchor, and its text is `text` high."""

    key: Hashable
    source: Cell
    target: Cell
    below: float = 0.0
    text: float = 0.0


def layered(cells: Sequence[Cell], edges: Sequence[Edge]) -> Layers:
    """Put cells into columns. The cells are in the order of the file."""
    closing = _closing_edges(cells, edges)
    ahead: dict[Cell, list[tuple[Cell, int]]] = defaultdict(list)
    pairs = Counter((edge.source, edge.target) for edge in edges)
    for number, edge in enumerate(edges):
        if number not in closing:
            # Two edges between the same cells need a column between them, or they would run on the same line.
            ahead[edge.source].append((edge.target, 2 if pairs[edge.source, edge.target] > 1 else 1))
    _set_layers(cells, ahead)
    columns: list[list[Cell]] = [[] for _ in range(1 + max(cell.layer for cell in cells))]
    for cell in cells:
        columns[cell.layer].append(cell)
    links: list[Link] = []
    free = MOST_PLACES
    for number, edge in enumerate(edges):
        source, target = edge.source, edge.target
        span = target.layer - source.layer - 1
        if number in closing or span > free:
            links.append(Link(edge, [source, target], goes_around=True, below=edge.below))
            continue
        free -= span
        passed = [Cell(band=source.band, layer=source.layer + 1 + step) for step in range(span)]
        if passed:
            passed[0].top = edge.text
        for cell in passed:
            columns[cell.layer].append(cell)
        way = [source, *passed, target]
        for one, other in pairwise(way):
            below = edge.below if one is source else 0.0
            one.after.append(Near(other, -below))
            other.before.append(Near(one, below))
        links.append(Link(edge, way, below=edge.below))
    _order(columns)
    return Layers(columns, links)


def _closing_edges(cells: Sequence[Cell], edges: Sequence[Edge]) -> set[int]:
    """The edges that lead back to a cell which is still open in a walk from the first cells, depth first."""
    out: dict[Cell, list[tuple[int, Cell]]] = defaultdict(list)
    entered = set()
    for number, (_, source, target, *_) in enumerate(edges):
        out[source].append((number, target))
        if source is not target:
            entered.add(target)
    closing: set[int] = set()
    done: set[Cell] = set()
    is_open: set[Cell] = set()
    for first in [*(cell for cell in cells if cell not in entered), *cells]:
        if first in done:
            continue
        is_open.add(first)
        todo = [(first, iter(out[first]))]
        while todo:
            cell, rest = todo[-1]
            for number, target in rest:
                if target in is_open:
                    closing.add(number)
                elif target not in done:
                    is_open.add(target)
                    todo.append((target, iter(out[target])))
                    break
            else:
                todo.pop()
                is_open.discard(cell)
                done.add(cell)
    return closing


def _set_layers(cells: Sequence[Cell], ahead: dict[Cell, list[tuple[Cell, int]]]) -> None:
    """Put each cell behind the last of those before it, by as many layers as the edge says."""
    missing: dict[Cell, int] = defaultdict(int)
    for targets in ahead.values():
        for target, _ in targets:
            missing[target] += 1
    ready = [cell for cell in cells if not missing[cell]]
    for cell in ready:  # grows while it is walked
        for target, span in ahead.get(cell, ()):
            target.layer = max(target.layer, cell.layer + span)
            missing[target] -= 1
            if not missing[target]:
                ready.append(target)


def _order(columns: list[list[Cell]]) -> None:
    """Order each column by the places of the neighbours of its cells, forth and back a few times."""
    place = {cell: index for column in columns for index, cell in enumerate(column)}
    for column in columns:
        column.sort(key=lambda cell: cell.band)
    for sweep in range(6):
        forth = sweep % 2 == 0
        for column in columns if forth else reversed(columns):
            wanted = {cell: _average(place, cell.before if forth else cell.after, place[cell]) for cell in column}
            column.sort(key=lambda cell: (cell.band, wanted[cell]))
            for index, cell in enumerate(column):
                place[cell] = index


def _average(place: dict[Cell, int], near: list[Near], otherwise: int) -> float:
    if not near:
        return float(otherwise)
    return sum(place[cell] + _share(below) for cell, below in near) / len(near)


def _share(below: float) -> float:
    """A distance as a share of a place, so that edges which leave lower come later."""
    return math.copysign(0.3 + min(abs(below), 2000.0) / 10_000, below) if below else 0.0
