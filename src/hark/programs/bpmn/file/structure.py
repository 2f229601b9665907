"""Find the nodes and flows of a process: their scopes, and what the flows connect.

What a node does is read later (read_nodes.py): it may refer to nodes that come after it.
"""

from __future__ import annotations

from collections.abc import Container

from hark.model.nearest import did_you_mean
from hark.programs.bpmn.bpmn_elements import ELEMENTS, ElementRow
from hark.programs.bpmn.bpmn_spec import ROOT
from hark.programs.bpmn.file.draft import BpmnDraft, FlowDraft, NodeDraft
from hark.programs.bpmn.file.extensions import extensions_of
from hark.programs.bpmn.file.xml_tree import XmlElement

_WITHOUT_EFFECT = frozenset(
    f"bpmn:{name}"
    for name in (
        "association", "auditing", "category", "categoryValue", "completionCondition", "correlationSubscription",
        "dataInputAssociation", "dataObject", "dataObjectReference", "dataOutputAssociation", "dataStore",
        "dataStoreReference", "documentation", "error", "escalation", "extensionElements", "group", "humanPerformer",
        "incoming", "ioBinding", "ioSpecification", "itemDefinition", "laneSet", "message", "monitoring",
        "multiInstanceLoopCharacteristics", "outgoing", "performer", "potentialOwner", "property", "resourceRole",
        "signal", "standardLoopCharacteristics", "supportedInterfaceRef", "supports", "textAnnotation",
    )
)  # fmt: skip


def read_structure(process: BpmnDraft) -> None:
    """Find the nodes and flows of a process, in the order of the file."""
    _read_scope(process, process.element, ROOT)
    _connect(process)


def _read_scope(process: BpmnDraft, element: XmlElement, scope: int) -> None:
    for child in element.children:
        tag = child.tag
        if (row := ELEMENTS.get(tag)) is not None:
            node = _add_node(process, child, row, scope)
            if row.refused is not None:
                process.report(node, row.refused)
            if row.family == "subprocess":
                node.fields["event_subprocess"] = child.flag("triggeredByEvent")
                node.fields["transaction"] = row.is_transaction
                _read_scope(process, child, node.number)
        elif tag == "bpmn:sequenceFlow":
            process.flow_elements.append(child)
        elif tag.startswith("bpmn:") and tag not in _WITHOUT_EFFECT:
            id = child.get("id") or f"{child.name}@{child.line}"
            process.file.report(id, child.line, f"Hark does not execute the element {child.name}. Remove it.")


def _add_node(process: BpmnDraft, element: XmlElement, row: ElementRow, scope: int) -> NodeDraft:
    id = (element.get("id") or "").strip() or _free(f"{element.name}@{element.line}", process.by_id, process.numbered)
    node = NodeDraft(id, len(process.nodes), row, row.kind, element, scope, extensions_of(element))
    process.nodes.append(node)
    if scope != ROOT:
        process.nodes[scope].children.append(node.number)
    if element.flag("isForCompensation"):
        node.fields["for_compensation"] = True
    if (first := process.by_id.setdefault(id, node)) is not node:
        process.report(
            node, f"There are two elements with the id {id!r}; the first is in line {first.line}. Rename one."
        )
    elif "#" in id or not id.isprintable() or len(id.encode()) > 255:
        process.report(node, f"{id[:40]!r} cannot be an id. Use letters, digits, '_', '-' and '.'.")
    return node


def _free(id: str, taken: Container[str], last: dict[str, int]) -> str:
    """This id or, if it is taken, the id with the next number behind it; `last` keeps the numbers."""
    found = id
    while found in taken:
        last[id] = last.get(id, 1) + 1
        found = f"{id}.{last[id]}"
    return found


def _connect(process: BpmnDraft) -> None:
    taken: set[str] = set()
    for number, element in enumerate(process.flow_elements):
        source, target = element.get("sourceRef"), element.get("targetRef")
        given = (element.get("id") or "").strip()
        id = given or _free(f"{(source or '').strip()}->{(target or '').strip()}", taken, process.numbered)
        if id in taken or (given and id in process.by_id):
            process.file.report(id, element.line, f"There are two elements with the id {id!r}. Rename one of them.")
        taken.add(id)
        flow = FlowDraft(
            id, number, element, _end_of(process, id, element, "sourceRef"), _end_of(process, id, element, "targetRef")
        )
        process.flows.append(flow)
        if flow.source is None or flow.target is None:
            continue
        if flow.source.scope != flow.target.scope:
            process.file.report(
                id,
                element.line,
                f"The flow goes from {flow.source.id!r} to {flow.target.id!r}, across the border of a sub-process. "
                "Connect elements of the same one.",
            )
            continue
        flow.source.outgoing.append(number)
        flow.target.incoming.append(number)


def _end_of(process: BpmnDraft, id: str, element: XmlElement, attribute: str) -> NodeDraft | None:
    reference = (element.get(attribute) or "").strip()
    if not reference:
        process.file.report(id, element.line, f"The flow has no {attribute}. Set it to the id of an element.")
        return None
    found = process.find(reference)
    if found is None:
        hint = did_you_mean(reference, process.by_id)
        process.file.report(
            id, element.line, f"{attribute} is {reference!r}, which is not an element of this process.{hint}"
        )
    return found
