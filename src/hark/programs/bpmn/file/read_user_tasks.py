"""Read user tasks: the people they are for, the due date, and the question."""

from __future__ import annotations

import re
from typing import Any

from hark.model.errors import InvalidInput
from hark.model.schema import compile_schema
from hark.programs.bpmn.bpmn_spec import UserSpec
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute, named, zeebe
from hark.programs.bpmn.file.file_sources import is_computed, source
from hark.programs.bpmn.file.forms import camunda_form, flowable_form, zeebe_form
from hark.programs.bpmn.file.xml_tree import XmlElement
from hark.programs.bpmn.form_defaults import computed_defaults

_EXPRESSION = ("bpmn:resourceAssignmentExpression", "bpmn:formalExpression", "bpmn:expression")
_OWNER = re.compile(r"(user|group)\((.*)\)", re.DOTALL)


def read_user(process: BpmnDraft, node: NodeDraft) -> None:
    element = node.element
    users, groups = _owners(element)
    given: dict[str, Any] = {
        "assignee": attribute(element, "assignee") or _performer(element),
        "users": attribute(element, "candidateUsers") or users,
        "groups": attribute(element, "candidateGroups") or groups,
        "due": attribute(element, "dueDate"),
        "description": _description(element),
        "id_variable": attribute(element, "taskIdVariableName"),
        "by_variable": attribute(element, "taskCompleterVariableName"),
    }
    if (found := zeebe(node.extensions, "assignmentDefinition")) is not None:
        given["assignee"] = found.get("assignee") or given["assignee"]
        given["users"] = found.get("candidateUsers") or given["users"]
        given["groups"] = found.get("candidateGroups") or given["groups"]
    if (found := zeebe(node.extensions, "taskSchedule")) is not None:
        given["due"] = found.get("dueDate") or given["due"]
    if not is_computed(given["description"]):
        del given["description"]  # a text for people, in which ${ may mean anything
    source(process, node, node.element.get("name"), "Its name")
    checked = {name: source(process, node, value, _WHAT[name]) for name, value in given.items() if value is not None}
    node.fields["user"] = UserSpec(**checked, schema=_schema(process, node))


_WHAT = {
    "assignee": "Its assignee",
    "users": "Its candidate users",
    "groups": "Its candidate groups",
    "due": "Its due date",
    "description": "Its documentation",
    "id_variable": "Its taskIdVariableName",
    "by_variable": "Its taskCompleterVariableName",
}


def _description(element: XmlElement) -> str | None:
    documentation = element.first("bpmn:documentation")
    return None if documentation is None else documentation.text.strip() or None


def _resource(element: XmlElement) -> str:
    """The text of the expression that gives a resource."""
    while (found := element.first(*_EXPRESSION)) is not None:
        element = found
    return element.text.strip()


def _performer(element: XmlElement) -> str | None:
    performer = element.first("bpmn:humanPerformer", "bpmn:performer")
    return None if performer is None else _resource(performer) or None


def _owners(element: XmlElement) -> tuple[str | None, str | None]:
    """Users and groups of the potential owners: `user(kermit), group(sales)`; a name alone is a group."""
    users: list[str] = []
    groups: list[str] = []
    for owner in element.all("bpmn:potentialOwner"):
        for part in re.split(r",(?![^({]*[)}])", _resource(owner)):
            found = _OWNER.fullmatch(part.strip())
            if found is not None and found[1] == "user":
                users.append(found[2].strip())
            elif part.strip():
                groups.append(found[2].strip() if found is not None else part.strip())
    return ",".join(users) or None, ",".join(groups) or None


def _schema(process: BpmnDraft, node: NodeDraft) -> dict[str, Any] | None:
    """The JSON Schema of the answer, from the form of the task."""
    schema = None
    if forms := named(node.extensions, "formData"):
        schema = camunda_form(forms[0])
    elif fields := named(node.extensions, "formProperty"):
        schema = flowable_form(fields)
    elif (definition := zeebe(node.extensions, "formDefinition")) is not None:
        schema = _zeebe_schema(process, node, definition)
    if schema is None:
        return None
    for default in computed_defaults(schema):
        source(process, node, default, "A default of its form")
    try:
        compile_schema(schema)
    except InvalidInput as error:
        process.report(node, f"Its form cannot be used: {error}")
    return schema


def _zeebe_schema(process: BpmnDraft, node: NodeDraft, definition: XmlElement) -> dict[str, Any] | None:
    key = (definition.get("formKey") or definition.get("formId") or "").rpartition(":")[2]
    form = process.file.forms.get(key)
    text = definition.text.strip() if form is None else form.text.strip()
    if not text:
        name = definition.get("formId") or definition.get("externalReference") or definition.get("formKey")
        process.file.ignore(node.id, definition.line, f"The form {name!r} is ignored: it is not in the file.")
        return None
    schema = zeebe_form(text)
    if schema is None:
        line = definition.line if form is None else form.line
        process.file.ignore(node.id, line, "Its form is ignored: it is not the JSON of a form with components.")
    return schema
