"""Choose the ways of edges between columns: horizontal in a column, vertical in tracks between two of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from hark.programs.bpmn.drawing.drawing_scene import Point
from hark.programs.bpmn.layout.layout_graph import Cell, Layers, Link
from hark.programs.bpmn.layout.layout_tracks import Piece, set_tracks

TRACK, SIDE, AROUND, CLEAR = 12.0, 22.0, 16.0, 10.0


@dataclass(slots=True, eq=False)
class Routes:
    """The places of columns and edges.

    Attributes:
        starts: The height at which each edge leaves its source.
        points: The way of each edge by its key, without its first and last point at the figures.
        labels: Where the text of each edge may begin: behind its first vertical piece, on the line.
        leaving, entering: The edges that leave or enter a gateway at its upper or lower corner.
        width: Of all columns.
        bottom: The lowest line that goes around.
    """

    starts: dict[Hashable, float] = field(default_factory=dict)
    points: dict[Hashable, list[Point]] = field(default_factory=dict)
    labels: dict[Hashable, Point] = field(default_factory=dict)
    leaving: set[Hashable] = field(default_factory=set)
    entering: set[Hashable] = field(default_factory=set)
    width: float = 0.0
    bottom: float = 0.0


def route(
    layers: Layers,
    label_width: Callable[[Hashable], float],
    is_gateway: Callable[[Cell], bool],
    spread: Callable[[Cell], float],
) -> Routes:
    """Choose the tracks, set `x` of all cells, and give the ways of all edges.

    Args:
        layers: The columns; the heights of their cells are set.
        label_width: The width of the text of an edge by its key; 0 if it has none.
        is_gateway: Whether edges may leave and enter a cell at its upper and lower corner.
        spread: How far from its anchor the edges of a cell may leave it, if it has several.
    """
    count = len(layers.columns)
    lowest = max(cell.y + cell.bottom for column in layers.columns for cell in column)
    around = _channels([link for link in layers.links if link.goes_around], lowest)
    routes = Routes(bottom=max(around.values(), default=lowest))
    _spread(layers, spread)
    _straighten(layers)
    _set_corners(layers, routes, is_gateway)
    gaps: list[dict[Hashable, Piece]] = [{} for _ in range(count + 1)]  # gap n is left of column n
    room = [0.0] * (count + 1)
    for link in layers.links:
        source, target = link.cells[0], link.cells[-1]
        room[source.layer + 1] = max(room[source.layer + 1], label_width(link.edge.key))
        if link.goes_around:
            gaps[source.layer + 1][link, 0] = Piece(source.y + link.below, [around[link]])
            gaps[target.layer][link, 1] = Piece(around[link], [target.y])
            continue
        for key, gap, start, end in _steps(link, routes):
            if (piece := gaps[gap].get(key)) is not None:
                piece.ends.append(end)
            else:
                gaps[gap][key] = Piece(start, [end])
    tracks = [set_tracks(list(gap.values())) for gap in gaps]
    begins, routes.width = _set_columns(layers, tracks, room)

    def at(gap: int, key: Hashable) -> float:
        return begins[gap] + SIDE + gaps[gap][key].track * TRACK

    for link in layers.links:
        source, target, key = link.cells[0], link.cells[-1], link.edge.key
        routes.starts[key] = source.y + link.below
        if link.goes_around:
            right, left, height = at(source.layer + 1, (link, 0)), at(target.layer, (link, 1)), around[link]
            corners = [(right, source.y + link.below), (right, height), (left, height), (left, target.y)]
            routes.points[key] = [Point(*corner) for corner in corners]
            routes.labels[key] = Point((right + left - label_width(key)) / 2, height)
            continue
        way = [Point(source.x, link.cells[1].y)] if key in routes.leaving else []
        for step, gap, start, end in _steps(link, routes):
            way += [Point(at(gap, step), start), Point(at(gap, step), end)]
        if key in routes.entering:
            way.append(Point(target.x, _before_target(link)))
        routes.points[key] = way
        behind = begins[source.layer + 1] + SIDE + (tracks[source.layer + 1] - 0.5) * TRACK
        level = link.cells[0] if key in routes.entering and len(link.cells) == 2 else link.cells[1]
        routes.labels[key] = Point(max(behind, begins[source.layer + 1] + 8), level.y)
    return routes


def _steps(link: Link, routes: Routes) -> Iterator[tuple[Hashable, int, float, float]]:
    """The vertical pieces of an edge: the key, the gap, and the heights. Edges that leave one point share a piece."""
    last = len(link.cells) - 2
    for index, (one, other) in enumerate(pairwise(link.cells)):
        start = one.y + (link.below if index == 0 else 0.0)
        is_turn = (index == 0 and link.edge.key in routes.leaving) or (
            index == last and link.edge.key in routes.entering
        )
        if abs(start - other.y) >= 0.5 and not is_turn:
            yield (one, round(start, 1)) if index == 0 else (link, index), other.layer, start, other.y


def _set_corners(layers: Layers, routes: Routes, is_gateway: Callable[[Cell], bool]) -> None:
    """Find the edges that may use the corner of a gateway: nothing in its column is in their way."""
    for link in layers.links:
        if link.goes_around:
            continue
        one, two = link.cells[0], link.cells[1]
        if is_gateway(one) and _is_free(layers.columns[one.layer], one, two.y):
            routes.leaving.add(link.edge.key)
        target = link.cells[-1]
        turned = len(link.cells) == 2 and (link.edge.key in routes.leaving or link.edge.below)
        if is_gateway(target) and not turned and _is_free(layers.columns[target.layer], target, _before_target(link)):
            routes.entering.add(link.edge.key)


def _before_target(link: Link) -> float:
    """The height of an edge before its target."""
    return link.cells[-2].y + (link.below if len(link.cells) == 2 else 0.0)


def _spread(layers: Layers, spread: Callable[[Cell], float]) -> None:
    """Let the edges of a cell leave it at different heights, in the order of where they lead."""
    leaving: dict[Cell, list[Link]] = defaultdict(list)
    for link in layers.links:
        if not link.below and spread(link.cells[0]):
            leaving[link.cells[0]].append(link)
    for cell, links in leaving.items():
        up = [link for link in links if not link.goes_around and link.cells[1].y < cell.y - 0.5]
        down = [link for link in links if link.goes_around or link.cells[1].y > cell.y + 0.5]
        if len(links) < 2:
            continue
        step = min(12.0, spread(cell) / max(len(up), len(down), 1))
        for number, link in enumerate(sorted(up, key=lambda one: -one.cells[1].y)):
            link.below = -step * (number + 1)
        for number, link in enumerate(sorted(down, key=lambda one: (one.goes_around, one.cells[1].y))):
            link.below = step * (number + 1)


def _straighten(layers: Layers) -> None:
    """Take away the small bends of edges that pass several columns."""
    for link in layers.links:
        height = link.cells[0].y + link.below
        for cell in link.cells[1:-1]:
            if abs(cell.y - height) < 4:
                cell.y = height
            height = cell.y


def _is_free(column: list[Cell], gateway: Cell, height: float) -> bool:
    """Return True if an upright line from a gateway to a height, and a level one there, touch no other cell."""
    if abs(height - gateway.y) < gateway.top + 4:
        return False
    low, high = min(gateway.y, height) - CLEAR, max(gateway.y, height) + CLEAR
    for cell in column:
        if cell is gateway:
            continue
        if cell.node is None and abs(cell.y - height) >= CLEAR:
            continue  # a line that crosses
        if cell.y - cell.top < high and cell.y + cell.bottom > low:
            return False
    return True


def _channels(links: list[Link], lowest: float) -> dict[Link, float]:
    """The heights of edges that go around: below everything, short ones above long ones."""
    short_first = sorted(links, key=lambda link: abs(link.cells[0].layer - link.cells[1].layer))
    return {link: lowest + AROUND * (index + 1) for index, link in enumerate(short_first)}


def _set_columns(layers: Layers, tracks: list[int], room: list[float]) -> tuple[list[float], float]:
    """Set `x` of all cells. Returns where each gap begins, and the width of it all."""
    begins: list[float] = []
    x = 0.0
    for number, column in enumerate(layers.columns):
        begins.append(x)
        if number:
            x += SIDE + max(tracks[number] - 1, 0) * TRACK + max(SIDE, room[number] + 14)
        elif tracks[0]:
            x += SIDE + tracks[0] * TRACK
        anchor = x + max(cell.left for cell in column)
        for cell in column:
            cell.x = anchor
        x = anchor + max(cell.right for cell in column)
    begins.append(x)
    if tracks[-1]:
        x += SIDE + tracks[-1] * TRACK
    if room[-1]:
        x += room[-1]
    return begins, x


def cells_of(layers: Layers) -> list[Cell]:
    return [cell for column in layers.columns for cell in column if cell.node is not None]
