"""Extensions of Camunda, Zeebe, Flowable and Activiti: finding them, and saying which are ignored or refused.

Camunda 7, Flowable and Activiti share their names. What an extension means is read where it is used.
"""

from __future__ import annotations

from hark.dialects.bpmn.draft import ProcessDraft
from hark.dialects.bpmn.xml_tree import XmlElement

VENDORS = ("camunda", "flowable", "activiti")

_QUIET = ("bioc:", "color:", "modeler:", "xsi:", "xml:", "di:", "dc:", "bpmndi:", "bpmn:")  # colours and modeler data

_ATTRIBUTES = frozenset(
    ("assignee", "businessKey", "calledElementBinding", "calledElementVersion", "candidateGroups", "candidateUsers",
     "class", "collection", "decisionRef", "delegateExpression", "dueDate", "elementIndexVariable", "elementVariable",
     "errorCodeVariable", "errorMessage", "errorMessageVariable", "escalationCodeVariable", "expression",
     "inheritVariables", "messageExpression", "resource", "resultVariable", "resultVariableName", "signalExpression",
     "topic", "type", "variableName")
)  # fmt: skip
_ELEMENTS = frozenset(
    [f"{vendor}:{name}" for vendor in VENDORS for name in (
        "collection", "connector", "executionListener", "failedJobRetryTimeCycle", "field", "formData", "formProperty",
        "in", "inputOutput", "out", "taskListener", "variableAggregation", "calledElement",
    )]
    + [f"zeebe:{name}" for name in (
        "assignmentDefinition", "calledDecision", "calledElement", "executionListeners", "formDefinition", "ioMapping",
        "loopCharacteristics", "script", "subscription", "taskDefinition", "taskHeaders", "taskListeners",
        "taskSchedule", "userTask", "userTaskForm",
    )]
)  # fmt: skip
_CHANGES = frozenset(
    ("businessCalendarName", "endDate", "errorEventDefinition", "mapDecisionResult", "mapException", "skipExpression",
     "terminateAll", "value", "variableEvents", "variableMappingClass", "variableMappingDelegateExpression")
)  # fmt: skip
_REFUSED = {
    "executionListener": "an execution listener",
    "executionListeners": "an execution listener",
    "taskListener": "a task listener",
    "taskListeners": "a task listener",
    "connector": "a connector",
}


def attribute(element: XmlElement, name: str) -> str | None:
    """The value of an attribute of Camunda, Flowable or Activiti; None if it is missing or empty."""
    for vendor in VENDORS:
        if value := element.attributes.get(f"{vendor}:{name}"):
            return value.strip() or None
    return None


def extensions_of(element: XmlElement) -> list[XmlElement]:
    """The extension elements of an element."""
    return [inner for child in element.children if child.tag == "bpmn:extensionElements" for inner in child.children]


def named(extensions: list[XmlElement], name: str) -> list[XmlElement]:
    """Those of Camunda, Flowable or Activiti that have this name."""
    return [found for found in extensions if found.name == name and found.tag.partition(":")[0] in VENDORS]


def zeebe(extensions: list[XmlElement], name: str) -> XmlElement | None:
    """The first one of Zeebe that has this name."""
    tag = f"zeebe:{name}"
    return next((found for found in extensions if found.tag == tag), None)


def inner(element: XmlElement, name: str) -> list[XmlElement]:
    """The children with this name, whatever their prefix: of `camunda:list` the `camunda:value`s."""
    return [child for child in element.children if child.name == name]


def check_extensions(process: ProcessDraft) -> None:
    """Report the extensions of a process that are refused, and note the ones that are ignored."""
    ids = {id(node.element): node.id for node in process.nodes}
    ids |= {id(flow.element): flow.id for flow in process.flows}
    todo = [(process.element, process.id)]
    while todo:
        element, host = todo.pop()
        if element.tag == "bpmn:extensionElements":
            continue
        host = ids.get(id(element), host)
        for name in element.attributes:
            if ":" in name or "{" in name:
                _check_attribute(process, element, host, name)
        for child in element.children:
            if child.tag == "bpmn:extensionElements":
                for extension in child.children:
                    _check_element(process, extension, host)
            elif not child.tag.startswith("bpmn:"):
                _ignore(process, child.tag, child.line, host)
        todo += [(child, host) for child in reversed(element.children) if child.tag.startswith("bpmn:")]


def _check_attribute(process: ProcessDraft, element: XmlElement, host: str, name: str) -> None:
    prefix, _, local = name.partition(":")
    if name.startswith(_QUIET) or (prefix in VENDORS and local in _ATTRIBUTES):
        return
    _ignore(process, name, element.line, host)


def _check_element(process: ProcessDraft, extension: XmlElement, host: str) -> None:
    prefix = extension.tag.partition(":")[0]
    what = _REFUSED.get(extension.name) if prefix in (*VENDORS, "zeebe") else None
    if what is not None:
        process.file.report_extension(
            host,
            extension.line,
            f"It has {what} ({extension.tag}), which Hark does not run. Make it a task of its own.",
        )
    elif extension.tag == "zeebe:properties":
        _check_properties(process, extension, host)
    elif extension.tag not in _ELEMENTS and not extension.tag.startswith(_QUIET):
        _ignore(process, extension.tag, extension.line, host)


def _check_properties(process: ProcessDraft, extension: XmlElement, host: str) -> None:
    kind = next((inner.get("value") for inner in extension.children if inner.get("name") == "inbound.type"), None)
    if kind is None:
        _ignore(process, extension.tag, extension.line, host)
    else:
        process.file.report_extension(
            host, extension.line, f"It has the connector {kind!r}, which Hark does not run. Use a message or a signal."
        )


def _ignore(process: ProcessDraft, name: str, line: int, host: str) -> None:
    shown = name.replace("{", "").replace("}", ":")
    if shown.partition(":")[0] in VENDORS and shown.partition(":")[2] in _CHANGES:
        message = f"{shown} is ignored, although it changes what the engine it comes from does. Check the process."
    else:
        message = f"{shown} is ignored: it has no meaning for Hark."
    process.file.ignore(host, line, message, name=shown)
