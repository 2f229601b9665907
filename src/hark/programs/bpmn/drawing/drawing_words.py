"""Describe elements in words: the title of each, and the description of the whole drawing."""

from __future__ import annotations

import re
from collections import Counter

from hark.programs.bpmn.bpmn_elements import ELEMENTS
from hark.programs.bpmn.bpmn_elements import EVENTS as EVENT_ROWS
from hark.programs.bpmn.diagram_marks import Marks
from hark.programs.bpmn.drawing.drawing_scene import (
    CALLS,
    EVENTS,
    GATEWAYS,
    LANES,
    POOLS,
    SUBPROCESSES,
    TASKS,
    Figure,
    Panel,
    Wire,
)
from hark.programs.bpmn.file.xml_tree import XmlElement

_LONGEST = 1000
_FAMILIES = {
    "pool": POOLS,
    "lane": LANES,
    "event": EVENTS,
    "task": TASKS,
    "sub-process": SUBPROCESSES,
    "call activity": CALLS,
    "gateway": GATEWAYS,
    "sequence flow": {"bpmn:sequenceFlow"},
    "message flow": {"bpmn:messageFlow"},
}
_KINDS = {row.tag: row.words for row in ELEMENTS.values()} | {
    "bpmn:participant": "pool",
    "bpmn:dataObjectReference": "data object",
    "bpmn:dataStoreReference": "data store",
    "bpmn:dataInputAssociation": "data input",
    "bpmn:dataOutputAssociation": "data output",
    "bpmn:textAnnotation": "note",
}

_EVENT_WORDS = {row.name: row.kind for row in EVENT_ROWS.values()}


def definitions_of(element: XmlElement) -> list[str]:
    """The names of the definitions that an event catches or throws: `message`, `timer`."""
    names = (child.name for child in element.children if child.tag.startswith("bpmn:"))
    found = [name.removesuffix("EventDefinition") for name in names if name.endswith("EventDefinition")]
    return found + ["multiple"] * (len(element.all("bpmn:eventDefinitionRef")) if not found else 0)


def kind_of(thing: Figure | Wire) -> str:
    """A figure's or wire's kind in words: `user task`, `timer boundary event`."""
    kind = _KINDS.get(thing.tag) or re.sub(r"(?<=[a-z])([A-Z])", r" \1", thing.element.name).lower()
    if thing.tag in SUBPROCESSES and thing.element.get("triggeredByEvent") == "true":
        return "event sub-process"
    if thing.tag in EVENTS:
        found = definitions_of(thing.element)
        what = _EVENT_WORDS.get(found[0], found[0]) if len(found) == 1 else "multiple" if found else ""
        return f"{what} {kind}".strip()
    return kind


def title_of(thing: Figure | Wire, marks: Marks) -> str:
    """The title of an element: its kind, its name, and what is marked on it."""
    kind = kind_of(thing).capitalize()
    said = f"{kind}: {' '.join(thing.name.split())}" if thing.name else f"{kind} {thing.key}"
    notes: list[str] = []
    if isinstance(thing, Figure):
        if count := marks.tokens.get(thing.key):
            notes.append(_count(count, "token"))
        if thing.key in marks.waits:
            notes.append("waits")
        if count := marks.visited.get(thing.key):
            notes.append(f"entered {_times(count)}")
        if thing.key in marks.incidents:
            notes.append(f"incident: {marks.incidents[thing.key]}")
    elif count := marks.taken.get(thing.key):
        notes.append(f"taken {_times(count)}")
    return cut(f"{said} ({', '.join(notes)})" if notes else said)


def description(panels: list[Panel], marks: Marks) -> str:
    """The drawing in words: what it has, and where its tokens are."""
    figures = [figure for panel in panels for figure in panel.figures]
    tags = Counter(figure.tag for figure in figures)
    tags.update(wire.tag for panel in panels for wire in panel.wires)
    found = [(sum(tags[tag] for tag in family), name) for name, family in _FAMILIES.items()]
    text = f"A process diagram: {', '.join(_count(number, name) for number, name in found if number) or 'empty'}."
    marked = [
        title_of(figure, marks)
        for figure in figures
        if marks.tokens.get(figure.key) or figure.key in marks.waits or figure.key in marks.incidents
    ]
    return cut(f"{text} {'; '.join(marked)}." if marked else text)


def cut(text: str) -> str:
    """A text that is not longer than a title may be."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _count(count: int, thing: str) -> str:
    if count == 1:
        return f"1 {thing}"
    many = f"{thing}es" if thing.endswith("ss") else f"{thing[:-1]}ies" if thing.endswith("ty") else f"{thing}s"
    return f"{count} {many}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
