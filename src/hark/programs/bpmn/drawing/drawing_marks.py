"""Marks on a diagram: badges on elements, counts on flows, and the legend that explains them.

A mark has a shape and a color of its own, so that it can be told apart without colors: a disc with a number is a token,
an hourglass is a wait, a triangle with `!` is an incident.
"""

from __future__ import annotations

from hark.programs.bpmn.diagram_marks import Marks
from hark.programs.bpmn.drawing.drawing_scene import Box, Figure, Wire, middle
from hark.programs.bpmn.drawing.drawing_text import width_of
from hark.programs.svg import escape, number

_HALF, _STEP = 9.0, 21.0
LEGEND_HEIGHT = 40.0


def classes_of(thing: Figure | Wire, marks: Marks) -> list[str]:
    """The classes that color a marked figure or wire."""
    if isinstance(thing, Wire):
        return ["taken"] if marks.taken.get(thing.key, 0) > 0 else []
    found = []
    if marks.visited.get(thing.key, 0) > 0:
        found.append("visited")
    if marks.tokens.get(thing.key, 0) > 0:
        found.append("has-token")
    if thing.key in marks.incidents:
        found.append("has-incident")
    return found


def badges_of(figure: Figure, marks: Marks) -> str:
    """The badges of a figure, on its upper edge from the right."""
    found: list[str] = []
    if (count := marks.tokens.get(figure.key, 0)) > 0:
        found.append(_token(count))
    if figure.key in marks.waits:
        found.append(_WAIT)
    if figure.key in marks.incidents:
        found.append(_INCIDENT)
    box = figure.place
    x = box.right - min(6.0, box.width / 4)
    return "".join(_at(x - _STEP * index, box.y - 2, badge) for index, badge in enumerate(found))


def badge_room(figure: Figure, marks: Marks) -> Box | None:
    """The room that the badges of a figure take beyond it."""
    if not (figure.key in marks.tokens or figure.key in marks.waits or figure.key in marks.incidents):
        return None
    box = figure.place
    return Box(box.right - 3 * _STEP, box.y - 14, 3 * _STEP + 16, 14)


def count_on(wire: Wire, marks: Marks) -> str:
    """The number of times a flow was taken, if more than once."""
    count = marks.taken.get(wire.key, 0)
    if count < 2:
        return ""
    text = f"×{_short(count)}"
    width = width_of(text, 10) + 8
    return _at(*middle(wire.points, 0.3), _pill("times", width, 8, text, "count"))


def legend(marks: Marks, x: float, y: float) -> tuple[str, float]:
    """Draw the meaning of the marks that are there. Return the drawing and its width; empty if nothing is marked."""
    items: list[tuple[str, str]] = []
    if any(count > 0 for count in marks.tokens.values()):
        items.append((_token(1), "tokens here"))
    if marks.waits:
        items.append((_WAIT, "waits"))
    if marks.incidents:
        items.append((_INCIDENT, "incident"))
    if any(count > 0 for count in marks.visited.values()):
        items.append((_VISITED, "entered"))
    if any(count > 0 for count in marks.taken.values()):
        items.append((_TAKEN, "taken"))
    if not items:
        return "", 0.0
    parts: list[str] = []
    at = x + 22
    for badge, text in items:
        width = width_of(text, 12)
        parts.append(_at(at, y + 15, badge))
        parts.append(f'<g class="left"><text x="{number(at + 16)}" y="{number(y + 19)}">{escape(text)}</text></g>')
        at += 16 + width + 32
    width = at - x - 22
    frame = f'<rect class="key" x="{number(x)}" y="{number(y)}" width="{number(width)}" height="30" rx="6"/>'
    return f'<g class="legend"><title>Legend</title>{frame}{"".join(parts)}</g>', width


def _short(count: int) -> str:
    return str(count) if count < 10_000 else f"{count // 1000}k" if count < 10_000_000 else f"{count // 1_000_000}M"


def _at(x: float, y: float, body: str) -> str:
    return f'<g transform="translate({number(x)} {number(y)})">{body}</g>'


def _pill(kind: str, width: float, half: float, text: str, group: str = "") -> str:
    return (
        f'<g class="badge {group}"><rect class="disc {kind}" x="{number(-width / 2)}" y="{number(-half)}" '
        f'width="{number(width)}" height="{number(2 * half)}" rx="{number(half)}"/>'
        f'<text y="{number(half * 0.42)}">{escape(text)}</text></g>'
    )


def _token(count: int) -> str:
    text = _short(count)
    return _pill("token", max(2 * _HALF, width_of(text, 11) + 10), _HALF, text)


_WAIT = (
    '<g class="badge"><circle class="disc wait" r="9"/><path class="sign" d="M-3.6 -5H3.6L.6 0 3.6 5H-3.6L-.6 0Z"/></g>'
)
_INCIDENT = (
    '<g class="badge"><path class="disc incident" d="M0 -11 11 8.5H-11Z"/>'
    '<path class="sign" d="M-1 -4.5H1L.6 2.2H-.6ZM-.9 4.4H.9V6H-.9Z"/></g>'
)
_VISITED = '<g class="visited"><rect class="shape" x="-9" y="-7" width="18" height="14" rx="3"/></g>'
_TAKEN = '<g class="taken"><path class="flow" d="M-9 0H4"/><path class="head" d="M9 0 1 -4.5V4.5Z"/></g>'
