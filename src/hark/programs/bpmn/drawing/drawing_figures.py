"""Figures as SVG: events, activities, gateways, pools, lanes, data and notes."""

from __future__ import annotations

from hark.programs.bpmn.bpmn_elements import START_EVENTS
from hark.programs.bpmn.drawing.drawing_labels import note_inside, text_along, text_inside, text_lines
from hark.programs.bpmn.drawing.drawing_scene import (
    ACTIVITIES,
    CALLS,
    EVENTS,
    GATEWAYS,
    LANES,
    POOLS,
    SUBPROCESSES,
    TASKS,
    Box,
    Figure,
)
from hark.programs.bpmn.drawing.drawing_symbols import EVENT_SYMBOLS, GATEWAY_SYMBOLS, MARKERS, TASK_SYMBOLS, drawn
from hark.programs.bpmn.drawing.drawing_text import LEADING, SIZE, wrapped
from hark.programs.bpmn.drawing.drawing_words import definitions_of
from hark.programs.svg import number

_HEAD = 30.0


def draw_figure(figure: Figure, *, is_marked: bool = False) -> str:
    """Draw a figure without its label. If something is marked on it, its own colors give way."""
    paint = _paint(figure) if not is_marked else ""
    if figure.tag in EVENTS:
        return _event(figure, paint)
    if figure.tag in ACTIVITIES:
        return _activity(figure, paint)
    if figure.tag in GATEWAYS:
        return _gateway(figure, paint)
    if figure.tag in POOLS | LANES:
        return _pool(figure, paint)
    match figure.element.name:
        case "textAnnotation":
            return _note(figure)
        case "group":
            return _rect(figure.place, "group", paint="", radius=10)
        case "dataStoreReference" | "dataStore":
            return _store(figure.place, paint)
    return _page(figure, paint)


def class_of_colors(figure: Figure) -> str:
    """The class for everything drawn on the color that the file gives a figure."""
    if figure.fill is None:
        return ""
    digits = figure.fill[1:] if len(figure.fill) == 7 else "".join(digit * 2 for digit in figure.fill[1:])
    red, green, blue = (int(digits[at : at + 2], 16) for at in (0, 2, 4))
    return "on-light" if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "on-dark"


def _paint(figure: Figure) -> str:
    """The colors of the file as attributes; empty if it has none."""
    if figure.fill is None:
        return ""
    return f' fill="{figure.fill}" stroke="{figure.stroke or "#182230"}"'


def _kind(paint: str, kind: str) -> str:
    """The classes of an outline; one with colors of its own does not take those of the style."""
    return kind if not paint else f"tint {kind.replace('shape', '').replace('scope', '')}".rstrip()


def _rect(box: Box, kind: str, paint: str, radius: float = 0.0) -> str:
    corner = f' rx="{number(min(radius, box.width / 4, box.height / 4))}"' if radius else ""
    return (
        f'<rect class="{_kind(paint, kind)}" x="{number(box.x)}" y="{number(box.y)}" width="{number(box.width)}" '
        f'height="{number(box.height)}"{corner}{paint}/>'
    )


def _at(x: float, y: float, scale: float, body: str) -> str:
    if not body:
        return ""
    grown = f" scale({scale:.3g})" if abs(scale - 1) > 0.01 else ""
    return f'<g transform="translate({number(x)} {number(y)}){grown}">{body}</g>'


def _event(figure: Figure, paint: str) -> str:
    box = figure.place
    radius = min(box.width, box.height) / 2
    scale = radius / 18
    dashed = " dashed" if _keeps_running(figure) else ""
    rim = figure.row.rim
    thick = " thick" if rim == "thick" else ""
    x, y = box.center
    spot = f'cx="{number(x)}" cy="{number(y)}"'
    parts = [f'<circle class="{_kind(paint, f"shape{thick}{dashed}")}" {spot} r="{number(radius)}"{paint}/>']
    if rim == "double":
        parts.append(f'<circle class="line{dashed}" {spot} r="{number(max(radius - 3 * scale, 1))}"/>')
    parts.append(_at(x, y, scale * (0.82 if rim == "double" else 0.9), _event_marker(figure)))
    return "".join(parts)


def _keeps_running(figure: Figure) -> bool:
    """Return True if an event does not interrupt the activity or scope that it is attached to."""
    attribute = figure.row.interrupting
    return attribute is not None and figure.element.get(attribute) == "false"


def _event_marker(figure: Figure) -> str:
    found = definitions_of(figure.element)
    kind = found[0] if len(found) == 1 else "multiple" if found else ""
    if kind == "multiple" and figure.element.get("parallelMultiple") == "true":
        kind = "parallelMultiple"
    return drawn(EVENT_SYMBOLS[kind][figure.row.throws]) if kind in EVENT_SYMBOLS else ""


def _activity(figure: Figure, paint: str) -> str:
    box = figure.place
    opened = figure.tag in SUBPROCESSES and figure.expanded
    kind = "scope" if opened else "shape"
    if figure.element.get("triggeredByEvent") == "true":
        kind += " rim"
    if figure.tag in CALLS:
        kind += " call"
    parts = [_rect(box, kind, paint, radius=10)]
    if figure.row.is_transaction:
        parts.append(_rect(box.grown(-3.5), "line", "", radius=8))
    scale = min(1.0, box.width / 80, box.height / 60)
    symbol = drawn(TASK_SYMBOLS.get(figure.tag, []))
    if symbol and figure.element.get("instantiate") == "true":
        symbol = drawn([("line", "M-11 0a11 11 0 1 0 22 0a11 11 0 1 0 -22 0Z")]) + _at(0, 0, 0.75, symbol)
    elif figure.tag in SUBPROCESSES and not opened and kind.endswith("rim"):
        symbol = _start_of(figure)
    parts.append(_at(box.x + 15 * scale, box.y + 14 * scale, scale, symbol))
    markers = _markers_of(figure)
    x = box.center.x - 9 * scale * (len(markers) - 1)
    for marker in markers:
        parts.append(_at(x, box.bottom - 12 * scale, scale, drawn(MARKERS[marker])))
        x += 18 * scale
    parts.append(text_inside(figure, has_symbol=bool(symbol), has_markers=bool(markers)))
    return "".join(parts)


def _start_of(figure: Figure) -> str:
    """The start event of a closed event sub-process, small."""
    start = next((child for child in figure.children if child.tag in START_EVENTS), None)
    if start is None:
        return ""
    dashed = " dashed" if _keeps_running(start) else ""
    return f'<circle class="line{dashed}" r="9"/>' + _at(0, 0, 0.5, _event_marker(start))


def _markers_of(figure: Figure) -> list[str]:
    found: list[str] = []
    element = figure.element
    if element.first("bpmn:standardLoopCharacteristics") is not None:
        found.append("loop")
    if (many := element.first("bpmn:multiInstanceLoopCharacteristics")) is not None:
        found.append("sequential" if many.get("isSequential") == "true" else "parallel")
    if element.get("isForCompensation") == "true":
        found.append("compensation")
    if figure.row.marker is not None:
        found.append(figure.row.marker)
    if figure.tag not in TASKS and not (figure.tag in SUBPROCESSES and figure.expanded):
        found.append("closed")
    return found


def _gateway(figure: Figure, paint: str) -> str:
    box = figure.place
    x, y = box.center
    data = f"M{number(x)} {number(box.y)}L{number(box.right)} {number(y)} {number(x)} {number(box.bottom)} "
    symbol = drawn(GATEWAY_SYMBOLS[figure.tag](figure.element, figure.marked))
    outline = f'<path class="{_kind(paint, "shape")}" d="{data}{number(box.x)} {number(y)}Z"{paint}/>'
    return outline + _at(x, y, min(box.width, box.height) / 50, symbol)


def _pool(figure: Figure, paint: str) -> str:
    box = figure.place
    parts = [_rect(box, "lane" if figure.tag in LANES else "pool", paint)]
    if figure.tag in POOLS and not figure.expanded and box.height > 2 * box.width:
        parts.append(text_along(figure, box.width, upright=True))
    elif figure.tag in POOLS and not figure.expanded:
        lines = wrapped(figure.name, box.width - 12, SIZE, max(int((box.height - 8) / (SIZE * LEADING)), 1))
        parts.append(text_lines(lines, box.center.x, box.center.y - len(lines) * SIZE * LEADING / 2, SIZE))
    else:
        parts.append(text_along(figure, _HEAD))
        if figure.tag in POOLS:
            line = f"V{number(box.bottom)}" if figure.horizontal else f"H{number(box.right)}"
            x, y = (box.x + _HEAD, box.y) if figure.horizontal else (box.x, box.y + _HEAD)
            parts.append(f'<path class="pool" d="M{number(x)} {number(y)}{line}"/>')
    if figure.element.first("bpmn:participantMultiplicity") is not None:
        parts.append(_at(box.center.x, box.bottom - 12, 1, drawn(MARKERS["parallel"])))
    return "".join(parts)


def _note(figure: Figure) -> str:
    box = figure.place
    data = f"M{number(box.x + 10)} {number(box.y)}H{number(box.x)}V{number(box.bottom)}H{number(box.x + 10)}"
    return f'<path class="line" d="{data}"/>{note_inside(figure)}'


def _page(figure: Figure, paint: str) -> str:
    """A data object: a page with a corner folded."""
    box = figure.place
    fold = min(10.0, box.width / 3, box.height / 3)
    corner = f"{number(box.right - fold)} {number(box.y)}"
    data = (
        f"M{number(box.x)} {number(box.y)}H{number(box.right - fold)}L{number(box.right)} {number(box.y + fold)}"
        f"V{number(box.bottom)}H{number(box.x)}Z"
    )
    parts = [
        f'<path class="{_kind(paint, "shape")}" d="{data}"{paint}/>',
        f'<path class="line" d="M{corner}V{number(box.y + fold)}H{number(box.right)}"/>',
    ]
    arrow = "M-7 -3H1V-6.5L7 0 1 6.5V3H-7Z"
    match figure.element.name:
        case "dataInput":
            parts.append(_at(box.x + 11, box.y + 11, 0.9, drawn([("line", arrow)])))
        case "dataOutput":
            parts.append(_at(box.x + 11, box.y + 11, 0.9, drawn([("ink", arrow)])))
    if figure.element.get("isCollection") == "true":
        parts.append(_at(box.center.x, box.bottom - 9, 0.8, drawn(MARKERS["parallel"])))
    return "".join(parts)


def _store(box: Box, paint: str) -> str:
    """A data store: a drum."""
    rise = min(8.0, box.height / 6)
    half = box.width / 2
    arc = f"a{number(half)} {number(rise)} 0 0"
    left, top = number(box.x), box.y + rise
    data = (
        f"M{left} {number(top)}{arc} 1 {number(box.width)} 0V{number(box.bottom - rise)}{arc} 1 {number(-box.width)} 0Z"
    )
    rings = "".join(f"M{left} {number(top + step)}{arc} 0 {number(box.width)} 0" for step in (0.0, rise / 2, rise))
    return f'<path class="{_kind(paint, "shape")}" d="{data}"{paint}/><path class="line" d="{rings}"/>'
