"""Report attributes and child elements of the BPMN standard that Hark does not execute.

What is merely for people, for other tools or for a modeler is passed over: lanes, data objects, resources, interfaces,
directions of gateways, audits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hark.programs.bpmn.bpmn_elements import EventKind
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import named, zeebe

_WITHOUT_OUTPUTS = ("error", "compensation", "cancel", "terminate")
_ASSOCIATIONS = ("bpmn:dataInputAssociation", "bpmn:dataOutputAssociation")


def check_standard(process: BpmnDraft) -> None:
    """Report the parts of a process that would change how it runs, if they were executed."""
    for node in process.nodes:
        _check_quantities(process, node)
        _check_data(process, node)
        if node.event is not None and (check := _EVENT_CHECKS.get(node.event.kind)) is not None:
            check(process, node)
        _check_mapping(process, node)
    for subscription in process.element.all("bpmn:correlationSubscription"):
        process.file.report(
            process.id,
            subscription.line,
            "It has a correlationSubscription, which Hark does not evaluate. Start the instance with a correlation "
            "key, or give the message a zeebe:subscription.",
        )


def _check_quantities(process: BpmnDraft, node: NodeDraft) -> None:
    for name in ("startQuantity", "completionQuantity"):
        value = (node.element.get(name) or "").strip()
        if value and value.lstrip("0") != "1":
            tokens = "begins with one token" if name == "startQuantity" else "ends with one token"
            process.report(node, f"{name} is {value[:20]!r}, but an activity of Hark {tokens}. Use a gateway.")


def _check_data(process: BpmnDraft, node: NodeDraft) -> None:
    """Report data associations that compute. Those that only connect are for people."""
    definitions = [node.element, *(child for child in node.element.children if child.name.endswith("EventDefinition"))]
    for association in (found for holder in definitions for found in holder.all(*_ASSOCIATIONS)):
        if association.first("bpmn:assignment", "bpmn:transformation") is not None:
            process.file.report_extension(
                node.id,
                association.line,
                f"Its {association.name} computes a value, which Hark does not do. Use camunda:inputOutput or "
                "zeebe:ioMapping.",
            )


def _check_waiting(process: BpmnDraft, node: NodeDraft) -> None:
    if not node.row.throws:
        return
    for definition in node.element.all("bpmn:compensateEventDefinition"):
        if not definition.flag("waitForCompletion", default=True):
            message = 'waitForCompletion="false" is ignored, as in Camunda and Flowable: it waits for the compensation.'
            process.file.ignore(node.id, definition.line, message)


def _check_error(process: BpmnDraft, node: NodeDraft) -> None:
    """Report Flowable mappings of the data of an error to variables."""
    for mapping in [*named(node.extensions, "in"), *named(node.extensions, "out")]:
        process.file.report_extension(
            node.id,
            mapping.line,
            f"It maps data of the error ({mapping.tag}), which Hark does not do. Use errorCodeVariable and "
            "errorMessageVariable, or the variables of BpmnError.",
        )


_EVENT_CHECKS: Final[dict[EventKind, Callable[[BpmnDraft, NodeDraft], None]]] = {
    "compensation": _check_waiting,
    "error": _check_error,
}


def _check_mapping(process: BpmnDraft, node: NodeDraft) -> None:
    """Report mappings where Hark has none: at thrown compensations Zeebe has none either, elsewhere no engine has."""
    inputs, outputs = node.fields.get("inputs"), node.fields.get("outputs")
    thrown = node.event.kind if node.row.throws and node.event is not None else None
    if (inputs or outputs) and node.row.family == "gateway":
        problem = "A gateway has no variables of its own: it cannot have a mapping."
    elif inputs and node.row.interrupting is not None:
        problem = f"A {node.row.words} has no variables before it: it can only map outputs."
    elif outputs and thrown == "compensation" and zeebe(node.extensions, "ioMapping") is not None:
        process.file.ignore(node.id, node.line, "Its output mapping is ignored, as in Zeebe: compensation has none.")
        node.fields.pop("outputs")
        return
    elif outputs and thrown in _WITHOUT_OUTPUTS:
        problem = f"A thrown {thrown} event cannot map outputs."
    else:
        return
    process.file.report_extension(
        node.id, node.line, f"{problem} Map the variables at the element before or behind it."
    )
    node.fields.pop("inputs", None)
    node.fields.pop("outputs", None)
