"""The coordinates of a BPMN file (BPMNDI): its planes, with the places of shapes, the ways of edges, and labels.

A number that is missing, not finite or absurdly large makes its shape or edge one without a place.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from hark.programs.bpmn.drawing.drawing_scene import Box, Point
from hark.programs.bpmn.file.xml_tree import XmlElement

FARTHEST = 100_000.0
_MOST_POINTS = 500
_COLOR = re.compile(r"#(?:[0-9A-Fa-f]{3}|[0-9A-Fa-f]{6})")


@dataclass(slots=True)
class ShapePlace:
    """The place of a shape, and the way it is drawn."""

    box: Box
    label: Box | None
    expanded: bool | None
    horizontal: bool | None
    marked: bool
    fill: str | None
    stroke: str | None


@dataclass(slots=True)
class EdgePlace:
    points: list[Point]
    label: Box | None
    stroke: str | None
    envelope: str | None


@dataclass(slots=True)
class Plane:
    """A diagram of the file. `element` is what it shows; shapes and edges are by the id of their element."""

    element: str
    shapes: dict[str, ShapePlace] = field(default_factory=dict)
    edges: dict[str, EdgePlace] = field(default_factory=dict)


def read_planes(root: XmlElement) -> list[Plane]:
    """The planes of a file, in order."""
    found: list[Plane] = []
    for diagram in root.all("bpmndi:BPMNDiagram"):
        for element in diagram.all("bpmndi:BPMNPlane"):
            plane = Plane(_reference(element))
            for child in element.children:
                key = _reference(child)
                if child.tag == "bpmndi:BPMNShape" and key not in plane.shapes:
                    if (shape := _shape(child)) is not None:
                        plane.shapes[key] = shape
                elif child.tag == "bpmndi:BPMNEdge" and key not in plane.edges and (edge := _edge(child)) is not None:
                    plane.edges[key] = edge
            found.append(plane)
    return found


def _reference(element: XmlElement) -> str:
    return (element.get("bpmnElement") or "").strip()


def _shape(element: XmlElement) -> ShapePlace | None:
    box = _bounds(element)
    if box is None or box.width <= 0 or box.height <= 0:
        return None
    return ShapePlace(
        box,
        _label(element),
        _flag(element, "isExpanded"),
        _flag(element, "isHorizontal"),
        _flag(element, "isMarkerVisible") is True,
        _color(element, "bioc:fill", "color:background-color"),
        _color(element, "bioc:stroke", "color:border-color"),
    )


def _edge(element: XmlElement) -> EdgePlace | None:
    points: list[Point] = []
    for child in element.all("di:waypoint")[:_MOST_POINTS]:
        x, y = _number(child, "x"), _number(child, "y")
        if x is None or y is None:
            return None
        points.append(Point(x, y))
    if len(set(points)) < 2:
        return None
    stroke = _color(element, "bioc:stroke", "color:border-color")
    return EdgePlace(points, _label(element), stroke, element.get("messageVisibleKind"))


def _label(element: XmlElement) -> Box | None:
    label = element.first("bpmndi:BPMNLabel")
    return _bounds(label) if label is not None else None


def _bounds(element: XmlElement) -> Box | None:
    found = element.first("dc:Bounds")
    if found is None:
        return None
    x, y, width, height = (_number(found, name) for name in ("x", "y", "width", "height"))
    if x is None or y is None or width is None or height is None or width < 0 or height < 0:
        return None
    return Box(x, y, width, height)


def _number(element: XmlElement, name: str) -> float | None:
    try:
        value = float(element.get(name) or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) <= FARTHEST else None


def _flag(element: XmlElement, name: str) -> bool | None:
    match (element.get(name) or "").strip():
        case "true" | "1":
            return True
        case "false" | "0":
            return False
    return None


def _color(element: XmlElement, *names: str) -> str | None:
    return next((value for name in names if (value := element.get(name)) and _COLOR.fullmatch(value)), None)
