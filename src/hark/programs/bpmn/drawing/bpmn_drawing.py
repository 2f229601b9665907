"""Draw a BPMN file as SVG, with marks on it.

The file is drawn as its modeler shows it, from its own coordinates; what has none is laid out (layout.py). Files that
deploy refuses are drawn too, as long as they are XML.
"""

from __future__ import annotations

from collections.abc import Iterator

from hark.programs.bpmn.diagram_marks import Marks
from hark.programs.bpmn.drawing.drawing_elements import read_scene
from hark.programs.bpmn.drawing.drawing_figures import class_of_colors, draw_figure
from hark.programs.bpmn.drawing.drawing_labels import Label, draw_label, labels_of, text_lines
from hark.programs.bpmn.drawing.drawing_marks import LEGEND_HEIGHT, badge_room, badges_of, classes_of, count_on, legend
from hark.programs.bpmn.drawing.drawing_panels import panels_of
from hark.programs.bpmn.drawing.drawing_scene import LANES, POOLS, SUBPROCESSES, Box, Figure, Panel, Wire, bounds
from hark.programs.bpmn.drawing.drawing_style import sheet
from hark.programs.bpmn.drawing.drawing_wires import draw_wire
from hark.programs.bpmn.drawing.drawing_words import cut, description, title_of
from hark.programs.bpmn.file.xml_tree import XmlElement, parse_xml
from hark.programs.svg import document, escape, number

_MARGIN, _APART, _HEADING = 24.0, 40.0, 30.0


def draw(xml: str, process: str | None = None, marks: Marks | None = None) -> str:
    """A BPMN file as SVG.

    Args:
        xml: The text of the file.
        process: Only the diagram that shows this process; None: all of the file.
        marks: What to show on it: tokens, waits, incidents, history.

    Raises:
        InvalidDefinition: The text is not XML that Hark reads.
        NotFound: The file has no such process.
    """
    root = parse_xml(xml).root
    marks = marks or Marks()
    panels = panels_of(read_scene(root), process)
    body: list[str] = []
    y, widest = _MARGIN, 0.0
    for panel in panels:
        if panel.title is not None:
            body.append(f'<g class="heading">{text_lines([cut(panel.title)], _MARGIN, y, 13)}</g>')
            y += _HEADING
        labels = list(labels_of(panel.figures, panel.wires).values())
        room = _room(panel, labels, marks)
        body.append(f'<g transform="translate({number(_MARGIN - room.x)} {number(y - room.y)})">')
        body += _drawn(panel, labels, marks)
        body.append("</g>")
        y += room.height + _APART
        widest = max(widest, room.width)
    key, width = legend(marks, _MARGIN, y - _APART + _MARGIN)
    height = y - _APART + _MARGIN if panels else 2 * _MARGIN
    if key:
        body.append(key)
        height += LEGEND_HEIGHT + _MARGIN / 2
    size = (max(widest, width, 100.0) + 2 * _MARGIN, height)
    title = _title(root, process)
    return document(body, size=size, title=title, description=description(panels, marks), sheet=sheet())


def _title(root: XmlElement, process: str | None) -> str:
    for element in [*root.all("bpmn:process"), *root.all("bpmn:collaboration"), root]:
        name = element.get("name") or element.get("id")
        if name and (process is None or element.get("id") == process):
            return cut(name)
    return "BPMN"


def _room(panel: Panel, labels: list[Label], marks: Marks) -> Box:
    """The box around everything that is drawn in a panel."""
    boxes = [figure.place for figure in panel.figures]
    boxes += [Box(*point, 0, 0) for wire in panel.wires for point in wire.points]
    boxes += [label.box for label in labels]
    boxes += [box for figure in panel.figures if (box := badge_room(figure, marks)) is not None]
    return bounds(boxes).grown(4) if boxes else Box(0, 0, 0, 0)


def _rank(figure: Figure) -> int:
    """The rank in the order of drawing; lower ranks lie below: pools, lanes, open sub-processes from the outside in."""
    if figure.tag in POOLS:
        return 0
    depth = 1
    parent = figure.parent
    while parent is not None:
        depth += 1
        parent = parent.parent
    if figure.tag in LANES:
        return depth
    return 200 + depth


def _is_ground(figure: Figure) -> bool:
    return figure.tag in POOLS | LANES | {"bpmn:group"} or (figure.tag in SUBPROCESSES and figure.expanded)


def _drawn(panel: Panel, labels: list[Label], marks: Marks) -> Iterator[str]:
    """Grounds, then wires, then what stands on them, then texts and badges."""
    for figure in sorted(filter(_is_ground, panel.figures), key=_rank):
        yield _figure(figure, marks)
    for wire in panel.wires:
        yield _wire(wire, marks)
    tops = [figure for figure in panel.figures if not _is_ground(figure)]
    for figure in sorted(tops, key=lambda one: one.host is not None):
        yield _figure(figure, marks)
    yield from map(draw_label, labels)
    for wire in panel.wires:
        yield count_on(wire, marks)
    for figure in panel.figures:
        if badges := badges_of(figure, marks):
            yield badges


def _figure(figure: Figure, marks: Marks) -> str:
    marked = classes_of(figure, marks)
    colors = [class_of_colors(figure)] if not marked else []
    kind = " ".join(filter(None, [f"bpmn-{figure.element.name}", *colors, *marked]))
    drawing = draw_figure(figure, is_marked=bool(marked))
    return f'<g class="{kind}" data-element="{escape(figure.key)}">{_titled(figure, marks)}{drawing}</g>'


def _wire(wire: Wire, marks: Marks) -> str:
    kind = " ".join([f"bpmn-{wire.element.name}", *classes_of(wire, marks)])
    return f'<g class="{kind}" data-element="{escape(wire.key)}">{_titled(wire, marks)}{draw_wire(wire)}</g>'


def _titled(thing: Figure | Wire, marks: Marks) -> str:
    return f"<title>{escape(title_of(thing, marks))}</title>"
