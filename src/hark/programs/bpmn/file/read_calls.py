"""Read call activities: the process they call, and the variables that go in and come out."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.bpmn_spec import CallSpec
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute, named, zeebe
from hark.programs.bpmn.file.file_sources import is_expression, source
from hark.programs.bpmn.file.read_mappings import PassedVariables, ignore_own_key
from hark.programs.bpmn.file.xml_tree import XmlElement


def read_call(process: BpmnDraft, node: NodeDraft) -> None:
    """Read a call activity; its mappings have been read."""
    called = zeebe(node.extensions, "calledElement")
    if called is not None:
        name = called.get("processId") or called.get("processIdExpression")
        binding, version = called.get("bindingType"), None
    else:
        name = node.element.get("calledElement")
        binding = attribute(node.element, "calledElementBinding")
        version = attribute(node.element, "calledElementVersion")
    if not name or not name.strip():
        case = attribute(node.element, "caseRef")
        what = "It does not say which process it calls." if case is None else f"It calls the case {case[:100]!r}."
        process.report(node, f"{what} Set calledElement to the id of a process.")
        return
    if _is_global_task(process, name):
        process.report(node, f"It calls the global task {name[:100]!r}, which Hark does not execute. Use a task here.")
        return
    fields: dict[str, Any] = {"process": source(process, node, _local(process, name), "The process it calls")}
    if binding == "versionTag":
        process.file.report_extension(
            node.id, node.line, "It calls a process by its version tag, which Hark does not have. Use a version number."
        )
    if binding == "version" or (binding is None and version is not None):
        fields["version"] = _version(process, node, version)
    if called is not None:
        _zeebe_variables(node, called, fields)
        fields["key"] = source(process, node, called.get("businessId"), "The key", called.line)
    else:
        _vendor_variables(process, node, fields)
    node.fields["call"] = CallSpec(**fields)


def _local(process: BpmnDraft, name: str) -> str:
    """The id of a process; as it is a reference, it may have the prefix of the file's own namespace."""
    name = name.strip()
    known = process.file.top_level
    local = name.rpartition(":")[2]
    is_other = is_expression(name) or known.get(name) == "bpmn:process" or known.get(local) != "bpmn:process"
    return name if is_other else local


def _is_global_task(process: BpmnDraft, name: str) -> bool:
    return process.file.top_level.get(name.strip().rpartition(":")[2], "").startswith("bpmn:global")


def _version(process: BpmnDraft, node: NodeDraft, version: str | None) -> Any:
    text = (version or "").strip()
    if not is_expression(text) and not (text.isdecimal() and 0 < int(text[:10]) < 2**31):
        process.report(node, f"It calls the version {text!r} of a process. Write a number from 1.")
        return None
    return source(process, node, text, "The version it calls")


def _zeebe_variables(node: NodeDraft, called: XmlElement, fields: dict[str, Any]) -> None:
    """Read the variables of Zeebe: all go in unless switched off, and come out unless there are output mappings."""
    fields["outputs"] = node.fields.pop("outputs", ())
    node.fields.pop("keeps_result", None)
    fields["all_out"] = called.flag("propagateAllChildVariables", default=not fields["outputs"])
    if not called.flag("propagateAllParentVariables", default=True):
        fields["all_in"] = False
        fields["inputs"] = node.fields.pop("inputs", ())


def _vendor_variables(process: BpmnDraft, node: NodeDraft, fields: dict[str, Any]) -> None:
    """Read `in` and `out` of Camunda and Flowable: once there is one, only the variables they name are passed."""
    given = PassedVariables(process, node, named(node.extensions, "in"))
    returned = PassedVariables(process, node, named(node.extensions, "out"))
    inherits = attribute(node.element, "inheritVariables") == "true"
    fields["inputs"] = tuple(given.assignments)
    fields["outputs"] = tuple(returned.assignments)
    fields["all_in"] = inherits or given.copies_all or not given.is_given
    fields["all_out"] = returned.copies_all or not (returned.is_given or given.is_given)
    node.fields["keeps_result"] = returned.is_local
    if attribute(node.element, "inheritBusinessKey") == "true":
        ignore_own_key(process, node, node.line)
    key = attribute(node.element, "businessKey")
    fields["id_variable"] = source(process, node, attribute(node.element, "idVariableName"), "Its idVariableName")
    fields["key"] = given.key if key is None else source(process, node, key, "The key")
