"""Lay out one part of a scope: nodes that flows join, in columns from left to right, with the ways of their flows."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from hark.programs.bpmn.bpmn_elements import BOUNDARY_EVENTS
from hark.programs.bpmn.drawing.drawing_scene import ACTIVITIES, GATEWAYS, Box, Figure, Point, Wire
from hark.programs.bpmn.drawing.drawing_text import LABEL_SIZE, block, wrapped
from hark.programs.bpmn.layout.layout_graph import Cell, Edge, layered
from hark.programs.bpmn.layout.layout_routes import Routes, cells_of, route
from hark.programs.bpmn.layout.layout_rows import set_rows
from hark.programs.bpmn.layout.layout_sizes import FLOW_LABEL_WIDTH, exits_below, label_size, overhang, place_boundaries

HEAD = 34.0  # of a sub-process above what is in it
APART = 40.0
_EMPTY_ROW = 60.0


@dataclass(slots=True, eq=False)
class Part:
    """Figures and wires that are placed together, from (0, 0) on.

    Attributes:
        figures: With all that is in them.
        wires: Those that have their way.
        width, height: The room that it takes.
        rows: The upper and lower end of each row, if it has several.
    """

    figures: list[Figure] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0
    rows: list[tuple[float, float]] = field(default_factory=list)

    def move(self, dx: float, dy: float) -> None:
        for figure in self.figures:
            figure.box = figure.place.moved(dx, dy)
            if figure.label is not None:
                figure.label = figure.label.moved(dx, dy)
        for wire in self.wires:
            wire.points = [Point(x + dx, y + dy) for x, y in wire.points]
            if wire.label is not None:
                wire.label = wire.label.moved(dx, dy)

    def take(self, other: Part) -> None:
        self.figures += other.figures
        self.wires += other.wires


def is_edge(wire: Wire) -> bool:
    """Return True if a wire sets the order of columns: a flow, or what joins an activity with its compensation."""
    if wire.tag == "bpmn:sequenceFlow":
        return True
    ends = (wire.source, wire.target)
    return wire.tag == "bpmn:association" and all(
        isinstance(end, Figure) and end.tag in ACTIVITIES | BOUNDARY_EVENTS for end in ends
    )


def node_at(end: Figure | Wire | None) -> Figure | None:
    """The node that an end of a wire is at: of a boundary event, its host."""
    if not isinstance(end, Figure):
        return None
    return end.host if end.host is not None else end


def in_columns(
    nodes: Sequence[Figure], wires: Sequence[Wire], inner: Mapping[Figure, Part | None], row_of: Mapping[Figure, int]
) -> Part:
    """Place nodes in columns.

    Args:
        nodes: At least one. Their sizes are set.
        wires: Those of the scope; the ones that join two of the nodes get their ways.
        inner: What is in each node.
        row_of: The row of each node, if its lane sets it: rows stand below each other.
    """
    cells = {node: _cell(node, row_of.get(node, 0)) for node in nodes}
    exits = {event: below for node in nodes for event, below in exits_below(node).items()}
    edges: list[Edge] = []
    joined: list[Wire] = []
    for wire in wires:
        source, target = node_at(wire.source), node_at(wire.target)
        if is_edge(wire) and source in cells and target in cells and isinstance(wire.source, Figure):
            edges.append(Edge(wire, cells[source], cells[target], exits.get(wire.source, 0.0), label_block(wire)[1]))
            joined.append(wire)
    layers = layered(list(cells.values()), edges)
    set_rows(layers.columns)
    part = Part(rows=_stacked(layers.columns, max(row_of.values(), default=0) + 1))
    routes = route(layers, lambda wire: label_block(wire)[0], _is_gateway, _spread)
    corners = _used_corners(joined, routes, cells)
    for cell in cells_of(layers):
        node = cell.node
        assert isinstance(node, Figure)
        node.box = Box(cell.x - node.place.width / 2, cell.y - node.place.height / 2, *node.place[2:])
        place_boundaries(node)
        node.label = _label_of(node, corners.get(node, set()))
        part.figures += [node, *node.boundaries]
        content = inner[node]
        if content is not None:
            content.move(node.box.x + (node.box.width - content.width) / 2, node.box.y + HEAD)
            part.take(content)
    for wire in joined:
        _set_way(wire, routes)
    part.wires += joined
    part.width = routes.width
    part.height = max(routes.bottom, part.rows[-1][1])
    part.rows[-1] = part.rows[-1][0], part.height
    return part


def _cell(node: Figure, row: int) -> Cell:
    box = node.place
    width, height = label_size(node)
    below = height + 6 if height else overhang(node)
    side = max(box.width, width) / 2
    if node.tag in GATEWAYS and height:  # its text may have to stand left of it
        return Cell(node, max(side, width + 10), side, box.height / 2, box.height / 2 + below, band=row)
    return Cell(node, side, side, box.height / 2, box.height / 2 + below, band=row)


def label_block(edge: Hashable) -> tuple[float, float]:
    """The width and height of the text of a wire."""
    assert isinstance(edge, Wire)
    return block(wrapped(edge.name, FLOW_LABEL_WIDTH, LABEL_SIZE, 4), LABEL_SIZE)


def _is_gateway(cell: Cell) -> bool:
    return isinstance(cell.node, Figure) and cell.node.tag in GATEWAYS


def _spread(cell: Cell) -> float:
    return cell.node.place.height / 2 - 12 if isinstance(cell.node, Figure) and cell.node.tag in ACTIVITIES else 0.0


def _used_corners(wires: list[Wire], routes: Routes, cells: Mapping[Figure, Cell]) -> dict[Figure, set[bool]]:
    """The corners of gateways that have a line: the upper one (False), the lower one (True)."""
    found: dict[Figure, set[bool]] = {}
    for wire in wires:
        way = routes.points[wire]
        if wire in routes.leaving and isinstance(wire.source, Figure):
            found.setdefault(wire.source, set()).add(way[0].y > cells[wire.source].y)
        if wire in routes.entering and isinstance(wire.target, Figure):
            found.setdefault(wire.target, set()).add(way[-1].y > cells[wire.target].y)
    return found


def _label_of(node: Figure, corners: set[bool]) -> Box | None:
    """The place of the text of a node: below it, above it if a line leaves there, or left of both lines."""
    width, height = label_size(node)
    if not height:
        return None
    box = node.place
    if True not in corners:
        return Box(box.center.x - width / 2, box.bottom + 3, width, height)
    if False not in corners:
        return Box(box.center.x - width / 2, box.y - height - 3, width, height)
    return Box(box.center.x - 8 - width, box.y - height + 6, width, height)


def _set_way(wire: Wire, routes: Routes) -> None:
    """The points of a wire, from the edge of its source to that of its target."""
    source, target, way = wire.source, wire.target, routes.points[wire]
    assert isinstance(source, Figure)
    assert isinstance(target, Figure)
    box, end = source.place, target.place
    start = [Point(box.right, routes.starts[wire])]
    if wire in routes.leaving:
        start = [Point(box.center.x, box.bottom if way[0].y > box.center.y else box.y)]
    elif source.host is not None:
        start = [Point(box.center.x, box.bottom), Point(box.center.x, routes.starts[wire])]
    finish = Point(end.x, end.center.y)
    if wire in routes.entering:
        finish = Point(end.center.x, end.bottom if way[-1].y > end.center.y else end.y)
    elif target.host is not None:  # not allowed, but drawn
        finish = Point(end.center.x, end.bottom)
    wire.points = [*start, *way, finish]
    width, height = label_block(wire)
    label = routes.labels[wire]
    wire.label = Box(label.x, label.y - height - 3, width, height) if height else None


def _stacked(columns: list[list[Cell]], count: int) -> list[tuple[float, float]]:
    """Move the cells so that each row stands below the one before it. Returns the ends of the rows."""
    cells = [cell for column in columns for cell in column]
    rows: list[tuple[float, float]] = []
    y = 0.0
    for row in range(count):
        members = [cell for cell in cells if cell.band == row]
        if not members:
            rows.append((y, y + _EMPTY_ROW))
        else:
            by = y - min(cell.y - cell.top for cell in members)
            for cell in members:
                cell.y = float(round(cell.y + by))  # so that lines are straight or have a bend that is seen
            rows.append((y, max(cell.y + cell.bottom for cell in members)))
        y = rows[-1][1] + APART
    return rows
