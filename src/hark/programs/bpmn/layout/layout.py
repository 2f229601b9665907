"""Place what the file gives no place: columns from left to right, sub-processes open, boundary events on their hosts.

Scopes are laid out from the inside to the outside: a process, and each sub-process in it. The parts of a scope that no
flow joins are laid out on their own and packed below each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hark.programs.bpmn.drawing.drawing_scene import LAID_OUT, LANES, NODES, SUBPROCESSES, Box, Figure, Wire
from hark.programs.bpmn.layout.layout_columns import APART, HEAD, Part, in_columns, is_edge, node_at
from hark.programs.bpmn.layout.layout_notes import add_notes, notes_near
from hark.programs.bpmn.layout.layout_sizes import own_size

PAD, FOOT = 24.0, 26.0  # beside and below what is in a sub-process
LANE_HEAD = 30.0
_SHELF = 1000.0
_NOTES = LAID_OUT - NODES

Joins = Mapping[tuple[Figure | None, object], list[Wire]]
"""The wires that join two figures of one scope, by the sub-process and the process of the scope."""


def joins_of(wires: Iterable[Wire]) -> Joins:
    """The wires of a file by scope."""
    joins: dict[tuple[Figure | None, object], list[Wire]] = {}
    for wire in wires:
        source, target = wire.source, wire.target
        if isinstance(source, Figure) and isinstance(target, Figure):
            scope = _scope_of(source)
            if scope is _scope_of(target) and source.owner is target.owner:
                joins.setdefault((scope, source.owner), []).append(wire)
    return joins


def lay_out(figures: Sequence[Figure], joins: Joins) -> Part:
    """Place the figures of a scope and all that is in them, from (0, 0) on.

    Args:
        figures: What is directly in the scope.
        joins: The wires of the file; flows get their ways.
    """
    return _scope(list(figures), joins)


def _scope_of(figure: Figure) -> Figure | None:
    """The sub-process around a figure. Lanes are not scopes."""
    parent = figure.parent
    while parent is not None and parent.tag not in SUBPROCESSES:
        parent = parent.parent
    return parent


def _scope(figures: list[Figure], joins: Joins) -> Part:
    inside = [figure for figure in figures if figure.tag in LAID_OUT]
    present = set(inside)
    nodes = [one for one in inside if one.tag in NODES and (one.host is None or one.host not in present)]
    wires = joins.get((_scope_of(inside[0]), inside[0].owner), []) if inside else []
    inner = {node: _inner(node, joins) for node in nodes}
    notes = [one for one in inside if one.tag in _NOTES]
    if lanes := [figure for figure in figures if figure.tag in LANES]:
        part = _laned(nodes, wires, inner, lanes)
    else:
        parts: list[Part] = []
        for group in _groups(nodes, wires):
            parts.append(in_columns(group, wires, inner, {}))
            near = notes_near(notes, set(parts[-1].figures), wires)
            add_notes(parts[-1], near)
            notes = [note for note in notes if note not in near]
        part = _packed(parts)
    if notes:
        near = dict.fromkeys(notes) | notes_near(notes, set(part.figures), wires)
        add_notes(part, near, left=PAD if lanes else 0.0)
        part.height += PAD if lanes else 0.0
    return part


def _inner(node: Figure, joins: Joins) -> Part | None:
    """Set the size of a node, and place what is in it."""
    node.expanded = node.tag in SUBPROCESSES and any(child.tag in LAID_OUT for child in node.children)
    width, height = own_size(node)
    part = _scope(node.children, joins) if node.expanded else None
    if part is not None:
        width, height = max(part.width + 2 * PAD, width), part.height + HEAD + FOOT
    node.box = Box(0, 0, width, height)
    return part


def _groups(nodes: list[Figure], wires: list[Wire]) -> list[list[Figure]]:
    """The nodes by what flows join, in document order; event sub-processes last."""
    leader = {node: node for node in nodes}

    def lead(node: Figure) -> Figure:
        while leader[node] is not node:
            leader[node] = leader[leader[node]]
            node = leader[node]
        return node

    for wire in wires:
        source, target = node_at(wire.source), node_at(wire.target)
        if is_edge(wire) and source in leader and target in leader:
            leader[lead(target)] = lead(source)
    found: dict[Figure, list[Figure]] = {}
    for node in nodes:
        found.setdefault(lead(node), []).append(node)
    return sorted(found.values(), key=lambda group: group[0].element.get("triggeredByEvent") == "true")


def _packed(parts: list[Part]) -> Part:
    """Parts below each other; small ones side by side."""
    whole = Part()
    widest = max([_SHELF, *(part.width for part in parts)])
    x = y = tallest = 0.0
    for part in parts:
        if x and x + part.width > widest:
            x, y, tallest = 0.0, y + tallest + APART, 0.0
        part.move(x, y)
        whole.take(part)
        whole.width = max(whole.width, x + part.width)
        x += part.width + APART
        tallest = max(tallest, part.height)
        whole.height = max(whole.height, y + tallest)
    return whole


def _laned(nodes: list[Figure], wires: list[Wire], inner: Mapping[Figure, Part | None], lanes: list[Figure]) -> Part:
    """Place nodes in columns, each in the row of its lane. Those without a lane are in a last row below."""
    leaves = _leaves(lanes)
    row = {lane: number for number, lane in enumerate(leaves)}
    row_of = {node: row.get(node.lane, len(leaves)) if node.lane else len(leaves) for node in nodes}
    part = in_columns(nodes, wires, inner, row_of) if nodes else Part(width=300.0)
    while len(part.rows) < len(leaves):
        part.rows.append((part.height, part.height + 60.0))
        part.height += 60.0 + APART
    left = LANE_HEAD * _depth(lanes) + PAD
    part.move(left, APART / 2)
    part.width += left + PAD
    part.height = part.rows[-1][1] + APART
    for lane, (top, bottom) in zip(leaves, part.rows, strict=False):
        lane.box = Box(0, top, part.width, bottom - top + APART)
    _box_lanes(lanes, 0.0, part)
    return part


def _box_lanes(lanes: list[Figure], x: float, part: Part) -> None:
    """Lanes around lanes, outermost at the left; the boxes of the innermost have their heights."""
    for lane in lanes:
        inner = [one for one in lane.children if one.tag in LANES]
        part.figures.append(lane)
        _box_lanes(inner, x + LANE_HEAD, part)
        top, bottom = lane.box.y if lane.box else 0.0, lane.box.bottom if lane.box else 0.0
        if inner:
            top, bottom = min(one.place.y for one in inner), max(one.place.bottom for one in inner)
        lane.box = Box(x, top, part.width - x, bottom - top)


def _leaves(lanes: list[Figure]) -> list[Figure]:
    """The lanes without lanes in them, in order."""
    found: list[Figure] = []
    for lane in lanes:
        found += _leaves(inner) if (inner := [one for one in lane.children if one.tag in LANES]) else [lane]
    return found


def _depth(lanes: list[Figure]) -> int:
    inner = [_depth([one for one in lane.children if one.tag in LANES]) for lane in lanes]
    return 1 + max(inner) if inner else 0
