"""Changed versions of a BPMN file: other ids, another order of the elements, and elements that change nothing of what
its process does for those who answer its tasks and send its signals."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

_BPMN = "{http://www.omg.org/spec/BPMN/20100524/MODEL}"
_NODES = re.compile(r"(?:Event|[tT]ask|Gateway|[sS]ubProcess|sequenceFlow)$")
_REFERENCES = ("id", "sourceRef", "targetRef", "attachedToRef", "default")
NEVER = "never"
"""The name of the signal of all events that a change has added: it is not sent."""


def changed(text: str, version: int, chance: random.Random) -> tuple[str, dict[str, str]]:
    """A changed version of a file, and what its elements and flows become, by id."""
    ET.register_namespace("", _BPMN.strip("{}"))
    root = ET.fromstring(text)
    [process] = root.iter(f"{_BPMN}process")
    ids = {one.get("id", ""): _renamed(one.get("id", ""), version) for one in process.iter() if _NODES.search(one.tag)}
    for one in process.iter():
        for attribute in _REFERENCES:
            if one is not process and (id := one.get(attribute)) in ids:
                one.set(attribute, ids[id])
    for number, scope in enumerate(list(_scopes(process))):
        _pass_more_tasks(scope, f"more{version}_{number}", chance)
        _wait_for_more(scope, f"never{version}_{number}", chance)
        _reorder(scope, chance)
    if root.find(f"{_BPMN}signal[@id='{NEVER}']") is None:
        root.insert(0, ET.Element(f"{_BPMN}signal", {"id": NEVER, "name": NEVER}))
    return ET.tostring(root, encoding="unicode"), ids


def _renamed(id: str, version: int) -> str:
    return f"{id.partition('-')[0]}-v{version}"


def original(id: str) -> str:
    """The id that an element had in the first version."""
    return id.partition("-")[0]


def _scopes(process: ET.Element) -> Iterator[ET.Element]:
    yield process
    yield from process.iter(f"{_BPMN}subProcess")


def _pass_more_tasks(scope: ET.Element, id: str, chance: random.Random) -> None:
    """Put a task that is over at once into some flows. The second half keeps the id, for tokens that wait behind it."""
    defaults = {one.get("default") for one in scope}
    for number, flow in enumerate(scope.findall(f"{_BPMN}sequenceFlow")):
        if len(flow) or flow.get("id") in defaults or chance.random() > 0.5:
            continue
        task = f"{id}_{number}"
        half = {"id": f"{task}_in", "sourceRef": flow.get("sourceRef", ""), "targetRef": task}
        flow.set("sourceRef", task)
        scope.append(ET.Element(f"{_BPMN}task", {"id": task}))
        scope.insert(list(scope).index(flow), ET.Element(f"{_BPMN}sequenceFlow", half))


def _wait_for_more(scope: ET.Element, id: str, chance: random.Random) -> None:
    """Add boundary events to some activities, and maybe an event sub-process. They wait for a signal that is not
    sent."""
    for number, host in enumerate([*scope.findall(f"{_BPMN}userTask"), *scope.findall(f"{_BPMN}subProcess")]):
        if chance.random() > 0.2 or host.get("isForCompensation") or host.get("triggeredByEvent"):
            continue
        cancel = chance.choice(("true", "false"))
        event = {"id": f"{id}_{number}", "attachedToRef": host.get("id", ""), "cancelActivity": cancel}
        _event(scope, "boundaryEvent", event)
        scope.append(ET.Element(f"{_BPMN}userTask", {"id": f"{id}_{number}_task"}))
        flow = {"id": f"{id}_{number}_flow", "sourceRef": f"{id}_{number}", "targetRef": f"{id}_{number}_task"}
        scope.append(ET.Element(f"{_BPMN}sequenceFlow", flow))
    if chance.random() < 0.2:
        inner = ET.SubElement(scope, f"{_BPMN}subProcess", {"id": id, "triggeredByEvent": "true"})
        _event(inner, "startEvent", {"id": f"{id}_start", "isInterrupting": chance.choice(("true", "false"))})
        ET.SubElement(inner, f"{_BPMN}endEvent", {"id": f"{id}_end"})
        flow = {"id": f"{id}_flow", "sourceRef": f"{id}_start", "targetRef": f"{id}_end"}
        ET.SubElement(inner, f"{_BPMN}sequenceFlow", flow)


def _event(scope: ET.Element, tag: str, attributes: dict[str, str]) -> None:
    event = ET.SubElement(scope, f"{_BPMN}{tag}", attributes)
    ET.SubElement(event, f"{_BPMN}signalEventDefinition", {"signalRef": NEVER})


def _reorder(scope: ET.Element, chance: random.Random) -> None:
    """Put the elements of a scope into another order; that of the flows decides which of them are taken."""
    others = [one for one in scope if one.tag != f"{_BPMN}sequenceFlow"]
    flows = [one for one in scope if one.tag == f"{_BPMN}sequenceFlow"]
    chance.shuffle(others)
    for one in list(scope):
        scope.remove(one)
    last = [one for one in others if one.tag == f"{_BPMN}multiInstanceLoopCharacteristics"]
    scope.extend([one for one in others if one not in last] + flows + last)
