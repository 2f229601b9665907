"""Wires as SVG: flows with their arrows, message flows, associations."""

from __future__ import annotations

import math

from hark.programs.bpmn.drawing.drawing_scene import ACTIVITIES, Figure, Point, Wire, middle
from hark.programs.svg import number

_HEAD_LENGTH, _HEAD_WIDTH = 10.0, 4.6
_DATA = frozenset({"bpmn:dataInputAssociation", "bpmn:dataOutputAssociation"})


def draw_wire(wire: Wire) -> str:
    """A wire without its label."""
    points = _distinct(wire.points)
    start, after, before, end = points[0], points[1], points[-2], points[-1]
    paint = f' stroke="{wire.stroke}"' if wire.stroke else ""
    match wire.element.name:
        case "messageFlow":
            parts = [_line(points, "flow message"), _circle(start), _triangle(before, end, "open")]
            if wire.envelope in ("initiating", "non_initiating"):
                parts.append(_envelope(middle(points), filled=wire.envelope == "non_initiating"))
        case "association" | "dataInputAssociation" | "dataOutputAssociation":
            parts = [_line(points, "flow dotted", paint)]
            direction = wire.element.get("associationDirection")
            if direction in ("One", "Both") or wire.tag in _DATA:
                parts.append(_barbs(before, end))
            if direction == "Both":
                parts.append(_barbs(after, start))
        case _:
            parts = [_line([*points[:-1], _toward(end, before, _HEAD_LENGTH * 0.6)], "flow", paint)]
            parts.append(_triangle(before, end, "head"))
            if wire.is_default:
                parts.append(_slash(start, after))
            elif _is_conditional(wire):
                parts.append(_diamond(start, after))
    return "".join(parts)


def _distinct(points: list[Point]) -> list[Point]:
    kept = [points[0]]
    for point in points[1:]:
        if abs(point.x - kept[-1].x) + abs(point.y - kept[-1].y) > 0.05:
            kept.append(point)
    return kept if len(kept) > 1 else [points[0], Point(points[0].x + 0.1, points[0].y)]


def _is_conditional(wire: Wire) -> bool:
    """A condition is shown at an activity; at a gateway, every flow may have one."""
    is_activity = isinstance(wire.source, Figure) and wire.source.tag in ACTIVITIES
    return is_activity and wire.element.first("bpmn:conditionExpression") is not None


def _line(points: list[Point], kind: str, paint: str = "") -> str:
    data = " ".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{data}"{paint}/>'


def _along(start: Point, end: Point) -> tuple[float, float]:
    length = math.hypot(end.x - start.x, end.y - start.y) or 1.0
    return (end.x - start.x) / length, (end.y - start.y) / length


def _toward(start: Point, end: Point, by: float) -> Point:
    dx, dy = _along(start, end)
    by = min(by, math.hypot(end.x - start.x, end.y - start.y))
    return Point(start.x + dx * by, start.y + dy * by)


def _path(points: list[tuple[float, float]], kind: str, *, closed: bool = True) -> str:
    data = " ".join(f"{number(x)} {number(y)}" for x, y in points)
    return f'<path class="{kind}" d="M{data}{"Z" if closed else ""}"/>'


def _triangle(before: Point, end: Point, kind: str) -> str:
    dx, dy = _along(before, end)
    x, y = end.x - dx * _HEAD_LENGTH, end.y - dy * _HEAD_LENGTH
    side = _HEAD_WIDTH
    return _path([end, (x - dy * side, y + dx * side), (x + dy * side, y - dx * side)], kind)


def _barbs(before: Point, end: Point) -> str:
    dx, dy = _along(before, end)
    x, y = end.x - dx * 8, end.y - dy * 8
    return _path([(x - dy * 5, y + dx * 5), end, (x + dy * 5, y - dx * 5)], "flow", closed=False)


def _circle(at: Point) -> str:
    return f'<circle class="open" cx="{number(at.x)}" cy="{number(at.y)}" r="4"/>'


def _slash(start: Point, after: Point) -> str:
    dx, dy = _along(start, after)
    x, y = start.x + dx * 9, start.y + dy * 9
    lean, rise = 3.0, 5.5
    one = (x - dx * lean - dy * rise, y - dy * lean + dx * rise)
    two = (x + dx * lean + dy * rise, y + dy * lean - dx * rise)
    return _path([one, two], "flow", closed=False)


def _diamond(start: Point, after: Point) -> str:
    dx, dy = _along(start, after)
    far, side = 16.0, 4.5
    half = (start.x + dx * far / 2, start.y + dy * far / 2)
    left, right = (half[0] - dy * side, half[1] + dx * side), (half[0] + dy * side, half[1] - dx * side)
    return _path([start, left, (start.x + dx * far, start.y + dy * far), right], "open")


def _envelope(at: Point, *, filled: bool) -> str:
    x, y = at.x, at.y
    corners: list[tuple[float, float]] = [(x - 11, y - 7), (x + 11, y - 7), (x + 11, y + 7), (x - 11, y + 7)]
    flap: list[tuple[float, float]] = [(x - 11, y - 7), (x, y + 1), (x + 11, y - 7)]
    return _path(corners, "shape wash" if filled else "shape") + _path(flap, "line", closed=False)
