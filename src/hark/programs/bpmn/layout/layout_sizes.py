"""Choose the sizes of figures without a place in the file, and the room for their texts and boundary events."""

from __future__ import annotations

from hark.programs.bpmn.drawing.drawing_scene import ACTIVITIES, EVENTS, GATEWAYS, Box, Figure
from hark.programs.bpmn.drawing.drawing_text import LABEL_SIZE, block, wrapped

EVENT, GATEWAY, TASK_WIDTH, TASK_HEIGHT = 36.0, 50.0, 110.0, 80.0
LABEL_WIDTH, FLOW_LABEL_WIDTH, NOTE_WIDTH = 96.0, 100.0, 150.0
_BETWEEN = 14.0  # boundary events
_EXIT = 9.0  # between the lines that leave boundary events


def own_size(figure: Figure) -> tuple[float, float]:
    """Width and height of a figure without anything in it."""
    if figure.tag in EVENTS:
        return EVENT, EVENT
    if figure.tag in GATEWAYS:
        return GATEWAY, GATEWAY
    if figure.tag in ACTIVITIES:
        wide = TASK_WIDTH if len(figure.name) < 60 else TASK_WIDTH + 40
        return max(wide, _edge_of_boundaries(figure)), TASK_HEIGHT
    if figure.tag == "bpmn:textAnnotation":
        width, height = block(wrapped(figure.name, NOTE_WIDTH))
        return max(width + 16, 60.0), max(height + 10, 30.0)
    if figure.tag in ("bpmn:dataStoreReference", "bpmn:dataStore"):
        return 50.0, 50.0
    return 36.0, 50.0


def label_size(figure: Figure) -> tuple[float, float]:
    """Width and height of a text that stands beside its figure."""
    if figure.tag in ACTIVITIES or figure.tag == "bpmn:textAnnotation":
        return 0.0, 0.0
    return block(wrapped(figure.name, LABEL_WIDTH, LABEL_SIZE, 4), LABEL_SIZE)


def boundary_width(event: Figure) -> float:
    """The width that a boundary event takes of the edge of its host: its label stands right of the leaving line."""
    return max(EVENT, EVENT / 2 + 4 + label_size(event)[0]) + _BETWEEN


def _edge_of_boundaries(host: Figure) -> float:
    return sum(map(boundary_width, host.boundaries)) + (_BETWEEN if host.boundaries else 0.0)


def overhang(host: Figure) -> float:
    """The distance that boundary events, their labels and the lines that leave them reach below their host."""
    if not host.boundaries:
        return 0.0
    labels = max(label_size(event)[1] for event in host.boundaries)
    return EVENT / 2 + labels + 4 + _EXIT * sum(event.has_exit for event in host.boundaries)


def exits_below(host: Figure) -> dict[Figure, float]:
    """The distances below the center of a host at which the line of each of its boundary events turns to the right.

    The line of the leftmost is the lowest, so that no line crosses another.
    """
    lowest = host.place.height / 2 + overhang(host) - 2
    leaving = [event for event in host.boundaries if event.has_exit]
    return {event: lowest - _EXIT * number for number, event in enumerate(leaving)}


def place_boundaries(host: Figure) -> None:
    """Set the boundary events of a placed host along its lower edge."""
    box = host.place
    x = box.x + max(_BETWEEN, box.width - _edge_of_boundaries(host))
    for event in host.boundaries:
        event.box = Box(x, box.bottom - EVENT / 2, EVENT, EVENT)
        width, height = label_size(event)
        event.label = Box(x + EVENT / 2 + 4, event.box.bottom + 1, width, height) if height else None
        x += boundary_width(event)
