"""Read skip expressions of Flowable and Activiti: on tasks, and on flows."""

from __future__ import annotations

from hark.programs.bpmn.file.draft import BpmnDraft, FlowDraft, NodeDraft
from hark.programs.bpmn.file.extensions import attribute
from hark.programs.bpmn.file.file_sources import marked
from hark.programs.bpmn.file.xml_tree import XmlElement
from hark.programs.expressions.error import ExpressionError
from hark.programs.expressions.sources import check_condition

_NAME = "skipExpression"


def read_skip(process: BpmnDraft, node: NodeDraft, *, is_possible: bool) -> None:
    """Read the skip expression of an activity. Flowable has them for some tasks only, and does not see others."""
    if (text := attribute(node.element, _NAME)) is None:
        return
    if is_possible:
        node.fields["skip"] = _checked(process, node.id, node.element, text)
    else:
        process.file.ignore(
            node.id, node.line, f"Its {_NAME} is ignored, as in Flowable: only tasks that do something have one."
        )


def flow_skip(process: BpmnDraft, flow: FlowDraft) -> str | None:
    """The skip expression of a flow. Flowable writes it without a prefix too."""
    text = attribute(flow.element, _NAME) or (flow.element.get(_NAME) or "").strip()
    return _checked(process, flow.id, flow.element, text) if text else None


def _checked(process: BpmnDraft, id: str, element: XmlElement, text: str) -> str:
    text = marked(text, None)
    try:
        check_condition(text)
    except ExpressionError:
        message = f"Its {_NAME} cannot be evaluated here: an instance that turns skip expressions on fails at it."
        process.file.ignore(id, element.line, message)
    return text
