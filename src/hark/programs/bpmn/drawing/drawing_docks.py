"""Give wires a way if neither the file nor the layout does: with right angles, from edge to edge."""

from __future__ import annotations

from hark.programs.bpmn.drawing.drawing_scene import ARTIFACTS, DATA, Box, Figure, Point, Wire, middle

_STRAIGHT = frozenset({"bpmn:association", "bpmn:dataInputAssociation", "bpmn:dataOutputAssociation"})


def connect(wire: Wire) -> None:
    """Give a wire its way, if both its ends have a place."""
    one, other = _box(wire.source), _box(wire.target)
    if one is None or other is None:
        return
    if wire.tag in _STRAIGHT or _is_note(wire.source) or _is_note(wire.target):
        wire.points = [_toward(one, other.center), _toward(other, one.center)]
    elif wire.tag == "bpmn:messageFlow":
        wire.points = _upright(one, other)
    else:
        wire.points = _level(one, other)


def _is_note(end: Figure | Wire | None) -> bool:
    return isinstance(end, Wire) or (end is not None and end.tag in ARTIFACTS | DATA)


def _box(end: Figure | Wire | None) -> Box | None:
    if isinstance(end, Wire):
        return Box(*middle(end.points), 0, 0) if end.points else None
    return end.box if end is not None else None


def _toward(box: Box, point: Point) -> Point:
    """The point where the line from the center of a box to another point leaves the box."""
    center = box.center
    dx, dy = point.x - center.x, point.y - center.y
    if not dx and not dy:
        return center
    share = min(box.width / 2 / abs(dx) if dx else float("inf"), box.height / 2 / abs(dy) if dy else float("inf"))
    return Point(center.x + dx * min(share, 1.0), center.y + dy * min(share, 1.0))


def _level(one: Box, other: Box) -> list[Point]:
    """Out at the right, in at the left; around below if the target is not to the right."""
    start, end = Point(one.right, one.center.y), Point(other.x, other.center.y)
    if one is other or end.x < start.x + 10:
        if other.y > one.bottom + 10 or one.y > other.bottom + 10:
            return _upright(one, other)
        below = max(one.bottom, other.bottom) + 24
        return [Point(one.center.x, one.bottom), Point(one.center.x, below), Point(other.center.x, below),
                Point(other.center.x, other.bottom)] if one is not other else [
            start, Point(one.right + 16, start.y), Point(one.right + 16, below), Point(one.x - 16, below),
            Point(one.x - 16, start.y), Point(one.x, start.y)]  # fmt: skip
    if abs(start.y - end.y) < 1:
        return [start, end]
    x = (start.x + end.x) / 2
    return [start, Point(x, start.y), Point(x, end.y), end]


def _upright(one: Box, other: Box) -> list[Point]:
    """Out at the bottom, in at the top, or the other way round."""
    down = other.center.y >= one.center.y
    start = Point(one.center.x, one.bottom if down else one.y)
    end = Point(other.center.x, other.y if down else other.bottom)
    # A pool is wide: the line stays upright where it can.
    if other.x + 10 < start.x < other.right - 10 and other.width > 3 * one.width:
        return [start, Point(start.x, end.y)]
    if one.x + 10 < end.x < one.right - 10 and one.width > 3 * other.width:
        return [Point(end.x, start.y), end]
    if abs(start.x - end.x) < 1:
        return [start, end]
    y = (start.y + end.y) / 2
    return [start, Point(start.x, y), Point(end.x, y), end]
