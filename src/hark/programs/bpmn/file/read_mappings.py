"""Read mappings of variables: `camunda:inputOutput`, `zeebe:ioMapping`, and the `in` and `out` of calls and signals."""

from __future__ import annotations

from typing import Any

from hark.programs.bpmn.bpmn_spec import Assignment
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import inner, named, zeebe
from hark.programs.bpmn.file.file_sources import FEEL, JUEL, is_expression, language_of, marked, source, variable_source
from hark.programs.bpmn.file.xml_tree import XmlElement

_OWN_KEY = ("execution.processBusinessKey", "execution.getProcessBusinessKey()", "execution.businessKey")


def read_mappings(process: BpmnDraft, node: NodeDraft) -> None:
    """Read the local variables set before a node runs, and the variables set around it when it has ended."""
    inputs: list[Assignment] = []
    outputs: list[Assignment] = []
    for mapping in named(node.extensions, "inputOutput"):
        inputs += _parameters(process, node, mapping, "inputParameter")
        outputs += _parameters(process, node, mapping, "outputParameter")
    if (io := zeebe(node.extensions, "ioMapping")) is not None:
        inputs += [found for child in io.all("zeebe:input") if (found := _zeebe_mapping(process, node, child))]
        results = [found for child in io.all("zeebe:output") if (found := _zeebe_mapping(process, node, child))]
        outputs += results
        if results:
            node.fields["keeps_result"] = True  # in Camunda 7, a result goes out beside what is mapped
    if inputs:
        node.fields["inputs"] = tuple(inputs)
    if outputs:
        node.fields["outputs"] = tuple(outputs)


def _parameters(process: BpmnDraft, node: NodeDraft, mapping: XmlElement, name: str) -> list[Assignment]:
    found: list[Assignment] = []
    for parameter in inner(mapping, name):
        target = (parameter.get("name") or "").strip()
        if not target:
            process.report(node, f"A {parameter.tag} has no name. Give it the name of a variable.", parameter.line)
            continue
        try:
            value = _value(process, node, parameter)
        except _NotRun:
            continue
        found.append(Assignment(target, source(process, node, value, f"The mapping of {target!r}", parameter.line)))
    return found


class _NotRun(Exception):
    """A script of a mapping is in a language that Hark does not run. The problem was reported."""


def _value(process: BpmnDraft, node: NodeDraft, element: XmlElement) -> Any:
    """The source in a parameter, an entry of a map, or a value of a list: a text, a list, a map or a script."""
    for child in element.children:
        if child.name == "list":
            return [_item(process, node, value) for value in child.children]
        if child.name == "map":
            return {entry.get("key") or "": _value(process, node, entry) for entry in inner(child, "entry")}
        if child.name == "script":
            return _script(process, node, child)
    return element.text.strip() or None


def _item(process: BpmnDraft, node: NodeDraft, element: XmlElement) -> Any:
    if element.name == "value":
        return element.text.strip()
    holder = XmlElement(element.tag, {}, element.line)
    holder.children = [element]
    return _value(process, node, holder)


def _script(process: BpmnDraft, node: NodeDraft, script: XmlElement) -> str:
    language = language_of(script.get("scriptFormat"))
    text = script.text.strip()
    if not text or language not in (None, FEEL, JUEL):
        what = f"a script in {language!r}" if text else f"a script in {script.get('resource')!r}, outside the file"
        process.file.report_extension(
            node.id, script.line, f"It has {what}, which Hark does not run. Write it in FEEL, or as ${{…}}."
        )
        raise _NotRun
    return marked(text, language)


def _zeebe_mapping(process: BpmnDraft, node: NodeDraft, child: XmlElement) -> Assignment | None:
    target = (child.get("target") or "").strip()
    if not target:
        process.report(node, f"A {child.tag} has no target. Give it the name of a variable.", child.line)
        return None
    return Assignment(target, source(process, node, child.get("source"), f"The mapping of {target!r}", child.line))


class PassedVariables:
    """The `in` or `out` elements of a call activity, or the `in` elements of a thrown signal.

    Attributes:
        is_given: Whether there is any that passes variables.
        copies_all: Whether all variables are passed.
        is_local: Whether they are passed to the activity only, whose output mapping can use them.
        assignments: The ones that are passed by name or expression.
        key: The source of the correlation key.
    """

    def __init__(self, process: BpmnDraft, node: NodeDraft, elements: list[XmlElement]) -> None:
        self.is_given = False
        self.copies_all = False
        self.is_local = bool(elements) and all(element.flag("local") for element in elements)
        self.assignments: list[Assignment] = []
        self.key: Any = None
        for element in elements:
            self._read(process, node, element)

    def _read(self, process: BpmnDraft, node: NodeDraft, element: XmlElement) -> None:
        key = element.get("businessKey")
        if key is not None:
            self._read_key(process, node, element, key)
            return
        self.is_given = True
        if element.get("variables") == "all":
            if element.flag("local") and element.name == "in":  # those that are mapped to the node itself
                self.assignments += node.fields.get("inputs", ())
            else:
                self.copies_all = True
            return
        expression, name = element.get("sourceExpression"), (element.get("source") or "").strip()
        target = (element.get("target") or element.get("targetExpression") or "").strip()
        if is_expression(target):
            process.file.report_extension(
                node.id,
                element.line,
                f"The target of {element.tag} is the expression {target[:100]!r}, which Hark does not evaluate. "
                "Write the name of a variable.",
            )
            return
        if not target or not (expression or name):
            process.report(node, f'{element.tag} needs a source and a target, or variables="all".', element.line)
            return
        value = expression or variable_source(name)
        self.assignments.append(
            Assignment(target, source(process, node, value, f"The mapping of {target!r}", element.line))
        )

    def _read_key(self, process: BpmnDraft, node: NodeDraft, element: XmlElement, key: str) -> None:
        if any(own in key for own in _OWN_KEY):
            ignore_own_key(process, node, element.line)
            return
        self.key = source(process, node, key, "The key", element.line)


def ignore_own_key(process: BpmnDraft, node: NodeDraft, line: int) -> None:
    """Note that a called process does not get the key of its caller."""
    process.file.ignore(
        node.id, line, "The key of the caller is not passed on: a live correlation key has one instance."
    )
