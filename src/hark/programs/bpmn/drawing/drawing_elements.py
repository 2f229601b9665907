"""Read the figures and wires of a BPMN file. Files that deploy refuses are read too: what is missing is left out.

Places are not read here: see drawing_coordinates.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from hark.programs.bpmn.bpmn_elements import BOUNDARY_EVENTS
from hark.programs.bpmn.drawing.drawing_scene import (
    ACTIVITIES,
    FIGURES,
    LANES,
    NODES,
    POOLS,
    WIRES,
    Figure,
    Scene,
    Wire,
)
from hark.programs.bpmn.file.xml_tree import XmlElement

ROOTS = ("bpmn:process", "bpmn:collaboration", "bpmn:choreography")
_UNDRAWN = frozenset({"bpmn:extensionElements", "bpmn:dataObject"})
_NAMED = frozenset({"bpmn:dataObject", "bpmn:dataStore", "bpmn:categoryValue"})
_DATA_WIRES = frozenset({"bpmn:dataInputAssociation", "bpmn:dataOutputAssociation"})


def read_scene(root: XmlElement) -> Scene:
    """All figures and wires of a file."""
    scene = Scene(root)
    scene.named = {id: one for one in root.walk() if one.tag in _NAMED and (id := one.get("id"))}
    for owner in root.all(*ROOTS):
        for element, parent in _walk(owner):
            if element.tag in FIGURES:
                _add_figure(scene, element, parent, owner)
            elif element.tag in WIRES:
                _add_wire(scene, element)
    _join(scene)
    return scene


def text_of(element: XmlElement | None) -> str:
    """The text in an element, with its blanks made single."""
    return " ".join(element.text.split()) if element is not None else ""


def _walk(owner: XmlElement) -> Iterator[tuple[XmlElement, XmlElement | None]]:
    """The elements below a process or collaboration, each with the figure's element it is in."""
    todo: list[tuple[XmlElement, XmlElement | None]] = [(child, None) for child in reversed(owner.children)]
    while todo:
        element, parent = todo.pop()
        yield element, parent
        if element.tag in _UNDRAWN or (element.tag == "bpmn:ioSpecification" and parent is not None):
            continue
        inside = element if element.tag in ACTIVITIES | LANES else parent
        todo += [(child, inside) for child in reversed(element.children)]


def _add_figure(scene: Scene, element: XmlElement, parent: XmlElement | None, owner: XmlElement) -> None:
    key = _free(scene, (element.get("id") or "").strip() or f"{element.name}@{element.line}")
    figure = Figure(key, element, _name_of(scene, element), owner=owner)
    scene.figures[key] = figure
    scene.by_element[element] = figure
    above = scene.by_element.get(parent) if parent is not None else None
    if above is not None:
        figure.parent = above
        above.children.append(figure)


def _name_of(scene: Scene, element: XmlElement) -> str:
    match element.tag:
        case "bpmn:textAnnotation":
            text = element.first("bpmn:text")
            return _plain(text.text if text is not None else None) or _plain(element.get("name"))
        case "bpmn:group":
            wanted = (element.get("categoryValueRef") or "").rpartition(":")[2]
            value = scene.named.get(wanted)
            return _plain(value.get("value") if value is not None else element.get("name"))
        case "bpmn:dataObjectReference":
            name = _plain(element.get("name")) or _name_of_data(scene, element, "dataObjectRef")
            state = element.first("bpmn:dataState")
            return f"{name} [{state.get('name')}]" if state is not None and state.get("name") else name
        case "bpmn:dataStoreReference":
            return _plain(element.get("name")) or _name_of_data(scene, element, "dataStoreRef")
    return _plain(element.get("name"))


def _plain(text: str | None) -> str:
    """A text with its line breaks, and its other blanks made single."""
    return "\n".join(filter(None, (" ".join(line.split()) for line in (text or "").splitlines())))


def _name_of_data(scene: Scene, element: XmlElement, attribute: str) -> str:
    """The name of the data that a reference without a name stands for."""
    wanted = (element.get(attribute) or "").rpartition(":")[2]
    found = scene.named.get(wanted)
    return _plain(found.get("name")) if found is not None else ""


def _add_wire(scene: Scene, element: XmlElement) -> None:
    ends = f"{(element.get('sourceRef') or '').strip()}->{(element.get('targetRef') or '').strip()}"
    key = (element.get("id") or "").strip() or ends
    key = _free(scene, key if key != "->" else f"{element.name}@{element.line}")
    scene.wires[key] = Wire(key, element, _plain(element.get("name")))


def _free(scene: Scene, key: str) -> str:
    """A key that no figure or wire has, as structure.py makes it: it names elements without an id as they are here."""
    found = key
    while found in scene.figures or found in scene.wires:
        scene.last[key] = scene.last.get(key, 1) + 1
        found = f"{key}.{scene.last[key]}"
    return found


def _join(scene: Scene) -> None:
    """Find what the references name, now that everything is known."""
    for figure in scene.figures.values():
        if figure.tag in BOUNDARY_EVENTS:
            host = scene.figure(figure.element.get("attachedToRef"))
            if (
                host is not None
                and host.tag in ACTIVITIES
                and (host.parent, host.owner) == (figure.parent, figure.owner)
            ):
                figure.host = host
                host.boundaries.append(figure)
        elif figure.tag in LANES:
            for reference in figure.element.all("bpmn:flowNodeRef"):
                node = scene.figure(reference.text)
                # A node of a nested lane is also listed by the lane around it: the innermost one counts.
                if node is not None and node.tag in NODES and not _is_inside(node.lane, figure):
                    node.lane = figure
        elif figure.tag in POOLS:
            figure.expanded = figure.element.get("processRef") is not None
    defaults = {
        (figure.element.get("default") or "").rpartition(":")[2]
        for figure in scene.figures.values()
        if figure.tag in NODES
    }
    owners = {
        child: figure
        for figure in scene.figures.values()
        for child in figure.element.children
        if child.tag in _DATA_WIRES
    }
    for wire in scene.wires.values():
        if wire.tag in _DATA_WIRES:
            _join_data(scene, wire, owners.get(wire.element))
        else:
            wire.source = scene.end(wire.element.get("sourceRef"))
            wire.target = scene.end(wire.element.get("targetRef"))
        if isinstance(wire.source, Figure):
            wire.source.has_exit = True
        wire.is_default = wire.tag == "bpmn:sequenceFlow" and wire.element.get("id") in defaults - {""}


def _is_inside(lane: Figure | None, outer: Figure) -> bool:
    while lane is not None and lane is not outer:
        lane = lane.parent
    return lane is outer


def _join_data(scene: Scene, wire: Wire, owner: Figure | None) -> None:
    """A data association: its other end is the activity or event that it belongs to."""
    ends = {tag: wire.element.first(f"bpmn:{tag}") for tag in ("sourceRef", "targetRef")}
    source = scene.end(text_of(ends["sourceRef"]))
    target = scene.end(text_of(ends["targetRef"]))
    if wire.tag == "bpmn:dataInputAssociation":
        wire.source, wire.target = source, owner
    else:
        wire.source, wire.target = owner, target
