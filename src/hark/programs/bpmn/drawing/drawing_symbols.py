"""The symbols of BPMN as paths around (0, 0): in events 20 units wide, in tasks 16, in gateways 24.

A symbol has three inks: `line` is only stroked, `ink` is filled, `cut` is stroked in the color of the paper, on `ink`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from hark.programs.bpmn.file.xml_tree import XmlElement

Stroke = tuple[str, str]  # the class of a path, and its data

_ENVELOPE = "M-9.5 -6.5H9.5V6.5H-9.5Z"
_FLAP = "M-9.5 -6.5 0 1 9.5 -6.5"
_BOLT = "M-9 8.5 -3.8 -6.5 2.2 1.4 8.8 -8.8 4.4 6.8 -2 -.8Z"
_ARROW_UP = "M0 -9.5 7 8.5 0 2 -7 8.5Z"
_REWIND = "M-10 0 -.8 -6.5V6.5ZM-.8 0 8.4 -6.5V6.5Z"
_LINK = "M-9.5 -4H2.5V-8L10 0 2.5 8V4H-9.5Z"
_TRIANGLE = "M0 -9 9.5 7.5H-9.5Z"
_PENTAGON = "M0 -10 9.8 -2.9 6 8.4H-6L-9.8 -2.9Z"
_PLUS = "M-3 -9.5H3V-3H9.5V3H3V9.5H-3V3H-9.5V-3H-3Z"
_CROSS = "M-8.8 -6.2 -6.2 -8.8 0 -2.6 6.2 -8.8 8.8 -6.2 2.6 0 8.8 6.2 6.2 8.8 0 2.6 -6.2 8.8 -8.8 6.2 -2.6 0Z"
_PAGE = "M-7 -9H7V9H-7Z"
_PAGE_LINES = "M-4.5 -5.5H4.5M-4.5 -1.8H4.5M-4.5 1.8H4.5M-4.5 5.5H4.5"


def circle(radius: float, x: float = 0.0, y: float = 0.0) -> str:
    arc = f"a{radius:g} {radius:g} 0 1 0"
    return f"M{x - radius:g} {y:g}{arc} {2 * radius:g} 0{arc} {-2 * radius:g} 0Z"


def _clock() -> str:
    ticks = []
    for hour in range(12):
        angle = math.tau * hour / 12
        inner, outer = 7.6, 10.0
        ticks.append(
            f"M{inner * math.cos(angle):.1f} {inner * math.sin(angle):.1f}"
            f"L{outer * math.cos(angle):.1f} {outer * math.sin(angle):.1f}"
        )
    return "".join(ticks) + "M1.8 -6.5 0 0 5 1"


_CLOCK = _clock()


def _filled(path: str) -> tuple[list[Stroke], list[Stroke]]:
    return [("line", path)], [("ink", path)]


EVENT_SYMBOLS: Final[dict[str, tuple[list[Stroke], list[Stroke]]]] = {
    "": ([], []),
    "message": ([("line", _ENVELOPE), ("line", _FLAP)], [("ink", _ENVELOPE), ("cut", _FLAP)]),
    "timer": ([("line", circle(10)), ("line", _CLOCK)],) * 2,
    "error": _filled(_BOLT),
    "escalation": _filled(_ARROW_UP),
    "conditional": ([("line", _PAGE), ("line", _PAGE_LINES)],) * 2,
    "signal": _filled(_TRIANGLE),
    "compensate": _filled(_REWIND),
    "cancel": _filled(_CROSS),
    "terminate": ([("ink", circle(10.5))],) * 2,
    "link": _filled(_LINK),
    "multiple": _filled(_PENTAGON),
    "parallelMultiple": _filled(_PLUS),
}
"""The symbols of events by the names of their definitions: that of one that catches, and that of one that throws."""


def _gear(radius: float, teeth: int, x: float, y: float) -> str:
    points = []
    for step in range(teeth * 4):
        angle = math.tau * (step - 0.5) / (teeth * 4)
        reach = radius if step % 4 in (0, 1) else radius * 0.74
        points.append(f"{x + reach * math.cos(angle):.1f} {y + reach * math.sin(angle):.1f}")
    return f"M{' '.join(points)}Z"


_GEARS = [
    ("line", _gear(6.2, 8, -1.8, -1.8)),
    ("line", circle(2, -1.8, -1.8)),
    ("shape", _gear(6.2, 8, 2.2, 2.2)),
    ("line", circle(2, 2.2, 2.2)),
]
_PERSON = [
    ("line", "M-8 8.5V5.2C-8 2.4 -5.6 .9 -3 .3L0 3 3 .3C5.6 .9 8 2.4 8 5.2V8.5Z"),
    ("line", "M-4.6 8.5V5.2M4.6 8.5V5.2"),
    ("shape", circle(4.1, 0, -4)),
    ("ink", "M-4.1 -4.4C-4.4 -9.6 4.4 -9.6 4.1 -4.4C2.4 -3.6 1.4 -5 0 -5.2C-1.4 -5 -2.4 -3.6 -4.1 -4.4Z"),
]
_SCROLL = [
    ("line", "M6.5 -8H-3.5C-8.5 -4 -1 1.5 -6.5 8H3.5C9 1.5 1.5 -4 6.5 -8Z"),
    ("line", "M-3.4 -4.6H3M-2.2 -1.6H4.2M-2 1.6H4.4M-3.6 4.8H2.8"),
]
_HAND = [
    (
        "line",
        "M-8 -3.2 -3.6 -6.6C-2.8 -7.2 -2 -7.3 -1 -7.3H2.2C4 -7.3 4 -4.7 2.2 -4.7H-.6H6.6C8.6 -4.7 8.6 -2 6.6 -2H1.6"
        "H7.4C9.4 -2 9.4 .8 7.4 .8H1.6H6.6C8.5 .8 8.5 3.4 6.6 3.4H1.6H5C6.8 3.4 6.8 5.9 5 5.9H-2.4"
        "C-4.6 5.9 -6.4 5.2 -8 3.8Z",
    )
]
_TABLE = [
    ("wash", "M-8.5 -6.5H8.5V-2.5H-8.5Z"),
    ("line", "M-8.5 -6.5H8.5V6.5H-8.5ZM-8.5 -2.5H8.5M-8.5 2H8.5M-3.5 -2.5V6.5"),
]
TASK_SYMBOLS: Final[dict[str, list[Stroke]]] = {
    "bpmn:task": [],
    "bpmn:userTask": _PERSON,
    "bpmn:serviceTask": _GEARS,
    "bpmn:scriptTask": _SCROLL,
    "bpmn:manualTask": _HAND,
    "bpmn:businessRuleTask": _TABLE,
    "bpmn:sendTask": [("ink", "M-8.5 -5.5H8.5V5.5H-8.5Z"), ("cut", "M-8.5 -5.5 0 1 8.5 -5.5")],
    "bpmn:receiveTask": [("line", "M-8.5 -5.5H8.5V5.5H-8.5Z"), ("line", "M-8.5 -5.5 0 1 8.5 -5.5")],
}

_WAVE = "M-7 2.6C-5 -3.6 -2.4 -3 0 -.9 2.4 1.2 4.8 1.8 7 -2.6V-.2C5 5 2.4 4.4 0 2.3 -2.4 .2 -4.8 -.4 -7 4.8Z"
MARKERS: dict[str, list[Stroke]] = {
    "loop": [("line", "M-3.2 5.4A6 6 0 1 1 1.6 5.7"), ("line", "M-7 5.8H-2.9V1.8")],
    "parallel": [("bar", "M-4.5 -6V6M0 -6V6M4.5 -6V6")],
    "sequential": [("bar", "M-6 -4.5H6M-6 0H6M-6 4.5H6")],
    "compensation": [("line", "M-7.5 0 -.5 -5V5ZM-.5 0 6.5 -5V5Z")],
    "ad hoc": [("ink", _WAVE)],
    "closed": [("line", "M-7 -7H7V7H-7Z"), ("line", "M0 -4.2V4.2M-4.2 0H4.2")],
}


def _event_gateway(element: XmlElement, marked: bool) -> Iterator[Stroke]:
    yield ("line", circle(12.5))
    if element.get("instantiate") != "true":
        yield ("line", circle(10.2))
    if element.get("eventGatewayType") == "Parallel":
        yield ("line", "M-2 -7H2V-2H7V2H2V7H-2V2H-7V-2H-2Z")
    else:
        yield ("line", "M0 -7 6.8 -2.1 4.2 5.8H-4.2L-6.8 -2.1Z")


_X = "M-7.4 -9.5H-3.7L0 -3.3 3.7 -9.5H7.4L1.9 0 7.4 9.5H3.7L0 3.3 -3.7 9.5H-7.4L-1.9 0Z"
GATEWAY_SYMBOLS: Final[dict[str, Callable[[XmlElement, bool], Iterable[Stroke]]]] = {
    "bpmn:exclusiveGateway": lambda _, marked: [("ink", _X)] if marked else [],
    "bpmn:parallelGateway": lambda *_: [("ink", "M-2 -11.5H2V-2H11.5V2H2V11.5H-2V2H-11.5V-2H-2Z")],
    "bpmn:inclusiveGateway": lambda *_: [("bold", circle(10.5))],
    "bpmn:complexGateway": lambda *_: [("bold", "M0 -11.5V11.5M-11.5 0H11.5M-7.6 -7.6 7.6 7.6M-7.6 7.6 7.6 -7.6")],
    "bpmn:eventBasedGateway": _event_gateway,
}
"""The marker in a gateway 50 units wide. That of an exclusive gateway is drawn if it is `marked`."""


def drawn(strokes: Iterable[Stroke]) -> str:
    """Strokes as SVG."""
    return "".join(f'<path class="{kind}" d="{data}"/>' for kind, data in strokes)
