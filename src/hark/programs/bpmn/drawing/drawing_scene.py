"""The scene of a BPMN file: figures, wires between them, and the boxes where they are.

A figure is anything with a place: an event, an activity, a gateway, a pool, a note. A wire joins two figures. Reading
(drawing_elements.py) makes them without places; the file's coordinates or the layout give them places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from hark.programs.bpmn.bpmn_elements import ELEMENTS, ElementRow, tags_of
from hark.programs.bpmn.file.xml_tree import XmlElement


def _tags(*names: str) -> frozenset[str]:
    return frozenset(f"bpmn:{name}" for name in names)


EVENTS = tags_of("event")
TASKS = tags_of("task")
SUBPROCESSES = tags_of("subprocess")
CALLS = tags_of("call")
ACTIVITIES = TASKS | SUBPROCESSES | CALLS
GATEWAYS = tags_of("gateway")
NODES = EVENTS | ACTIVITIES | GATEWAYS
DATA = _tags("dataObjectReference", "dataObject", "dataStoreReference", "dataStore", "dataInput", "dataOutput")
ARTIFACTS = _tags("textAnnotation", "group")
POOLS = _tags("participant")
LANES = _tags("lane")
FIGURES = NODES | DATA | ARTIFACTS | POOLS | LANES
LAID_OUT = NODES | _tags("dataObjectReference", "dataStoreReference", "textAnnotation")
"""The tags that get a place if the file gives none. Data without a reference is drawn only where the file has it."""
WIRES = _tags("sequenceFlow", "messageFlow", "association", "dataInputAssociation", "dataOutputAssociation")


class Point(NamedTuple):
    x: float
    y: float


class Box(NamedTuple):
    """A place: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def center(self) -> Point:
        return Point(self.x + self.width / 2, self.y + self.height / 2)

    def holds(self, other: Box) -> bool:
        return self.x <= other.x and self.y <= other.y and other.right <= self.right and other.bottom <= self.bottom

    def moved(self, dx: float, dy: float) -> Box:
        return self._replace(x=self.x + dx, y=self.y + dy)

    def grown(self, by: float) -> Box:
        return Box(self.x - by, self.y - by, self.width + 2 * by, self.height + 2 * by)


@dataclass(slots=True, eq=False)
class Figure:
    """Something with a place.

    Attributes:
        key: Its id, as BpmnSpec has it.
        element: What it is in the file.
        name: Its text.
        parent: The sub-process or pool that it is in.
        owner: The process or collaboration that it is in.
        host: Of a boundary event: the activity that it is attached to.
        lane: Of a node: the innermost lane that it is in.
        children: Of a sub-process, a pool and a lane: what is directly in it, in document order.
        boundaries: Of an activity: the boundary events that are attached to it.
        has_exit: A wire leaves it.
        expanded: Of a sub-process: its inside is drawn in its box.
        horizontal: Of a pool and a lane: its name is at the left, not at the top.
        marked: Of an exclusive gateway: its cross is drawn.
        fill, stroke: Colors that the file gives it.
        box: Its place.
        label: The place of its text, if that is not in the box.
    """

    key: str
    element: XmlElement
    name: str
    parent: Figure | None = None
    owner: XmlElement | None = None
    host: Figure | None = None
    lane: Figure | None = None
    children: list[Figure] = field(default_factory=list)
    boundaries: list[Figure] = field(default_factory=list)
    has_exit: bool = False
    expanded: bool = True
    horizontal: bool = True
    marked: bool = True
    fill: str | None = None
    stroke: str | None = None
    box: Box | None = None
    label: Box | None = None

    @property
    def tag(self) -> str:
        return self.element.tag

    @property
    def row(self) -> ElementRow:
        """The row of the table of elements, if the figure is a node."""
        return ELEMENTS[self.tag]

    @property
    def place(self) -> Box:
        """The box of a figure that must have one."""
        assert self.box is not None
        return self.box


@dataclass(slots=True, eq=False)
class Wire:
    """A line between two figures. An end may be another wire: a note can be attached to a flow.

    Attributes:
        key: Its id, as BpmnSpec has it.
        element: What it is in the file.
        name: Its text.
        source, target: Its ends; None if the file names something that it does not have.
        is_default: Of a sequence flow: it is taken if no other is.
        points: Its way.
        label: The place of its text.
        stroke: The color that the file gives it.
        envelope: Of a message flow with an envelope on it: `initiating` or `non_initiating`.
    """

    key: str
    element: XmlElement
    name: str
    source: Figure | Wire | None = None
    target: Figure | Wire | None = None
    is_default: bool = False
    stroke: str | None = None
    points: list[Point] = field(default_factory=list)
    label: Box | None = None
    envelope: str | None = None

    @property
    def tag(self) -> str:
        return self.element.tag


@dataclass(slots=True, eq=False)
class Panel:
    """A part of the drawing with coordinates of its own: a diagram of the file, or one that is laid out.

    `from_file` are the figures whose places the file has.
    """

    title: str | None
    figures: list[Figure] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    from_file: set[Figure] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Scene:
    """All that a file has to draw.

    Attributes:
        root: The file.
        figures, wires: By their keys.
        by_element: The figure of an element.
        named: What figures refer to for their names, by id.
        last: The last number behind a key that several have.
    """

    root: XmlElement
    figures: dict[str, Figure] = field(default_factory=dict)
    wires: dict[str, Wire] = field(default_factory=dict)
    by_element: dict[XmlElement, Figure] = field(default_factory=dict)
    named: dict[str, XmlElement] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def figure(self, reference: str | None) -> Figure | None:
        """The figure that a reference names. The reference may have a prefix: `tns:task`."""
        found = self.end(reference)
        return found if isinstance(found, Figure) else None

    def end(self, reference: str | None) -> Figure | Wire | None:
        """The figure or wire that an end of a wire names."""
        name = (reference or "").strip()
        for key in (name, name.rpartition(":")[2]):
            found = self.figures.get(key) or self.wires.get(key)
            if found is not None:
                return found
        return None


def middle(points: list[Point], share: float = 0.5) -> Point:
    """The point halfway along a way, or at another share of it."""
    lengths = [abs(b.x - a.x) + abs(b.y - a.y) for a, b in pairwise(points)]
    left = sum(lengths) * share
    for length, (a, b) in zip(lengths, pairwise(points), strict=True):
        if left <= length and length > 0:
            return Point(a.x + (b.x - a.x) * left / length, a.y + (b.y - a.y) * left / length)
        left -= length
    return points[0]


def bounds(boxes: list[Box]) -> Box:
    """The smallest box around boxes."""
    x, y = min(box.x for box in boxes), min(box.y for box in boxes)
    return Box(x, y, max(box.right for box in boxes) - x, max(box.bottom for box in boxes) - y)
