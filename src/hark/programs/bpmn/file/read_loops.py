"""Read the loops of activities: multi-instance and standard loops."""

from __future__ import annotations

from typing import Any

from hark.model import json
from hark.model.errors import MalformedJson
from hark.programs.bpmn.bpmn_spec import Assignment, LoopSpec
from hark.programs.bpmn.file.draft import BpmnDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute, extensions_of, inner, named, zeebe
from hark.programs.bpmn.file.file_sources import condition, is_expression, source, variable_source
from hark.programs.bpmn.file.xml_tree import XmlElement


def read_loop(process: BpmnDraft, node: NodeDraft) -> None:
    """Read the loop of an activity, if it has one."""
    loops = node.element.all("bpmn:multiInstanceLoopCharacteristics", "bpmn:standardLoopCharacteristics")
    if not loops:
        return
    if len(loops) > 1:
        process.report(node, "It has several loops. Leave one of them.", loops[1].line)
        return
    if node.is_event_subprocess:
        process.report(node, "An event sub-process cannot be repeated. Remove its loop.", loops[0].line)
        return
    is_multiple = loops[0].tag == "bpmn:multiInstanceLoopCharacteristics"
    node.fields["loop"] = (_multiple if is_multiple else _standard)(process, node, loops[0])


def _standard(process: BpmnDraft, node: NodeDraft, loop: XmlElement) -> LoopSpec:
    element = loop.first("bpmn:loopCondition")
    maximum = (loop.get("loopMaximum") or "").strip()
    if maximum and not (maximum.isdecimal() and len(maximum) < 10):
        process.report(node, f"loopMaximum is {maximum!r}. Write a number from 0.", loop.line)
        maximum = ""
    return LoopSpec(
        "standard",
        condition=None if element is None else condition(process, node, element, "Its loop condition"),
        test_before=loop.flag("testBefore"),
        maximum=int(maximum) if maximum else None,
    )


def _multiple(process: BpmnDraft, node: NodeDraft, loop: XmlElement) -> LoopSpec:
    fields: dict[str, Any] = {}
    extensions = extensions_of(loop)
    if (count := loop.first("bpmn:loopCardinality")) is not None:
        fields["cardinality"] = source(process, node, count.text, "Its loopCardinality", count.line)
    _standard_data(process, node, loop, fields)
    _zeebe_attributes(process, node, loop, fields)
    _vendor_data(process, node, loop, extensions, fields)
    if (found := zeebe(extensions, "loopCharacteristics")) is not None:
        _zeebe_data(process, node, found, fields)
    if (completion := loop.first("bpmn:completionCondition")) is not None and completion.text.strip():
        fields["completion"] = condition(process, node, completion, "Its completion condition")
    if fields.get("cardinality") is None and fields.get("collection") is None:
        process.report(
            node, "Its multi-instance has neither a loopCardinality nor a collection. Set one of them.", loop.line
        )
    _check_behavior(process, node, loop)
    if is_expression(loop.get("isSequential") or ""):
        process.report(node, "isSequential is an expression. Write true or false.", loop.line)
    return LoopSpec("sequential" if loop.flag("isSequential") else "parallel", **fields)


def _check_behavior(process: BpmnDraft, node: NodeDraft, loop: XmlElement) -> None:
    """Refuse events that the multi-instance would throw when its instances end: Hark does not throw them."""
    behavior = (loop.get("behavior") or "All").strip()[:20]
    reference = f"{behavior.lower()}BehaviorEventRef"  # of One and None
    definition = loop.first("bpmn:complexBehaviorDefinition")
    if (behavior == "Complex" and definition is not None) or loop.get(reference):
        process.report(
            node,
            f'Its multi-instance has behavior="{behavior}": it throws an event when an instance ends, which Hark does '
            "not do. Throw the event in a sub-process that is repeated.",
            loop.line,
        )


def _standard_data(process: BpmnDraft, node: NodeDraft, loop: XmlElement, fields: dict[str, Any]) -> None:
    """`loopDataInputRef`, `inputDataItem` and their counterparts for output."""
    collection = loop.first("bpmn:loopDataInputRef")
    if collection is not None and collection.text.strip():
        name = _data_name(
            node, collection.text.strip(), "bpmn:dataInputAssociation", "bpmn:targetRef", "bpmn:sourceRef"
        )
        fields["collection"] = source(process, node, name, "Its collection", collection.line)
    if (item := loop.first("bpmn:inputDataItem")) is not None:
        fields["item"] = item.get("name") or item.get("id")
    target, result = loop.first("bpmn:loopDataOutputRef"), loop.first("bpmn:outputDataItem")
    if target is not None and target.text.strip() and result is not None:
        name = _data_name(node, target.text.strip(), "bpmn:dataOutputAssociation", "bpmn:sourceRef", "bpmn:targetRef")
        fields["output_collection"] = name
        fields["output"] = variable_source(result.get("name") or result.get("id") or "")


def _data_name(node: NodeDraft, name: str, association: str, own: str, other: str) -> str:
    """The variable of a collection. One that is data of the activity itself is the data it is associated with."""
    for found in node.element.all(association):
        end, far = found.first(own), found.first(other)
        if end is not None and far is not None and end.text.strip() == name and far.text.strip():
            return far.text.strip()
    return name


def _vendor_data(
    process: BpmnDraft, node: NodeDraft, loop: XmlElement, extensions: list[XmlElement], fields: dict[str, Any]
) -> None:
    """`camunda:collection`, and the elements that Flowable has for it."""
    collection: Any = attribute(loop, "collection")
    line = loop.line
    for element in named(extensions, "collection"):
        collection = _written_collection(element)
        line = element.line
        if collection is None:
            process.report(node, f"{element.tag} has neither an expression nor a JSON list. Write one of them.", line)
    if collection is not None:
        fields["collection"] = source(process, node, collection, "Its collection", line)
    if (item := attribute(loop, "elementVariable")) is not None:
        fields["item"] = item
    if (index := attribute(loop, "elementIndexVariable")) is not None:
        node.fields["inputs"] = (Assignment(index, "=loopCounter"), *node.fields.get("inputs", ()))
    for element in named(extensions, "variableAggregation"):
        output: dict[str, Any] = {}
        for child in inner(element, "variable"):
            name, expression = child.get("source"), child.get("sourceExpression")
            if target := child.get("target") or name:
                value = expression or variable_source(name or "")
                output[target] = source(process, node, value, f"The variable {target!r}", child.line)
        if element.get("target") and output:
            fields["output_collection"] = element.get("target")
            fields["output"] = output


def _written_collection(element: XmlElement) -> Any:
    for child in element.children:
        text = child.text.strip()
        if child.name == "expression" and text:
            return text
        if child.name == "string" and text:
            try:
                return json.parse(text, what="collection") if text.startswith("[") else text
            except MalformedJson:
                return None
    return element.text.strip() or None


def _zeebe_attributes(process: BpmnDraft, node: NodeDraft, loop: XmlElement, fields: dict[str, Any]) -> None:
    """`zeebe:collection` and the like as attributes, as Fleans has them: names of variables, or expressions."""
    given = {name: (loop.get(f"zeebe:{name}") or "").strip() for name in ("collection", "outputElement")}
    if given["collection"]:
        fields["collection"] = source(process, node, given["collection"], "Its collection", loop.line)
    if item := (loop.get("zeebe:elementVariable") or "").strip():
        fields["item"] = item
    if target := (loop.get("zeebe:outputCollection") or "").strip():
        fields["output_collection"] = target
        output = variable_source(given["outputElement"]) if given["outputElement"] else None
        fields["output"] = source(process, node, output, "Its outputElement", loop.line)


def _zeebe_data(process: BpmnDraft, node: NodeDraft, found: XmlElement, fields: dict[str, Any]) -> None:
    if collection := found.get("inputCollection"):
        fields["collection"] = source(process, node, collection, "Its inputCollection", found.line)
    if item := found.get("inputElement"):
        fields["item"] = item.strip()
    if target := found.get("outputCollection"):
        fields["output_collection"] = target.strip()
        fields["output"] = source(process, node, found.get("outputElement"), "Its outputElement", found.line)
