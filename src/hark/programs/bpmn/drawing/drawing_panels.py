"""Choose the parts of a file that are drawn, and place them: by the file's own coordinates where it has them.

A panel is a diagram of the file, or what is laid out because the file has no coordinates for it. A sub-process that is
drawn closed but has something in it gets a panel of its own, so that tokens in it can be seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hark.model.errors import NotFound
from hark.programs.bpmn.drawing.drawing_coordinates import EdgePlace, Plane, ShapePlace, read_planes
from hark.programs.bpmn.drawing.drawing_docks import connect
from hark.programs.bpmn.drawing.drawing_scene import (
    LAID_OUT,
    LANES,
    POOLS,
    SUBPROCESSES,
    Box,
    Figure,
    Panel,
    Scene,
    Wire,
    bounds,
)
from hark.programs.bpmn.file.xml_tree import XmlElement
from hark.programs.bpmn.layout.layout import Joins, joins_of, lay_out
from hark.programs.bpmn.layout.layout_columns import Part
from hark.programs.bpmn.layout.layout_pools import lay_out_pools
from hark.programs.bpmn.layout.layout_sizes import EVENT

_BELOW = 60.0


@dataclass(slots=True)
class _Sheet:
    """A plane whose references are resolved."""

    element: Figure | None
    shapes: dict[Figure, ShapePlace]
    edges: dict[Wire, EdgePlace]


def panels_of(scene: Scene, process: str | None) -> list[Panel]:
    """The panels to draw, with everything in its place.

    Args:
        scene: What the file has.
        process: Only the diagram of this process, with the other pools of its collaboration; None: all of the file.

    Raises:
        NotFound: The file has no such process.
    """
    sheets = [_sheet(scene, plane) for plane in read_planes(scene.root)]
    owners = _owners(scene, process)
    joins = joins_of(scene.wires.values())
    edges: dict[Panel, Mapping[Wire, EdgePlace]] = {}
    for owner, found in owners:
        title = (owner.get("name") or owner.get("id")) if len(owners) > 1 else None
        edges |= _panels(joins, sheets, title, found)
    panels = list(edges)
    _add_wires(scene, panels, edges)
    return panels


def _sheet(scene: Scene, plane: Plane) -> _Sheet:
    shapes: dict[Figure, ShapePlace] = {}
    for reference, shape in plane.shapes.items():
        if (figure := scene.figure(reference)) is not None:
            shapes.setdefault(figure, shape)
    edges: dict[Wire, EdgePlace] = {}
    for reference, edge in plane.edges.items():
        if isinstance(wire := scene.end(reference), Wire):
            edges.setdefault(wire, edge)
    return _Sheet(scene.figure(plane.element), shapes, edges)


def _owners(scene: Scene, process: str | None) -> list[tuple[XmlElement, list[Figure]]]:
    """The collaborations and processes to draw, each with the figures that are directly in it."""
    tops: dict[XmlElement, list[Figure]] = {}
    for figure in scene.figures.values():
        if figure.parent is None and figure.owner is not None:
            tops.setdefault(figure.owner, []).append(figure)
    processes = {element.get("id"): element for element in scene.root.all("bpmn:process")}
    found: list[tuple[XmlElement, list[Figure]]] = []
    joined: set[XmlElement] = set()
    for owner in scene.root.all("bpmn:collaboration", "bpmn:choreography"):
        figures = list(tops.get(owner, ()))
        inside = [processes[key] for pool in figures if (key := _process_of(pool)) in processes]
        if process is None or any(element.get("id") == process for element in inside):
            found.append((owner, figures + [one for element in dict.fromkeys(inside) for one in tops.get(element, ())]))
            joined.update(inside)
    for key, element in processes.items():
        if element not in joined and (process is None or key == process):
            found.append((element, tops.get(element, [])))
    if process is not None and not found:
        raise NotFound(f"The file has no process {process!r}. It has: {', '.join(map(str, processes)) or 'none'}.")
    with_figures = [pair for pair in found if pair[1]]
    return with_figures[:1] if process is not None else with_figures


def _process_of(pool: Figure) -> str | None:
    return (pool.element.get("processRef") or "").rpartition(":")[2] or None


def _panels(
    joins: Joins, sheets: list[_Sheet], title: str | None, figures: list[Figure]
) -> dict[Panel, Mapping[Wire, EdgePlace]]:
    """The panel of a process or collaboration, and those of its closed sub-processes, with the ways in the file."""
    best = max(sheets, key=lambda sheet: sum(one in sheet.shapes for one in figures), default=None)
    if best is not None and not any(one in best.shapes for one in figures):
        best = None
    panels: dict[Panel, Mapping[Wire, EdgePlace]] = {}
    todo: list[tuple[str | None, list[Figure], _Sheet | None]] = [(title, figures, best)]
    while todo:
        heading, inside, sheet = todo.pop(0)
        panel = Panel(heading)
        closed: list[tuple[Figure, _Sheet | None]] = []
        if sheet is None or not _place(panel, inside, sheet, sheets, closed, joins):
            closed = []
            part = _laid_out(inside, joins)
            panel = Panel(heading, part.figures)
            for figure in part.figures:
                figure.marked = figure.horizontal = True
        panels[panel] = sheet.edges if sheet is not None else {}
        todo += [(f"In {figure.name or figure.key}", figure.children, of) for figure, of in closed]
    return panels


def _place(
    panel: Panel,
    figures: list[Figure],
    sheet: _Sheet,
    sheets: list[_Sheet],
    closed: list[tuple[Figure, _Sheet | None]],
    joins: Joins,
) -> bool:
    """Take the places of figures from the file. Returns False if most have none, or one in a sub-process."""
    missing: list[Figure] = []
    direct = set(figures)
    todo = list(figures)
    for figure in todo:  # grows while it is walked
        shape = sheet.shapes.get(figure)
        if figure.host is not None and figure.host not in sheet.shapes:
            shape = None  # it goes where its host goes
        if shape is None:
            if figure.host is not None and figure.host in sheet.shapes:
                continue
            if figure.tag in LAID_OUT:
                if figure.parent is not None and figure not in direct:
                    return False
                missing.append(figure)
            elif figure.tag in LANES:
                todo += figure.children
            continue
        _take(figure, shape)
        panel.figures.append(figure)
        panel.from_file.add(figure)
        for event in figure.boundaries:
            if event not in sheet.shapes:
                _attach(event)
                panel.figures.append(event)
        if figure.tag in SUBPROCESSES:
            _open_or_close(figure, shape, sheet, sheets, closed)
        if figure.tag in LANES or (figure.tag in SUBPROCESSES and figure.expanded):
            todo += figure.children
    if len(missing) > len(panel.from_file):
        return False  # a few places among many without one say little
    if missing:
        part = lay_out(missing, joins)
        around = bounds([figure.place for figure in panel.figures])
        part.move(around.x, around.bottom + _BELOW)
        panel.figures += part.figures
    return True


def _take(figure: Figure, shape: ShapePlace) -> None:
    figure.box, figure.label = shape.box, shape.label
    figure.fill, figure.stroke = shape.fill, shape.stroke
    figure.marked = shape.marked
    if shape.horizontal is not None:
        figure.horizontal = shape.horizontal
    elif figure.tag in LANES | POOLS:
        figure.horizontal = shape.box.width >= shape.box.height or figure.tag in LANES


def _attach(event: Figure) -> None:
    """Put a boundary event without a place on the lower edge of its host."""
    assert event.host is not None
    box = event.host.place
    x = box.right - (EVENT + 10) * (event.host.boundaries.index(event) + 1)
    event.box = Box(max(x, box.x - EVENT / 2), box.bottom - EVENT / 2, EVENT, EVENT)


def _open_or_close(
    figure: Figure, shape: ShapePlace, sheet: _Sheet, sheets: list[_Sheet], closed: list[tuple[Figure, _Sheet | None]]
) -> None:
    """Decide whether the inside of a sub-process is drawn in its box or in a panel of its own."""
    inside = [child for child in figure.children if child.tag in LAID_OUT]
    own = next((one for one in sheets if one.element is figure and any(c in one.shapes for c in inside)), None)
    here = [sheet.shapes[child].box for child in inside if child in sheet.shapes]
    # Some modelers write that it is closed although its inside is drawn in it, others do not say: what is seen counts.
    fits = bool(here) and all(shape.box.holds(Box(*box.center, 0, 0)) for box in here)
    figure.expanded = own is None and (fits or (shape.expanded is True and (bool(here) or not inside)))
    if inside and not figure.expanded:
        closed.append((figure, own or (sheet if here else None)))


def _laid_out(figures: list[Figure], joins: Joins) -> Part:
    pools = [figure for figure in figures if figure.tag in POOLS]
    if not pools:
        return lay_out(figures, joins)
    others = [figure for figure in figures if figure.owner is pools[0].owner and figure.tag not in POOLS]
    tops: dict[str | None, list[Figure]] = {}
    for figure in figures:
        if figure.owner is not None and figure.owner is not pools[0].owner:
            tops.setdefault(figure.owner.get("id"), []).append(figure)
    return lay_out_pools(pools, {pool: tops.pop(_process_of(pool), []) for pool in pools}, others, joins)


def _add_wires(scene: Scene, panels: list[Panel], edges: Mapping[Panel, Mapping[Wire, EdgePlace]]) -> None:
    """The wires of each panel: those between its figures, then those whose ends are wires."""
    home: dict[Figure | Wire, Panel] = {figure: panel for panel in panels for figure in panel.figures}
    for to_wires in (False, True):
        for wire in scene.wires.values():
            ends = [end for end in (wire.source, wire.target) if end is not None]
            if any(isinstance(end, Wire) for end in ends) is not to_wires:
                continue
            found = {home.get(end) for end in ends} or {next((one for one in panels if wire in edges[one]), None)}
            panel = found.pop() if len(found) == 1 else None
            if panel is None:
                continue
            edge = edges[panel].get(wire)
            if edge is not None and not wire.points and _are_from_file(panel, ends):
                wire.points, wire.label = edge.points, edge.label
                wire.stroke, wire.envelope = edge.stroke, edge.envelope
            elif not wire.points:
                connect(wire)
            if wire.points:
                panel.wires.append(wire)
                home[wire] = panel


def _are_from_file(panel: Panel, ends: list[Figure | Wire]) -> bool:
    """Return True if the file has a place for both ends. Otherwise the way in the file leads to where they are not."""
    return all(end in panel.from_file for end in ends if isinstance(end, Figure))
